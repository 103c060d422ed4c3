"""Transports carry frames between two processes: the interface that TCP and the simulated network implement.

Problem: protocols must run unchanged over real sockets and in a simulator, so they may only rely on what both
provide.

Design: a `Transport` listens and connects; a `Connection` carries frames (byte strings with an end) both
ways and reports to its owner through `ConnectionEvents`. Everything above (handshake, ordering, resending,
heartbeats) is built on this and must be right on the weakest transport that the invariants allow.

Invariants that every transport keeps:
1. A frame arrives whole and unchanged, or not at all; one larger than the receiver allows ends the
   connection.
2. `connection_lost` is called exactly once for every connection that was opened, after its last frame; no
   other event follows.
3. Events never come from inside a call of the owner (`send` never calls `frame_received`).
4. `send` never blocks; what cannot be sent yet is buffered and counted by `buffered_bytes`.

What a transport does *not* guarantee: that a frame arrives, that it arrives once, or that frames of one
connection arrive in order. TCP keeps order within a connection; the simulated network can be set to reorder.

Called by `Remote` and its links; implemented by `TcpTransport` and by
`drivetrain.simulator.SimulatedTransport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

Frame = bytes | bytearray | memoryview

UNPROVEN_FRAME_BYTES: Final = 4096
"""The largest frame before the peer has proved its identity: a stranger must not make us hold more."""


class ConnectionEvents(Protocol):
    """The events that a connection reports to its owner."""

    def frame_received(self, frame: Frame) -> None:
        """A frame arrived; the buffer is only valid during the call."""

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is lost; `error` is None when either side closed it properly."""

    def writing_paused(self) -> None:
        """More than the high-water mark is buffered: the peer is slower than we are."""

    def writing_resumed(self) -> None:
        """The buffer has drained again."""


class Connection(Protocol):
    """One established connection."""

    @property
    def peer(self) -> str:
        """The other end as "host:port", for logs."""

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were passed to `send` and have not left this process."""

    def allow_frames(self, limit_bytes: int) -> None:
        """Accept frames up to this size from now on; at first a connection accepts `UNPROVEN_FRAME_BYTES`."""

    def send(self, frame: bytes) -> None:
        """Send one frame; ignored when the connection is closing or gone."""

    def close(self) -> None:
        """Close properly: buffered frames are sent first."""

    def abort(self) -> None:
        """Close immediately; buffered frames may be lost."""


Opener = Callable[[Connection], ConnectionEvents]
"""Called with each new connection before its first event; returns its owner."""


class Listener(Protocol):
    """An open port."""

    @property
    def host(self) -> str:
        """The host or address it is bound to."""

    @property
    def port(self) -> int:
        """The port, also when the system chose it."""

    async def wait_closed(self) -> None:
        """Stop accepting, and wait until the port is free; open connections stay."""


class Transport(Protocol):
    """Listens and connects."""

    async def wait_listening(self, host: str, port: int, accept: Opener) -> Listener:
        """Open a port (0 lets the system choose one); raises `AddressInUseError` or `BindError`."""

    async def wait_connected(self, host: str, port: int, opened: Opener) -> Connection:
        """Connect; raises `ConnectError`. May never return: callers set a timeout."""
