"""Runs the console until it is stopped.

Design: uvicorn serves the web application in the process's main thread, on the event loop of the cluster's
client. When the console ends, it closes the connections of pages that listen for events.

Called by `drivetrain console`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import uvicorn

from drivetrain.actor.remote.remote_settings import is_loopback
from drivetrain.cluster.client import Client, open_client
from drivetrain.cluster.connection import masters_of
from drivetrain.config import Config
from drivetrain.config.catalog import console as keys
from drivetrain.console.access.access import Access
from drivetrain.console.access.access_file import AccessFile
from drivetrain.console.access.audit import Audit
from drivetrain.console.addresses import ConsoleAddress, address_of, prefix_of
from drivetrain.console.embedded.runs import EmbeddedRuns
from drivetrain.console.endpoints import web_application
from drivetrain.console.local_workers import LocalWorkers
from drivetrain.console.metrics.collector import Metrics
from drivetrain.console.middleware import ConsoleMiddleware
from drivetrain.console.openapi import document
from drivetrain.console.past.recorder import Recorder
from drivetrain.console.planning.planning import Planning
from drivetrain.console.routes.table import ROUTES
from drivetrain.console.services import Services
from drivetrain.console.state_reading import StateReading
from drivetrain.console.watching.cluster_watch import Watch
from drivetrain.errors import ConfigError, UserError

LOOK_MS: Final = 4_000
"""How long one look at the cluster may take before it counts as out of reach."""
MOST_REQUESTS: Final = 1_000
"""Connections and requests at once, streams included; beyond that the answer is 503."""
LAST_LOOK_S: Final = 2.0
"""How long the last look at what is watched may take when the console of a run ends."""
_STOP_S: Final = 3


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


async def serve(
    config: Config,
    stop: asyncio.Event,
    ready: Callable[[ConsoleAddress], None],
    token: str | None = None,
    *,
    of_runs: bool = False,
    local_directory: Path | None = None,
) -> None:
    """Serve until `stop`; `ready` is called with the console's address once it listens. On loopback, the
    address has a token to sign in with: `token`, or a random one. It shows a cluster, or the runs of this
    machine (`of_runs`). `local_directory` is that of the `drivetrain local` that started it.

    Raises UserError when the address cannot be used, and what `open_client` raises.
    """
    _require_guarded(config)
    listener = listener_of(config)
    host, port = listener.getsockname()[:2]
    link = (token or secrets.token_urlsafe(24)) if is_loopback(host) else None
    async with services(config, link, port, of_runs=of_runs, local_directory=local_directory) as made:
        hosts = frozenset(name.strip().lower() for name in config[keys.HOSTS].split(",") if name.strip())
        settings = uvicorn.Config(
            ConsoleMiddleware(web_application(made), made.access, hosts, prefix_of(config)),
            ssl_certfile=config[keys.TLS_CERTIFICATE] or None,
            ssl_keyfile=config[keys.TLS_KEY] or None,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=MOST_REQUESTS,
            h11_max_incomplete_event_size=64 * 1024,
            timeout_graceful_shutdown=_STOP_S,
        )
        _load(settings)
        server = _Server(settings)
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        ready(ConsoleAddress(address_of(config, host, port), link))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if made.runs is not None:  # open pages keep showing the end of the run that this console belongs to
            made.runs.look_anew()
            await made.watch.look_last(LAST_LOOK_S)
        made.watch.end_streams()
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def services(
    config: Config,
    link: str | None,
    port: int,
    *,
    of_runs: bool = False,
    local_directory: Path | None = None,
) -> AsyncIterator[Services]:
    """The services of the console, open within the block."""
    masters = [] if of_runs else masters_of(config)
    client, watched = _shown_runs(config) if of_runs else await _shown_cluster(config, masters)
    planning: Planning | None = None
    made: Services | None = None
    directory = Path(config[keys.DIRECTORY])
    prefix, is_secure = prefix_of(config), bool(config[keys.TLS_CERTIFICATE])
    recorder = Recorder(watched, directory)
    watch = Watch(watched, recorder)
    try:
        planning = Planning(
            None if isinstance(client, EmbeddedRuns) else client, masters, config[keys.PLANNING_TIMEOUT]
        )
        states = StateReading(planning.directory, config[keys.PLANNING_TIMEOUT])
        await recorder.open()
        access = Access(AccessFile(directory), link, port=port, prefix=prefix, is_secure=is_secure)
        specification = document(ROUTES, prefix, access.cookie)
        made = Services(
            config,
            client,
            watch,
            recorder,
            planning,
            states,
            access,
            Audit(directory),
            Metrics(watched),
            specification,
            None if local_directory is None else LocalWorkers(local_directory),
        )
        yield made
    finally:
        await watch.close()
        await recorder.close()
        if made is not None:
            await made.operations.close()
        if planning is not None:
            planning.close()
        await client.close()


async def _shown_cluster(config: Config, masters: list[str]) -> tuple[Client, Client]:
    """The client of requests, and that of looks, which take less time."""
    client = await open_client(config)
    return client, Client(client.system, masters, LOOK_MS)


def _shown_runs(config: Config) -> tuple[EmbeddedRuns, EmbeddedRuns]:
    runs = EmbeddedRuns(config)
    return runs, runs


def _load(settings: uvicorn.Config) -> None:
    try:
        settings.load()
    except OSError as error:  # also an error of TLS
        raise ConfigError(
            "the certificate of the console cannot be used",
            where=f"{settings.ssl_certfile}, {settings.ssl_keyfile}",
            got=str(error),
            remedy=f"correct {keys.TLS_CERTIFICATE.name} and {keys.TLS_KEY.name}",
        ) from error


def _require_guarded(config: Config) -> None:
    """Raise ConfigError for a console that other machines could reach without authentication."""
    certificate, key = config[keys.TLS_CERTIFICATE], config[keys.TLS_KEY]
    if bool(certificate) != bool(key):
        raise ConfigError(
            "HTTPS needs a certificate and its key",
            where=f"{keys.TLS_CERTIFICATE.name}, {keys.TLS_KEY.name}",
            expected="the path of a PEM file for each",
            remedy="set both, or neither",
        )
    host = config[keys.HOST]
    if is_loopback(host):
        return
    entries = AccessFile(Path(config[keys.DIRECTORY])).entries()
    if not entries.users and not entries.tokens:
        raise ConfigError(
            "the console would listen for other machines, and nobody could sign in",
            where=f"{keys.HOST.name} = {host}",
            expected="a user or a token",
            remedy="make one with `drivetrain console-access add-user NAME --role admin`, or "
            "listen at 127.0.0.1",
        )
    if not certificate and not config[keys.WITHOUT_TLS]:
        raise ConfigError(
            "passwords and tokens would cross the network unencrypted",
            where=f"{keys.HOST.name} = {host}",
            expected=f"{keys.TLS_CERTIFICATE.name} and {keys.TLS_KEY.name}",
            remedy=f"set both; or, with a proxy in front that has HTTPS, {keys.WITHOUT_TLS.name}=true",
        )


def listener_of(config: Config) -> socket.socket:
    """The socket of `console.host` and `console.port`; raises UserError when it cannot listen there."""
    host, port = config[keys.HOST], config[keys.PORT]
    try:
        listener = socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except (OSError, OverflowError) as error:
        raise UserError(
            "the console cannot listen at its address",
            where=f"{host}:{port}",
            got=str(error),
            remedy="choose another port with --port, or another address with --host",
        ) from error
    # asyncio sets it only on sockets that were made with TCP's number; head and body of an answer are two
    # packets, and without it the second waits until the first is acknowledged, which takes 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
