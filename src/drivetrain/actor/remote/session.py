"""A session: the numbers that keep messages unique and in order, whatever happens to the connections.

Problem: a connection breaks and another replaces it; frames may be lost, duplicated or reordered on the way.
The receiver must still see each message at most once, in order, and every `SystemMessage` message.

Design: plain data without input and output. Outgoing messages go through the `Outbox`, which numbers
frames; `SystemMessage` messages also stay with the `ReliableSender` until acknowledged. An incoming frame
whose number is not greater than all before is dropped: at most once, never out of order; `SystemMessage`
messages follow their own positions. A new session restarts all numbers.

Invariants:
1. Frames that are accepted have increasing numbers within a session.
2. `SystemMessage` messages are accepted exactly once per session and in order.
3. A message of an actor is never accepted after a `SystemMessage` message (its `Terminated`) that was sent
   later.

Called by `Association`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Raw

from drivetrain.actor.message import Message
from drivetrain.actor.path import ANY_INCARNATION, ActorPath, Address
from drivetrain.actor.provider import Envelope
from drivetrain.actor.remote.handshake import Agreement
from drivetrain.actor.remote.paths import PathReader, PathWriter
from drivetrain.actor.remote.reliable import ReliableReceiver, ReliableSender, Verdict
from drivetrain.actor.remote.remote_errors import MessageTooLargeError
from drivetrain.actor.remote.unsent_messages import BATCH_BYTES, Outbox, Outgoing
from drivetrain.actor.remote.wire import Batch, Item, SystemMessage

_ITEM_OVERHEAD_BYTES: Final = 20


class Session:
    """The session with the system at one place; `peer` is its incarnation, once known."""

    def __init__(self, me: Address, place: Address, limit_bytes: int, most: int, most_bytes: int) -> None:
        self._limit: Final = limit_bytes
        self._send_limit = limit_bytes
        self._mine: Final = PathReader(me)
        self._sender_texts: Final = PathWriter(me)
        self._theirs = PathReader(place)
        self._target_texts = PathWriter(place)
        self._system: Final[ReliableSender[Outgoing]] = ReliableSender()
        self._received: Final = ReliableReceiver()
        self._last_number = 0
        self.outbox: Final = Outbox(most, most_bytes)
        self.peer: Address | None = None
        self.number = 0
        self.dropped_frames = 0

    # ---- sessions

    def begin(self, agreement: Agreement) -> list[Outgoing]:
        """Continue the agreed session, or start a new one.

        Returns the waiting messages for incarnations other than the peer's; the ordinary ones among
        them are no longer in the outbox.
        """
        if self.peer != agreement.peer:
            self.peer = agreement.peer
            self._theirs, self._target_texts = PathReader(agreement.peer), PathWriter(agreement.peer)
        self._send_limit = agreement.send_limit_bytes
        self.outbox.batch_bytes = min(BATCH_BYTES, self._send_limit)
        self.number = agreement.session
        if agreement.is_resumed:
            # `SystemMessage` messages stay, because positions must stay dense; the peer ignores those for
            # others.
            strays = self.outbox.take_out(lambda one: not one.position and not self.is_for(one))
            return strays + [one for _, one in self._system.unacknowledged() if not self.is_for(one)]
        strays = self.outbox.take_out(lambda one: not self.is_for(one))
        self._last_number = 0
        self.outbox.begin_session()
        self._received.begin_session()
        self._system.begin_session(self.is_for)
        for position, outgoing in self._system.unacknowledged():
            outgoing.position = position
        return strays

    def take_too_large(self) -> list[tuple[Outgoing, MessageTooLargeError]]:
        """Remove messages that were queued before the peer's smaller limit was known."""
        return [
            (one, self._too_large(one.envelope, one.item[2], one.size_bytes))
            for one in self.outbox.take_out(
                lambda one: not one.position and one.size_bytes > self._send_limit
            )
        ]

    def forget_system(self) -> None:
        """Give up on the `SystemMessage` messages, and with them on the session."""
        self.number = 0
        self._system.clear()
        self.outbox.take_out(lambda one: one.position > 0)

    def end(self, address: Address) -> list[Outgoing]:
        """Forget the session, whose peer `address` is gone; return the ordinary messages for it."""
        self.forget_system()
        return self.outbox.take_out(lambda one: one.envelope.target.address == address)

    # ---- outgoing

    def prepare(self, envelope: Envelope, tag: str, body: bytes) -> Outgoing:
        """The message in its form on the wire; raises `MessageTooLargeError`."""
        target = self._target_texts.write(envelope.target)
        sender = None if envelope.sender is None else self._sender_texts.write(envelope.sender)
        size = len(body) + len(target) + len(tag) + (len(sender) if sender else 0) + _ITEM_OVERHEAD_BYTES
        if size > self._send_limit:
            raise self._too_large(envelope, tag, size)
        return Outgoing(envelope, (target, sender, tag, Raw(body)), size)

    def _too_large(self, envelope: Envelope, tag: str, size: int) -> MessageTooLargeError:
        return MessageTooLargeError(f"{tag} to {envelope.target}", size, self._send_limit)

    def put(self, outgoing: Outgoing) -> bool:
        """Queue an ordinary message; False when the queue is full."""
        return self.outbox.put(outgoing)

    def put_system(self, outgoing: Outgoing) -> None:
        """Queue a message that must arrive."""
        outgoing.position = self._system.add(outgoing)
        self.outbox.put(outgoing)

    def again(self) -> Iterator[SystemMessage]:
        """The `SystemMessage` messages that were sent and not acknowledged, as new frames."""
        for position, outgoing in self._system.unacknowledged():
            if not outgoing.is_waiting:
                yield SystemMessage(self.outbox.next_number(), position, outgoing.item)

    def acknowledged(self, position: int) -> bool:
        """The peer has all `SystemMessage` messages up to `position`; returns whether that is new."""
        return self._system.acknowledged(position)

    @property
    def has_unacknowledged(self) -> bool:
        """Whether a `SystemMessage` message still has to arrive."""
        return len(self._system) > 0

    # ---- incoming

    def accept(self, frame: Batch | SystemMessage) -> list[Item]:
        """The messages of the frame to deliver."""
        if isinstance(frame, Batch):
            if frame.number <= self._last_number:
                self.dropped_frames += 1
                return []
            self._last_number = frame.number
            return frame.items
        self._last_number = max(self._last_number, frame.number)
        return [frame.item] if self._received.receive(frame.position) is Verdict.DELIVER else []

    @property
    def delivered_position(self) -> int:
        """The position to acknowledge."""
        return self._received.delivered

    def read_sender(self, text: str) -> ActorPath:
        """The path of a sender; raises `InvalidPathError`."""
        return self._theirs.read(text)

    def read(self, item: Item, message: Message) -> Envelope:
        """The envelope of an item whose message was decoded; raises `InvalidPathError`."""
        target, sender, _, _ = item
        return Envelope(
            self._mine.read(target), message, None if sender is None else self._theirs.read(sender)
        )

    def is_for(self, outgoing: Outgoing) -> bool:
        """Whether the message is for the peer's current incarnation, or for any."""
        wanted = outgoing.envelope.target.address
        return wanted.incarnation == ANY_INCARNATION or wanted == self.peer
