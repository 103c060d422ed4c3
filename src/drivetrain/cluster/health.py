"""Answers probes over HTTP: whether a master or a worker lives, and whether it is ready.

Problem: Kubernetes and load balancers ask every few seconds, and a process that is started to ask costs more
CPU time than what it asks about. An open port alone does not show that a master has joined the others.

Design: two paths, in the event loop of the process, so that no answer comes while that hangs. `/healthz` is
200 whenever it answers; `/readyz` is 200 or 503, with the reason as text. A request is read up to
`MOST_BYTES` within `TIMEOUT_S`; its head alone counts, and the connection is closed after the answer. At most
`MOST_CONNECTIONS` are open, further ones are closed at once. No answer contains a secret, and nothing can
be changed.

Invariants:
1. Whatever a client sends, or does not send, its connection ends within `TIMEOUT_S`.
2. A client that misbehaves disturbs nothing but its own connection.

Called by the processes of masters and workers, if `cluster.health-port` is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from drivetrain.config import Config
from drivetrain.config.catalog import cluster as keys
from drivetrain.errors import ConfigError

MOST_BYTES: Final = 4096
MOST_CONNECTIONS: Final = 64
TIMEOUT_S: Final = 5.0

log: Final = logging.getLogger("drivetrain.cluster")


class Readiness(NamedTuple):
    """Whether a process can do its work, and why (not), in a few words."""

    is_ready: bool
    why: str


@asynccontextmanager
async def health_server(config: Config, readiness: Callable[[], Readiness]) -> AsyncIterator[None]:
    """Answer probes at `cluster.health-port`; does nothing without one. Raises ConfigError."""
    port = config[keys.HEALTH_PORT]
    if port == 0:
        yield
        return
    probes = _Probes(readiness)
    host = config[keys.BIND_HOST] or config[keys.HOST]
    try:
        server = await asyncio.start_server(probes.serve, host, port, limit=MOST_BYTES)
    except OSError as error:
        raise ConfigError(
            "probes cannot be answered at this address",
            where=f"{keys.HEALTH_PORT.name}, {host}:{port}",
            got=error.strerror or str(error),
            remedy="choose a port that is free, or 0 to answer no probes",
        ) from error
    try:
        yield
    finally:
        server.close()
        await probes.close()


class _Probes:
    def __init__(self, readiness: Callable[[], Readiness]) -> None:
        self._readiness: Final = readiness
        self._open: Final[dict[asyncio.Task[None], asyncio.StreamWriter]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            if len(self._open) <= MOST_CONNECTIONS:
                async with asyncio.timeout(TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                    await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:  # a timeout is an OSError
            log.debug("a probe was not answered: %r", error)
        finally:
            del self._open[task]
            writer.close()

    async def close(self) -> None:
        """End the open connections."""
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait(self._open)

    def _answer(self, line: bytes) -> bytes:
        method, _, rest = line.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path not in ("/healthz", "/readyz"):
            return _response("404 Not Found", "there are /healthz and /readyz", method)
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "GET and HEAD are allowed", method)
        if path == "/healthz":
            return _response("200 OK", "ok", method)
        is_ready, why = self._readiness()
        return _response("200 OK" if is_ready else "503 Service Unavailable", why, method)


def _response(status: str, text: str, method: str) -> bytes:
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)
