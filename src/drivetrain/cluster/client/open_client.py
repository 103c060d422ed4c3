"""Opens a client: an actor system that listens, so that other processes can send it messages; or, with
`client.console`, one that asks through a console.

Called by programs with an event loop, and by `blocking`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from typing import TypeAlias

from drivetrain.actor import ActorSystem
from drivetrain.actor.remote import Transport, attach_remote
from drivetrain.actor.remote.remote import Entropy
from drivetrain.cluster.client.client import Client
from drivetrain.cluster.client.console_client import ConsoleClient
from drivetrain.cluster.client.console_connection import ConsoleConnection
from drivetrain.cluster.connection import masters_of, remote_settings
from drivetrain.config import Config
from drivetrain.config.catalog import client as keys

AnyClient: TypeAlias = Client | ConsoleClient
"""A client of a cluster, whichever way its requests go: both have the same methods."""


def through_console(config: Config) -> ConsoleClient | None:
    """The client that asks through the console of `config`; None if it names none. Raises ConfigError."""
    return ConsoleClient(ConsoleConnection(config), config[keys.TIMEOUT]) if config[keys.CONSOLE] else None


async def open_any_client(config: Config) -> AnyClient:
    """Open a client of the cluster in `config`, or through its console; raises the errors of both."""
    console = through_console(config)
    return await open_client(config) if console is None else console


async def open_client(
    config: Config,
    *,
    environ: Mapping[str, str] | None = None,
    rng: random.Random | None = None,
    transport: Transport | None = None,
    entropy: Entropy = secrets.token_bytes,
) -> Client:
    """Open a client of the cluster in `config`; close it after use. Nothing is sent before its first request.

    `environ` None means this process's environment; `rng`, `transport` and `entropy` are for the simulator.
    Raises ConfigError, `InsecureBindError`, `BindError`.
    """
    settings, masters = remote_settings(config, environ=environ), masters_of(config)
    system = ActorSystem("client", rng=rng, config=config)
    try:
        await attach_remote(system, settings, transport=transport, entropy=entropy)
        return Client(system, masters, config[keys.TIMEOUT])
    except BaseException:
        await system.terminate()
        raise
