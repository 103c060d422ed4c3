"""The ends of channels that live in this process, for the threads that append, read and wait.

Problem: the unacknowledged messages decide whether a query may begin its next batch. Spark's thread needs the
answer at once, but the other end of the channel reports through actors, perhaps from another process.

Design: one book per process, guarded by a lock. It has a sender (`core.flow.flow`) and an account of the kept
entries (`core.channel.retention`) for each channel that a fragment here writes, and a receiver for each that
one reads. Queries report their progress to it. It sends flow messages with `send` and takes incoming ones in
`receive`. Messages before `send` is set are lost, which the protocol allows for. Time comes from a monotonic
clock; the wall clock only gives the age of entries that an earlier process stored.

Invariants:

1. A batch begins only when no window of the fragment's channels is full and none of them keeps too much.
   Exempt are channels that have ended, and those whose subscriber has left, has ended, or is still catching
   up with messages from before the channel.
2. A waiting thread returns as soon as it is asked to give up.
3. An end of a channel is that of the fragment's newest attempt: it is replaced when a query starts.

Called by: `query_flow` (both ends), `flow_actor` (messages and time).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from drivetrain.config import Config
from drivetrain.config.catalog import channel as keys
from drivetrain.config.units import show_duration_ms, show_size_bytes
from drivetrain.core.channel.channel_log import SubscriberId
from drivetrain.core.channel.retention import Limits, Retention
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.flow.flow import (
    UNREADABLE,
    FlowMessage,
    Life,
    Loss,
    ReceiverEffect,
    ReportLoss,
    SendAck,
    SendAckRequest,
    SenderEffect,
    SentEntry,
    Window,
)
from drivetrain.core.flow.flow_receiver import FlowReceiver
from drivetrain.core.flow.flow_sender import FlowSender
from drivetrain.core.plan.plan import PlannedChannel
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.flow.sent_entries import readable, sent_of

_LOOK_S = 0.1


class ChannelFullError(UnavailableError):
    """A channel keeps as much as it may, unread entries included, and is configured to fail then."""

    code = "channel-full"


@dataclass(frozen=True)
class Unacknowledged:
    """A producer's unacknowledged messages in one channel, its window, and for how long it has waited."""

    messages: int
    bytes: int
    window_messages: int
    window_bytes: int
    blocked_ms: int


@dataclass
class _Producing:
    channel: PlannedChannel
    store: ChannelStore
    sender: FlowSender
    retention: Retention
    has_ended: bool = False
    """Whether the producer never waits: the log contains the final clock, or no subscriber reads it any
    more."""
    is_catching_up: bool = False
    """Whether the subscriber has yet to read messages from before the channel: the producer does not wait."""
    blocked_s: float | None = None
    blocked_before_s: float = 0.0
    """How long it was blocked before, all waits together."""

    def go_on(self, now_s: float) -> None:
        """A batch does not have to wait for it any more."""
        if self.blocked_s is not None:
            self.blocked_before_s += now_s - self.blocked_s
        self.blocked_s = None


@dataclass
class _Subscribing:
    channel: PlannedChannel
    store: ChannelStore
    receiver: FlowReceiver
    losses: list[Loss] = field(default_factory=list)


