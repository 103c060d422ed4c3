"""Everything between this system and one other: connection, session, and waiting messages.

Problem: connections come and go, the process at the other end may be another incarnation, and messages must
neither overtake each other nor arrive twice.

Design: an association belongs to a place (system name, host, port), not to an incarnation. It dials when
there is something to send, accepts when it is dialled, and keeps at most one open link. The session spans
connections (`Session`). States:

    IDLE ──something to send─▶ DIALING ──opened──▶ OPEN ──lost──▶ DIALING, or IDLE with nothing to send
                                │ failed                           ▲
                                ▼                                  │ delay over and something to send
                              WAITING ─────────────────────────────┘ (else IDLE)

A link that the other side dialled opens in any state. If both dial at once, the lesser address continues and
the other is EXPECTING it, as is one whose new connection broke at once. While EXPECTING, messages wait; while
WAITING, after a failure, ordinary messages fail immediately: a caller learns more from that than from its
timeout.

Invariants:
1. At most one link is open; frames of any other are ignored.
2. A message for an incarnation other than the peer's is not sent to it.
3. Every ordinary message handed in is sent once or given back as undeliverable, not both.

Called by `Remote`.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import Final

from drivetrain.actor.path import Address
from drivetrain.actor.provider import Envelope, UndeliverableReason
from drivetrain.actor.remote.association_owner import AssociationOwner
from drivetrain.actor.remote.backoff import Backoff
from drivetrain.actor.remote.handshake import Agreement
from drivetrain.actor.remote.link import Link
from drivetrain.actor.remote.remote_errors import ConnectError, HandshakeError, ProtocolViolationError
from drivetrain.actor.remote.session import Session
from drivetrain.actor.remote.unsent_messages import Outgoing
from drivetrain.actor.remote.wire import (
    AnyFrame,
    Batch,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    SystemAck,
    SystemMessage,
)
from drivetrain.errors import DrivetrainError, PeerViolationError

log = logging.getLogger(__name__)

_MOST_RETIRED: Final = 64


class State(Enum):
    """Whether there is a connection, and if not, why."""

    IDLE = auto()
    DIALING = auto()
    OPEN = auto()
    WAITING = auto()
    EXPECTING = auto()


class Association:
    """The association with `place`, an address with `ANY_INCARNATION`."""

    def __init__(self, remote: AssociationOwner, place: Address) -> None:
        settings = remote.settings
        self._remote: Final = remote
        self._loop: Final = remote.loop
        self._link: Link | None = None
        self._dial: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_is_due = False
        self._is_writable = True
        self._is_used = True
        self._opened_s = 0.0
        self._complained: str | None = None
        self.trouble: Exception | None = None
        """The failure of the last attempt to connect; None if it succeeded, or there was none."""
        self._backoff: Final = Backoff(settings.min_backoff_ms, settings.max_backoff_ms, remote.system.rng)
        self._retired: Final[dict[int, None]] = {}
        self.place: Final = place
        self.state = State.IDLE
        self.session: Final = Session(
            remote.system.address,
            place,
            settings.frame_limit_bytes,
            settings.queue_limit,
            settings.queue_limit_bytes,
        )

    # ---- outgoing

    def deliver(self, envelope: Envelope, tag: str, body: bytes) -> None:
        """Send an ordinary message, now or when there is a connection; raises `MessageTooLargeError`."""
        outgoing = self.session.prepare(envelope, tag, body)
        self._is_used = True
        if self.is_stale(envelope.target.address):
            self._give_back(outgoing, UndeliverableReason.STALE)
        elif self.state is State.WAITING:
            self._give_back(outgoing, UndeliverableReason.UNREACHABLE)
        elif not self.session.put(outgoing):
            self._give_back(outgoing, UndeliverableReason.QUEUE_FULL)
        elif self.state is not State.OPEN:
            self.ensure_dialing()
        elif not self.session.is_for(outgoing):
            self._look_who_is_there()
        elif not self._flush_is_due and self._is_writable:
            # Messages of one turn of the loop are sent together.
            self._flush_is_due = True
            self._loop.call_soon(self._flush, context=self._remote.context)

    def deliver_system(self, envelope: Envelope, tag: str, body: bytes) -> None:
        """Send a message about watching, repeatedly until it is acknowledged."""
        self._is_used = True
        if self.is_stale(envelope.target.address):
            return
        outgoing = self.session.prepare(envelope, tag, body)
        self.session.put_system(outgoing)
        if self.state is State.OPEN and not self.session.is_for(outgoing):
            self._look_who_is_there()
        self._flush()
        self.ensure_dialing()

    def is_stale(self, address: Address) -> bool:
        """Whether the address names an incarnation of the system that is known to be over."""
        return address.incarnation in self._retired

    def _look_who_is_there(self) -> None:
        """Reconnect: an unknown incarnation is addressed, so the connection may belong to a dead one."""
        link, self._link = self._link, None
        self.state = State.IDLE
        if link is not None:
            link.close("another life of the system may be there")
        self.ensure_dialing()

    def send_heartbeat(self, count: int) -> None:
        """Send a heartbeat, or connect if there is no connection."""
        if self._link is not None:
            self._link.send(Heartbeat(count))
        else:
            self.ensure_dialing()

    def send_again(self) -> None:
        """Send again what should have been acknowledged."""
        if self._link is not None:
            for frame in self.session.again():
                self._link.send(frame)

    def _flush(self) -> None:
        self._flush_is_due = False
        link = self._link
        if link is None or not self._is_writable:
            return
        for frame in self.session.outbox.frames():
            link.send(frame)
            if not self._is_writable or self._link is not link:
                break

    # ---- connecting

    @property
    def has_to_say(self) -> bool:
        """Whether a connection is needed."""
        return (
            len(self.session.outbox) > 0
            or self.session.has_unacknowledged
            or self._remote.is_watching_place(self.place)
        )

    def ensure_dialing(self) -> None:
        """Dial, unless there is a connection, an attempt, or a delay that has not passed."""
        if self.state is State.IDLE and not self._remote.is_stopping:
            self.state = State.DIALING
            self._dial = self._loop.create_task(self._run_dial(), context=self._remote.context)

    async def _run_dial(self) -> None:
        try:
            await self._remote.wait_dialed(self.place, self.session.number)
        except (ConnectError, HandshakeError, TimeoutError) as error:
            if self.state is State.DIALING:
                self._dial_failed(error)

    def _dial_failed(self, error: Exception) -> None:
        if isinstance(error, HandshakeError) and error.reason == "crossed":
            self._pause(State.EXPECTING)
            return
        self._complain(error)
        # Set the state first: a notified caller may send again immediately.
        self._pause(State.WAITING)
        if not self._remote.is_watching_place(self.place):
            # Nothing else detects its death: without this, attempts would continue for ever.
            self.session.forget_system()
        for outgoing in self.session.outbox.take_out(lambda one: not one.position):
            self._give_back(outgoing, UndeliverableReason.UNREACHABLE)

    def _pause(self, state: State) -> None:
        self.state = state
        self._timer = self._loop.call_later(
            self._backoff.next_delay_s(), self._delay_is_over, context=self._remote.context
        )

    def _delay_is_over(self) -> None:
        if self.state in (State.WAITING, State.EXPECTING):
            self.state = State.IDLE
            if self.has_to_say:
                self.ensure_dialing()

    def admits(self, dialer: Address) -> int:
        """Check a dialer: returns the session that could be resumed; raises `HandshakeError`."""
        if dialer.incarnation in self._retired:
            raise HandshakeError(f"{dialer} is an earlier life of that system", reason="stale")
        me = self._remote.system.address
        if self.state is State.DIALING and _order(me) < _order(dialer):
            raise HandshakeError("both sides dial, and the other connection is kept", reason="crossed")
        return self.session.number if dialer == self.session.peer else 0

    # ---- the link

    def link_opened(self, link: Link, agreement: Agreement) -> None:
        """Use this link from now on; the session begins or continues."""
        before, peer = self.session.peer, agreement.peer
        is_ours = (peer, agreement.session) == (before, self.session.number)
        if self.is_stale(peer) or (agreement.is_resumed and not is_ours):
            link.abort(HandshakeError("the session ended before the handshake did", reason="stale"))
            return
        old, self._link = self._link, link
        link.owner = self
        if old is not None:
            old.close("replaced by a newer connection")
        self._cancel_attempts()
        self.state = State.OPEN
        self._is_writable = self._is_used = True
        self._opened_s = self._loop.time()
        self._complained = self.trouble = None
        if before is not None and before != peer:
            self._remote.system_over(before, "a newer life of the system is at its address")
        self._remote.greeted(peer)
        for outgoing in self.session.begin(agreement):
            self._remote.system_over(outgoing.envelope.target.address, "another life is at its address")
            if not outgoing.position:
                self._give_back(outgoing, UndeliverableReason.STALE)
        for outgoing, error in self.session.take_too_large():
            self._remote.refuse(outgoing.envelope, error)
        log.info("%s with %s", "resumed the session" if agreement.is_resumed else "new session", peer)
        for frame in self.session.again():
            link.send(frame)
        if not agreement.is_resumed:
            self._remote.watch_again(peer)
        self._flush()

    def link_frame(self, link: Link, frame: AnyFrame) -> None:
        """Handle a frame of the session."""
        peer = self.session.peer
        if link is not self._link or peer is None:
            return
        match frame:
            case Batch() | SystemMessage():
                for item in self.session.accept(frame):
                    self._remote.take_in(self.session, item)
                if isinstance(frame, SystemMessage):
                    link.send(SystemAck(self.session.delivered_position))
            case SystemAck(position):
                if self.session.acknowledged(position):
                    self._remote.acknowledged(peer)
            case Heartbeat(count):
                link.send(HeartbeatReply(count))
            case HeartbeatReply(count):
                self._remote.answered(peer, count)
            case Goodbye():
                self._remote.system_over(peer, "it has stopped")
            case _:
                raise ProtocolViolationError(f"{peer} sent {type(frame).__name__} in a session")

    def link_closed(self, link: Link, error: DrivetrainError) -> None:
        """The connection is lost: make a new one if there is something to send."""
        if link is not self._link:
            return
        self._link = None
        level = logging.WARNING if isinstance(error, PeerViolationError) else logging.INFO
        log.log(level, "lost the connection with %s: %s", self.session.peer, error.what)
        if self._loop.time() - self._opened_s >= self._remote.settings.max_backoff_ms / 1000:
            self._backoff.succeeded()
            self.state = State.IDLE
            if self.has_to_say:
                self.ensure_dialing()
        else:
            # It did not last: without a delay the two sides might open and lose connections for ever.
            self._pause(State.EXPECTING)

    def link_writable(self, link: Link, is_writable: bool) -> None:
        """Continue sending, or stop until the peer has caught up."""
        if link is self._link:
            self._is_writable = is_writable
            if is_writable:
                self._flush()

    # ---- the end of an incarnation

    def life_over(self, address: Address) -> None:
        """The incarnation is dead or replaced: end what belonged to it, keep the place."""
        if address == self.session.peer:
            link, self._link = self._link, None
            if link is not None:
                self.state = State.IDLE
                link.close("the system was declared dead")
            ended = self.session.end(address)
        else:
            ended = self.session.outbox.take_out(
                lambda one: not one.position and one.envelope.target.address == address
            )
        for outgoing in ended:
            self._give_back(outgoing, UndeliverableReason.UNREACHABLE)

    def retire(self, address: Address) -> None:
        """Never again accept this incarnation: another has replaced it, or it closed its session."""
        self._retired[address.incarnation] = None
        if len(self._retired) > _MOST_RETIRED:
            del self._retired[next(iter(self._retired))]

    def prepare_to_stop(self) -> None:
        """Make no further connections, and send what can be sent."""
        self._cancel_attempts()
        self._flush()

    @property
    def unsent_bytes(self) -> int:
        """The bytes that have not left this process."""
        buffered = self._link.buffered_bytes if self._link is not None else 0
        return buffered + (self.session.outbox.waiting_bytes if self._link is not None else 0)

    def close(self) -> None:
        """End the session, close the connection and return unsent messages as undeliverable."""
        link, self._link, self.state = self._link, None, State.IDLE
        if link is not None:
            link.send(Goodbye())
            link.close("this system stops")
        for outgoing in self.session.outbox.take_out(lambda one: not one.position):
            self._give_back(outgoing, UndeliverableReason.STOPPED)

    def is_unused(self) -> bool:
        """Whether nothing happened since the last call, nothing is to be sent and there is no connection."""
        was_used, self._is_used = self._is_used, False
        return not was_used and self.state is State.IDLE and not self.has_to_say

    # ---- internals

    def _cancel_attempts(self) -> None:
        dial, self._dial = self._dial, None
        if dial is not None and dial is not asyncio.current_task(self._loop):
            dial.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_back(self, outgoing: Outgoing, reason: UndeliverableReason) -> None:
        self._remote.system.undeliverable(outgoing.envelope, reason)

    def _complain(self, error: Exception) -> None:
        self.trouble = error
        what = error.what if isinstance(error, DrivetrainError) else "nobody answered in time"
        # Attempts continue while there is something to send; one line for each new reason is enough.
        if what != self._complained:
            self._complained = what
            log.warning("no connection to %s: %s", self.place, what)


def _order(address: Address) -> tuple[str, int, str]:
    return (address.host or "", address.port or 0, address.system)
