"""The transport over TCP, with or without TLS.

Design: one asyncio protocol per connection, no stream objects: incoming bytes are split into frames and
passed on in the same call; an outgoing frame is one write. An accepted connection is passed to its owner
immediately, even if it must become a TLS connection first, so that the owner counts it and applies its
deadline; a task performs the TLS handshake. asyncio provides buffering and its high-water mark. Keep-alive
and the user timeout let the kernel detect peers that are gone while nothing is sent, and while sent data is
not acknowledged.

Invariants: those of `drivetrain.actor.remote.transport`, and
1. A connection that breaks the framing is closed immediately, with the reason for its owner.
2. With TLS nothing is sent or accepted on an accepted connection before it is a TLS connection.

Called by `Remote`, through `Transport`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from drivetrain.actor.remote.framing import FrameReader, header_of
from drivetrain.actor.remote.remote_errors import (
    AddressInUseError,
    BindError,
    ConnectError,
    ProtocolViolationError,
)
from drivetrain.actor.remote.tls import TlsContexts, TlsSettings
from drivetrain.actor.remote.transport import UNPROVEN_FRAME_BYTES, Connection, ConnectionEvents, Opener

HIGH_WATER_BYTES: Final = 1 << 20
COPIED_BYTES: Final = 1 << 16
KEEP_ALIVE_IDLE_S: Final = 30
KEEP_ALIVE_PROBES: Final = 3
UNACKNOWLEDGED_MS: Final = 60_000
ACCEPTED_AT_ONCE: Final = 2
"""New connections in one turn of the event loop: existing ones must not wait for a flood of new ones."""
WAITING: Final = 1024
"""Connections that the operating system keeps until they are accepted."""


class TcpConnection(asyncio.Protocol):
    """One TCP connection; asyncio calls the protocol's methods, the owner those of `Connection`."""

    def __init__(self, opener: Opener, secured_by: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._opener: Final = opener
        self._secured_by: Final = secured_by
        self._securing: asyncio.Task[None] | None = None
        self._early = b""
        self._reader: Final = FrameReader(UNPROVEN_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self._events: ConnectionEvents | None = None
        self._violation: Exception | None = None
        self._peer = "unknown"

    # ---- Connection

    @property
    def peer(self) -> str:
        """The other end as "host:port"."""
        return self._peer

    @property
    def buffered_bytes(self) -> int:
        """How many bytes the operating system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def allow_frames(self, limit_bytes: int) -> None:
        """Accept frames up to this size from now on."""
        self._reader.limit_bytes = limit_bytes

    def send(self, frame: bytes) -> None:
        """Send one frame."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._securing is not None:
            return
        if len(frame) < COPIED_BYTES:
            transport.write(header_of(frame) + frame)
        else:
            # One more system call costs less than a copy of this size.
            transport.write(header_of(frame))
            transport.write(frame)

    def close(self) -> None:
        """Close after buffered data was sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; asyncio calls this first."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        if self._secured_by is not None:
            self._transport.pause_reading()
        name = transport.get_extra_info("peername")
        self._peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unknown"
        _watch_over(transport.get_extra_info("socket"))
        self._events = self._opener(self)
        if self._secured_by is not None and not self._transport.is_closing():
            self._securing = asyncio.get_running_loop().create_task(self._secure(self._secured_by))

    async def _secure(self, context: Callable[[], ssl.SSLContext]) -> None:
        """Turn it into a TLS connection; the owner ends it if that takes too long."""
        raw, loop = self._transport, asyncio.get_running_loop()
        assert raw is not None
        try:
            secured = await loop.start_tls(raw, self, context(), server_side=True)
        except (OSError, ssl.SSLError) as error:
            self._violation = ProtocolViolationError(f"no TLS connection: {_reason(error)}")
            raw.abort()
            self.connection_lost(None)
            return
        if secured is None or raw.is_closing():
            self.connection_lost(None)
            return
        secured.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._transport, self._securing = secured, None
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Split received bytes into frames and pass them on."""
        if self._securing is not None:
            # It arrived with the end of the TLS handshake, which the task has not noticed yet.
            self._early += data
            return
        events, transport = self._events, self._transport
        if events is None or transport is None or transport.is_closing():
            return
        try:
            for frame in self._reader.feed(data):
                events.frame_received(frame)
                if transport.is_closing():
                    return
        except ProtocolViolationError as error:
            self._violation = error
            transport.abort()

    def pause_writing(self) -> None:
        """More than the high-water mark is buffered."""
        if self._events is not None:
            self._events.writing_paused()

    def resume_writing(self) -> None:
        """The buffer has drained."""
        if self._events is not None:
            self._events.writing_resumed()

    def eof_received(self) -> bool:
        """The peer has closed: so do we."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; asyncio calls this last."""
        events, self._events = self._events, None
        if events is not None:
            events.connection_lost(self._violation or exc)


class TcpListener:
    """An open TCP port."""

    def __init__(self, server: asyncio.Server, host: str) -> None:
        self._server: Final = server
        self.host: Final = host
        self.port: Final[int] = server.sockets[0].getsockname()[1]

    async def wait_closed(self) -> None:
        """Close the port."""
        self._server.close()
        # From Python 3.12 on, `Server.wait_closed` waits for open connections too; those have other owners.
        await asyncio.sleep(0)


class TcpTransport:
    """Listens and connects over TCP; with `tls` every connection is encrypted and mutually verified."""

    def __init__(self, tls: TlsSettings | None = None) -> None:
        self._tls: Final = None if tls is None else TlsContexts(tls)

    async def wait_listening(self, host: str, port: int, accept: Opener) -> TcpListener:
        """Open a port; raises `AddressInUseError` or `BindError`."""
        loop = asyncio.get_running_loop()
        secured_by = None if self._tls is None else self._tls.server
        try:
            server = await loop.create_server(
                lambda: TcpConnection(accept, secured_by), host, port, backlog=ACCEPTED_AT_ONCE
            )
            for listening in server.sockets:
                # asyncio accepts as many at once as may wait; here more may wait than are accepted at once.
                with socket.socket(fileno=os.dup(listening.fileno())) as same:
                    same.listen(WAITING)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(host, port) from error
            raise BindError(
                f"cannot listen: {error.strerror or error}",
                where=f"{host}:{port}",
                remedy="use a host name or address of this machine, and a port above 1023",
            ) from error
        return TcpListener(server, host)

    async def wait_connected(self, host: str, port: int, opened: Opener) -> Connection:
        """Connect; raises `ConnectError`."""
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: TcpConnection(opened),
                host,
                port,
                ssl=None if self._tls is None else self._tls.client(),
            )
        except ssl.SSLError as error:
            raise ConnectError(
                f"no TLS connection: {_reason(error)}",
                where=f"{host}:{port}",
                remedy="check that both sides use TLS and certificates of one authority",
            ) from error
        except OSError as error:
            raise ConnectError(
                f"no connection: {error.strerror or error}",
                where=f"{host}:{port}",
                remedy="check that the process runs and listens there",
            ) from error
        except (ValueError, OverflowError) as error:  # a peer may send any text as its host
            raise ConnectError(f"not a host to connect to: {error}", where=f"{host[:200]}:{port}") from error
        return connection


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__


def _watch_over(sock: object) -> None:
    """Let the kernel probe an idle connection, and give up one whose data is not acknowledged."""
    # Not every platform has every option, and a connection works without them.
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEP_ALIVE_IDLE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEP_ALIVE_IDLE_S // KEEP_ALIVE_PROBES),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", KEEP_ALIVE_PROBES),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS),
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
    ):
        option = getattr(socket, name, None)
        if option is not None and hasattr(sock, "setsockopt"):
            with contextlib.suppress(OSError):
                sock.setsockopt(level, option, value)
