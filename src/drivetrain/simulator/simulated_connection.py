"""One end of a simulated connection.

Design: the two ends know each other. A frame's arrival is a timer that runs in the receiving process. The
sender counts a frame as buffered until it has arrived or was lost, like the buffer of a socket whose peer
does not read, so a frozen peer exerts back pressure.

Invariants:
1. The invariants of `drivetrain.actor.remote.transport`.
2. Without `reordering`, frames of one direction arrive in the order in which they were sent, and the end
   of the connection after them.
3. An end whose process died sends nothing; frames that it sent before may still arrive.

Called by `SimulatedTransport` (opens them), `SimulatedNetwork` (ends them) and the connection's owner.
"""

from __future__ import annotations

from contextvars import Context
from typing import Final

from drivetrain.actor.remote.transport import UNPROVEN_FRAME_BYTES, ConnectionEvents
from drivetrain.simulator.network import SimulatedNetwork
from drivetrain.simulator.process_life import Life

HIGH_WATER_BYTES: Final = 1 << 20
LOW_WATER_BYTES: Final = 1 << 18


class SimulatedConnection:
    """One end, at `host`, of the connection `number` to the node of `peer`."""

    def __init__(
        self,
        network: SimulatedNetwork,
        number: int,
        host: str,
        peer: str,
        life: Life | None,
        context: Context,
    ) -> None:
        self._network: Final = network
        self._number: Final = number
        self._host: Final = host
        self._peer_name: Final = peer
        self._peer_host: Final = peer.rpartition(":")[0]
        self._context: Final = context
        self._other: SimulatedConnection | None = None
        self._events: ConnectionEvents | None = None
        self._last_arrival_s = 0.0
        self._buffered = 0
        self._limit = UNPROVEN_FRAME_BYTES
        self._is_paused = False
        self._is_closing = False
        self.life: Final = life
        self.is_open = True
        network.add_connection(self)

    def join(self, other: SimulatedConnection) -> None:
        """Make the two the ends of one connection."""
        self._other, other._other = other, self

    def own(self, events: ConnectionEvents) -> None:
        """Report to `events` from now on."""
        self._events = events

    # ---- Connection

    @property
    def peer(self) -> str:
        """The other end as "host:port"."""
        return self._peer_name

    @property
    def buffered_bytes(self) -> int:
        """How many bytes were sent and have neither arrived nor been lost."""
        return self._buffered

    def allow_frames(self, limit_bytes: int) -> None:
        """Accept frames up to this size from now on."""
        self._limit = limit_bytes

    def send(self, frame: bytes) -> None:
        """Send one frame, which the faults in force may lose, duplicate, delay or reorder."""
        if not self._may_send():
            return
        self._buffered += len(frame)
        if self._buffered > HIGH_WATER_BYTES and not self._is_paused:
            self._is_paused = True
            self._soon("writing_paused")
        self._transmit(bytes(frame))

    def close(self) -> None:
        """Close properly."""
        if self._may_send():
            self._record("closes")
            self._end(None)

    def abort(self) -> None:
        """Close immediately; the peer sees a reset."""
        if self._may_send():
            self._record("aborts")
            self._end(ConnectionResetError("connection reset by the peer"))

    # ---- sending

    def _may_send(self) -> bool:
        return self.is_open and not self._is_closing and (self.life is None or self.life.is_alive)

    def _transmit(self, frame: bytes) -> None:
        if not self.is_open:
            return
        network, source, target = self._network, self._host, self._peer_host
        words = network.describe(frame)
        if network.is_blocked(source, target):
            is_held = network.hold(source, target, lambda: self._transmit(frame))
            self._record(f"{'holds' if is_held else 'loses'} {words}: blocked")
            if not is_held:
                self._drained(len(frame))
            return
        faults, random, now = network.faults(source, target), network.random, network.loop.time()
        if faults.loss and random.random() < faults.loss:
            self._record(f"loses {words}")
            self._drained(len(frame))
            return
        if faults.reset and random.random() < faults.reset:
            self._record(f"breaks at {words}")
            self._drained(len(frame))
            self._end(ConnectionResetError("connection reset by the network"), is_own_fault=False)
            return
        copies = 2 if faults.duplication and random.random() < faults.duplication else 1
        for copy in range(copies):
            arrival = now + faults.delay_s(random)
            if not faults.reordering or random.random() >= faults.reordering:
                arrival = self._last_arrival_s = max(arrival, self._last_arrival_s + 1e-6)
            self._record(
                f"sends {words}{' again' if copy else ''}, arrives in {(arrival - now) * 1e3:.3f} ms"
            )
            self._schedule(arrival, frame, len(frame) if copy == 0 else 0)

    def _schedule(self, arrival: float, frame: bytes, size: int) -> None:
        other, loop = self._other, self._network.loop
        assert other is not None, "a connection sends before it is joined"
        if other.life is None or other.life.is_alive:
            loop.call_at(arrival, other._arrived, frame, size, context=other._context)
        else:
            loop.call_at(arrival, self._met_nobody, context=self._context)

    def _drained(self, size: int) -> None:
        self._buffered -= size
        if self._is_paused and self._buffered <= LOW_WATER_BYTES:
            self._is_paused = False
            self._soon("writing_resumed")

    # ---- receiving: these run in this end's process

    def _arrived(self, frame: bytes, size: int) -> None:
        other = self._other
        if other is not None:
            other._drained(size)
        if not self.is_open or self._is_closing or self._events is None:
            return
        if len(frame) > self._limit:
            self._end(ConnectionResetError("connection reset by the peer"))
            return
        self._events.frame_received(frame)

    def _met_nobody(self) -> None:
        # The process at the other end is gone; its machine reports that, if it is on.
        if self._network.has_power(self._peer_host):
            self._lost(ConnectionResetError("connection reset: no such connection at the peer"))

    def _lost(self, error: Exception | None) -> None:
        if self.is_open:
            self.is_open = False
            if not self._is_closing or error is not None:
                self._record(f"lost: {error or 'closed by the peer'}")
            if self._events is not None:
                self._events.connection_lost(error)

    # ---- ending

    def end_with_process(self) -> None:
        """End this end because its process died; the peer sees a reset, unless the machine lost power."""
        self.is_open = False
        if self._network.has_power(self._host):
            self._tell_peer(ConnectionResetError("the peer's process ended"))

    def abandon(self) -> None:
        """End an end that never had an owner here; the peer sees a reset."""
        self.is_open = False
        self._tell_peer(ConnectionResetError("connection reset by the peer"))

    def _end(self, peer_error: Exception | None, *, is_own_fault: bool = True) -> None:
        self._is_closing = True
        self._tell_peer(peer_error)
        self._network.loop.call_soon(self._lost, None if is_own_fault else peer_error, context=self._context)

    def _tell_peer(self, error: Exception | None) -> None:
        other = self._other
        if other is not None:
            self._network.carry(
                self._host,
                self._peer_host,
                other._context,
                lambda: other._lost(error),
                after_s=self._last_arrival_s,
            )

    def _soon(self, event: str) -> None:
        def tell() -> None:
            if self.is_open and self._events is not None:
                getattr(self._events, event)()

        self._network.loop.call_soon(tell, context=self._context)

    def _record(self, what: str) -> None:
        self._network.trace.write(
            self._network.loop.time(), self._host, f"connection {self._number} to {self._peer_name} {what}"
        )