class FlowBook:
    """The channels of one process; `config` has the windows and limits. Safe to use from any thread.

    `epoch` is that of the application master, 0 in an embedded run. `wait_room` waits in real time, even if
    `monotonic_s` does not follow it.
    """

    def __init__(
        self,
        config: Config,
        *,
        epoch: int = 0,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.window = Window(
            config[keys.WINDOW_MESSAGES], config[keys.WINDOW_BYTES], config[keys.WINDOW_BATCHES]
        )
        """How much may be unacknowledged in each channel."""
        self.keep_bytes = config[keys.OUTSIDE_BYTES]
        """How much is kept unread for each other application that reads a channel."""
        self.notices: deque[str] = deque()
        """Notices about other applications that read; the code that shows a notice removes it."""
        self._limits = Limits(config[keys.MAX_BYTES], config[keys.MAX_AGE])
        self._fails = config[keys.WHEN_FULL] == "fail"
        self._news = threading.Condition()
        self._producing: dict[str, _Producing] = {}
        self._subscribing: dict[str, _Subscribing] = {}
        self._epoch = epoch
        self._attempts: dict[str, int] = {}
        self._started = 0
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s
        self.send: Callable[[FlowMessage], None] = _drop
        """Sends a flow message to another fragment; called with the lock held, so it must return at once."""

    # -- the producer's end --------------------------------------------------------------------------

    def produces(self, channel: PlannedChannel, store: ChannelStore) -> None:
        """A query that writes `channel` starts; it continues from the log and the recorded positions."""
        start, end = store.start(), store.length()
        retention = Retention(self._limits, start)
        entries: list[SentEntry] = []
        has_ended = False
        for number in range(start, end):
            entry = readable(store, number)
            has_ended = has_ended or (entry is not None and entry.clock_ms >= FINAL_CLOCK_MS)
            sent = SentEntry(number, 0, 0, UNREADABLE) if entry is None else sent_of(entry)
            entries.append(sent)
            age_ms = 0 if entry is None else self._age_ms(store.stored_ms(number))
            retention.added(sent.bytes, self._now_ms() - age_ms, is_barrier=sent.is_barrier)
        position = store.positions().get(SubscriberId(channel.consumer_fragment), start)
        position = min(max(position, start), end)
        sender = FlowSender(
            self.window,
            incarnation=store.incarnation,
            position=position,
            entries=entries[position - start :],
            now_ms=self._now_ms(),
        )
        with self._news:
            made = _Producing(channel, store, sender, retention, has_ended)
            made.is_catching_up = position < ChannelBeginning(store.uri).former
            self._producing[channel.id] = made

    def appended(self, channel: str, *, last: bool = False) -> None:
        """The query has appended to the channel; `last` when nothing will follow."""
        with self._news:
            end = self._producing.get(channel)
            if end is None:
                return  # it was dropped at this moment
            now_ms = self._now_ms()
            for number in range(end.sender.end, end.store.length()):
                entry = end.store.entry(number)
                sent = sent_of(entry)
                end.has_ended = end.has_ended or entry.clock_ms >= FINAL_CLOCK_MS
                end.retention.added(sent.bytes, now_ms, is_barrier=sent.is_barrier)
                self._send(end, end.sender.appended(sent, now_ms, last=last or end.is_catching_up))

    def trimmed(self, channel: str) -> None:
        """Entries of the channel were deleted."""
        with self._news:
            end = self._producing.get(channel)
            if end is None:
                return
            end.retention.trimmed(min(end.store.start(), end.retention.end))
            self._news.notify_all()

    def drops(self, channel: str) -> None:
        """The query does not write the channel any more: another version of its fragment runs."""
        with self._news:
            self._producing.pop(channel, None)
            self._news.notify_all()

    def subscriber_left(self, channel: str) -> None:
        """The subscriber of a channel is gone, or is about to go: its producer no longer waits for it."""
        with self._news:
            end = self._producing.get(channel)
            if end is not None:
                end.has_ended = True
            self._news.notify_all()

    def wait_room(
        self,
        channels: Iterable[str],
        given_up: Callable[[], bool],
        blocked_by: Callable[[str | None], None],
    ) -> None:
        """Wait until a batch may begin or `given_up()` is true; `blocked_by` gets the awaited subscriber.

        Raises ChannelFullError instead of waiting if a channel keeps too much and is configured to fail then.
        """
        ids = list(channels)
        with self._news:
            while (full := self.full(ids)) is not None and not given_up():
                blocked_by(full)
                self._news.wait(_LOOK_S)
            for id in ids:
                self._producing[id].go_on(self._monotonic_s())
        blocked_by(None)

    def full(self, channels: Iterable[str]) -> str | None:
        """The first subscriber that a batch must wait for; None: it may begin. Raises like `wait_room`."""
        found = None
        with self._news:
            for id in channels:
                end = self._producing[id]
                excess = end.retention.excess(end.sender.position, self._now_ms())
                is_full = end.sender.is_full
                end.is_catching_up = end.is_catching_up and (excess is not None or is_full)
                if end.is_catching_up:
                    continue
                if excess is not None and self._fails and not end.has_ended:
                    raise self._too_much(end, excess)
                if end.has_ended or (excess is None and not is_full):
                    end.go_on(self._monotonic_s())
                    continue
                end.blocked_s = end.blocked_s or self._monotonic_s()
                found = found or end.channel.consumer_fragment
        return found

    def unacknowledged(self, channel: str) -> Unacknowledged | None:
        """The unacknowledged messages of a channel that a fragment here writes; None for other channels."""
        with self._news:
            end = self._producing.get(channel)
            if end is None:
                return None
            messages, bytes_, _ = end.sender.unacknowledged
            since_s = end.blocked_s
        blocked_ms = 0 if since_s is None else max(1, int((self._monotonic_s() - since_s) * 1000))
        return Unacknowledged(messages, bytes_, self.window.rows, self.window.bytes, blocked_ms)

    def blocked_ms(self, channel: str) -> tuple[int, int]:
        """How long, in ms, batches of the producer have waited for a channel since the query began, and how
        long the current one has waited (0: not at all); (0, 0) for a channel that no fragment here writes."""
        with self._news:
            end = self._producing.get(channel)
            if end is None:
                return 0, 0
            now_s = 0.0 if end.blocked_s is None else self._monotonic_s() - end.blocked_s
            return int((end.blocked_before_s + now_s) * 1000), int(now_s * 1000)

    def _too_much(self, end: _Producing, excess: str) -> ChannelFullError:
        messages, size, entries = end.sender.unacknowledged
        limits = []
        if self._limits.bytes:
            limits.append(f"at most {show_size_bytes(self._limits.bytes)}")
        if self._limits.age_ms:
            limits.append(f"nothing unread for {show_duration_ms(self._limits.age_ms)}")
        return ChannelFullError(
            f"the channel is full: fragment {end.channel.consumer_fragment} does not keep up",
            where=f"channel {end.channel.id} of fragment {end.channel.producer_fragment}",
            expected=" and ".join(limits),
            got=f"{excess}; unread: {messages} messages, {size} bytes in {entries} batches",
            remedy="find out why that fragment is slow or does not run; raise channel.max-bytes or "
            'channel.max-age, or set channel.when-full to "block"',
        )

    # -- the subscriber's end ------------------------------------------------------------------------

    def attempted(self, fragment: str, attempt: int) -> None:
        """An attempt of a fragment begins here; its subscriptions supersede those of earlier attempts."""
        with self._news:
            self._attempts[fragment] = attempt

    def subscribes(
        self, channel: PlannedChannel, store: ChannelStore, position: int, *, trusts: bool
    ) -> None:
        """A query that reads `channel` starts; its batches have committed the entries below `position`.

        `trusts`: the fragment may leave out messages, so it does not compare counts.
        """
        with self._news:
            # Greater than that of any earlier subscription, in any process: no two have the same attempt.
            life: Life = (self._epoch, self._attempts.get(channel.consumer_fragment, 0), self._started)
            self._started += 1
            receiver = FlowReceiver(life=life, position=position, trusts=trusts)
            self._subscribing[channel.id] = _Subscribing(channel, store, receiver)

    def taken(self, channel: str, start: int, end: int, messages: int | None) -> None:
        """A committed batch took the entries [start, end), with so many messages (None: unknown)."""
        if start == end:
            return
        here = self._subscribing[channel]
        logged = sum(entry.rows for entry in here.store.entries(start, end))
        rows = logged if messages is None else min(messages, logged)  # a batch may read its input twice
        with self._news:
            if start != here.receiver.position:
                return  # Spark's reports have a gap: the next subscription starts a new count
            self._answer(here, here.receiver.taken(start, end, rows, logged))

    def loss(self, channel: str) -> Loss | None:
        """A loss detected in a channel read here."""
        with self._news:
            end = self._subscribing.get(channel)
            return end.losses[0] if end is not None and end.losses else None

    # -- flow messages -------------------------------------------------------------------------------

    def is_local(self, message: FlowMessage) -> bool:
        """Whether the message is for a fragment of this process."""
        with self._news:
            producing, subscribing = (
                self._producing.get(message.channel),
                self._subscribing.get(message.channel),
            )
            if message.ack is not None:
                return producing is not None and producing.channel.producer_fragment == message.to
            return subscribing is not None and subscribing.channel.consumer_fragment == message.to

    def receive(self, message: FlowMessage) -> None:
        """Handle a message from the other end of a channel. Raises PeerViolationError if it is impossible."""
        with self._news:
            producing, subscribing = (
                self._producing.get(message.channel),
                self._subscribing.get(message.channel),
            )
        if message.ack is not None and producing is not None:
            with self._news:
                self._send(producing, producing.sender.acknowledged(message.ack, self._now_ms()))
                self._news.notify_all()
        if message.request is not None and subscribing is not None:
            receiver, store = subscribing.receiver, subscribing.store
            with self._news:
                wanted = receiver.wanted(message.request)
            seen = {number: readable(store, number) for number in wanted}  # without the lock: it reads files
            with self._news:
                entries = [
                    None if (entry := seen.get(number)) is None else sent_of(entry)
                    for number in receiver.wanted(message.request)
                ]
                self._answer(subscribing, receiver.requested(message.request, entries, self._now_ms()))
        if message.loss is not None and subscribing is not None:
            with self._news:
                subscribing.losses.append(message.loss)

    def tick(self) -> None:
        """Time has passed: ask again for missing acknowledgements."""
        with self._news:
            for end in self._producing.values():
                self._send(end, end.sender.ticked(self._now_ms()))

    def _now_ms(self) -> int:
        return int(self._monotonic_s() * 1000)

    def _age_ms(self, stored_ms: int) -> int:
        """How old a file is; 0 if it seems to be from the future because the wall clock was set back."""
        return max(0, int(self._wall_s() * 1000) - stored_ms)

    def _send(self, end: _Producing, effects: list[SenderEffect]) -> None:
        for effect in effects:
            to = end.channel.consumer_fragment
            if isinstance(effect, SendAckRequest):
                self.send(FlowMessage(end.channel.id, to, request=effect.request))
            else:
                self.send(FlowMessage(end.channel.id, to, loss=effect.loss))

    def _answer(self, end: _Subscribing, effects: list[ReceiverEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendAck):
                self.send(FlowMessage(end.channel.id, end.channel.producer_fragment, ack=effect.ack))
            elif isinstance(effect, ReportLoss):
                end.losses.append(effect.loss)


def _drop(message: FlowMessage) -> None:
    """Until `send` is set, messages are lost; the protocol repeats them."""
