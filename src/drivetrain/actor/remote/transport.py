"""What carries frames between two processes: the interface that TCP and the simulated network implement.

Problem: protocols must run unchanged over real sockets and in a simulator, so they may only know what both
can give.

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

What a transport does *not* promise: that a frame arrives, that it arrives once, or that frames of one
connection arrive in order. TCP keeps order within a connection; the simulated network may be told not to.

Called by `Remote` and its links; implemented by `TcpTransport` and by
`drivetrain.testing.SimulatedTransport`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

Frame = bytes | bytearray | memoryview

UNPROVEN_FRAME_BYTES: Final = 4096
"""How large a frame may be before the peer has proved who it is: a stranger must not make us hold more."""


class ConnectionEvents(Protocol):
    """What a connection tells its owner."""

    def frame_received(self, frame: Frame) -> None:
        """A frame came in; the buffer is only valid during the call."""

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; None when it was closed in good order by either side."""

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
        """How much was handed to `send` and has not left this process."""

    def allow_frames(self, limit_bytes: int) -> None:
        """Take frames up to this size from now on; at first a connection takes `UNPROVEN_FRAME_BYTES`."""

    def send(self, frame: bytes) -> None:
        """Send one frame; ignored when the connection is closing or gone."""

    def close(self) -> None:
        """Close in good order: what was sent before goes out first."""

    def abort(self) -> None:
        """Close at once; what is buffered may be lost."""


Opener = Callable[[Connection], ConnectionEvents]
"""Called with each new connection before its first event; returns who owns it."""


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
        """Connect; raises `ConnectError`. May take for ever: callers set a timeout."""
