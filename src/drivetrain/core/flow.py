"""Flow control and loss detection between a channel's producer and its subscriber.

Problem: whoever produces faster than others consume must wait before memory or disk fill up; and nobody may
take a channel for complete because it looks complete: a lost entry at its end looks like a quiet producer.

Design: the producer has a `FlowSender` for each subscriber, the subscriber a `FlowReceiver`. They exchange
words, never messages: these go through the log. A sender knows what it has appended, from its own memory,
and not from the log that the other side reads. When what is unacknowledged has grown by a step, or nothing
has happened for a while, it says so (`AckRequest`: every entry that is not acknowledged, with its count and
checksum). The receiver compares that with the log as it sees it, and answers (`Ack`) after each batch that
it commits until it has all of it: how far it came, and how many messages its batches really took since a
place that both know. A word that is lost is said again; words of an older incarnation of the producer, or
life of the subscriber, change nothing.

A sender that starts again is made from the log and the position that the subscriber recorded, with a higher
incarnation. A receiver that starts again is made from its last committed batch, with a higher life; what
earlier lives had committed it cannot count any more and acknowledges on the word of its checkpoint, whose
batches were read against checksums.

Invariants, checked by `check()`:

1. While the window is full no batch may be appended: what is unacknowledged never exceeds the window by
   more than one batch. (An entry without messages is always taken: it moves the clock, and no disk fills up
   by it. So is the last batch of a producer that ends, which Spark does not know of.)
2. The acknowledged position never goes back, and never passes an entry of which fewer messages arrived than
   were sent.
3. Entries are numbered densely; their sums are what the window counts.
4. After a loss nothing is acknowledged until the subscriber begins a new life.

Called by: `drivetrain.spark.flow`, which has one of each for each channel; `tests/simulation`.

Source: Apache Gearpump's AckRequest and Ack, with what it lacks: losses at the tail, 64-bit counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from drivetrain.errors import InternalError, PeerViolationError

STEPS = 8
"""An acknowledgement is requested whenever another eighth of the window is unacknowledged."""


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """One entry as its producer appended it, or as its subscriber sees it; sizes in bytes."""

    number: int
    rows: int
    bytes: int
    checksum: int


class AckRequest(msgspec.Struct, frozen=True, array_like=True):
    """From producer to subscriber: what was sent from entry `start` on, as (messages, checksum) of each."""

    incarnation: int
    seq: int
    start: int
    entries: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The entry after the last one that it speaks of."""
        return self.start + len(self.entries)


class Ack(msgspec.Struct, frozen=True, array_like=True):
    """From subscriber to producer: committed batches took `received` messages of entries [start, position).

    What is before `start` an earlier life of the subscriber has committed.
    """

    incarnation: int
    seq: int
    life: int
    start: int
    position: int
    received: int


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Messages of the entries [start, end) are not what was sent; `expected` and `got` say it in words."""

    start: int
    end: int
    expected: str
    got: str


@dataclass(frozen=True, slots=True)
class Request:
    """Effect: send this to the subscriber."""

    request: AckRequest


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Effect: send this to the producer."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """Effect: the subscriber must go back to its last good position, and the clock must wait for it."""

    loss: Loss


SenderEffect: TypeAlias = Request | ReportLoss
ReceiverEffect: TypeAlias = Acknowledge | ReportLoss


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be unacknowledged: messages and bytes (0: any), and entries (at least 1)."""

    rows: int
    bytes: int
    entries: int

    def filled(self, rows: int, bytes: int, entries: int) -> float:
        """The share of the window that so much takes; from 1 on it is full."""
        shares = [entries / self.entries]
        if self.rows:
            shares.append(rows / self.rows)
        if self.bytes:
            shares.append(bytes / self.bytes)
        return max(shares)


class FlowSender:
    """The producer's end. `entries` are those of the log from `position` on; times are in ms.

    A request goes out after `idle_ms` without one although something is unacknowledged, and again after
    `retry_ms` without an answer.
    """

    def __init__(
        self,
        window: Window,
        *,
        incarnation: int,
        position: int,
        entries: Iterable[Sent] = (),
        now_ms: int = 0,
        idle_ms: int = 200,
        retry_ms: int = 1_000,
    ) -> None:
        self.window = window
        self.incarnation = incarnation
        self.position = position
        """The entries below it are acknowledged."""
        self.loss: Loss | None = None
        self.stale = 0
        """Words that came from an older incarnation or life."""
        self._idle_ms = idle_ms
        self._retry_ms = retry_ms
        self._known: deque[Sent] = (
            deque()
        )  # from the start of the newest request on: acks are compared with it
        self._end = position
        self._rows = 0
        self._bytes = 0
        self._largest = Sent(-1, 0, 0, 0)
        self._seq = 0
        self._requested: AckRequest | None = None
        self._requested_share = 0.0
        self._spoke_ms = now_ms
        self._life = -1
        for entry in entries:
            self._push(entry)
        self._largest = Sent(-1, self._rows, self._bytes, 0)  # what an earlier window allowed

    # -- what there is -------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._end

    @property
    def unacknowledged(self) -> tuple[int, int, int]:
        """Messages, bytes and entries that were sent and are not acknowledged."""
        return self._rows, self._bytes, self._end - self.position

    @property
    def is_full(self) -> bool:
        """Whether the producer must wait."""
        return self.window.filled(*self.unacknowledged) >= 1

    # -- events --------------------------------------------------------------------------------------

    def appended(self, entry: Sent, now_ms: int, *, last: bool = False) -> list[SenderEffect]:
        """An entry is in the log. Raises InternalError when the window was full, unless it is the `last`."""
        if entry.number != self._end:
            raise InternalError(f"flow invariant 3: entry {entry.number} follows entry {self._end - 1}")
        if entry.rows and self.is_full and not last:
            raise InternalError(
                f"flow invariant 1: a batch was appended though {self.unacknowledged} of {self.window} wait"
            )
        excess = self.is_full
        self._push(entry)
        if excess:
            self._largest = Sent(entry.number, self._rows, self._bytes, 0)
        share = self.window.filled(*self.unacknowledged)
        if share - self._requested_share >= 1 / STEPS:
            return self._request(now_ms)
        return []

    def acknowledged(self, ack: Ack, now_ms: int) -> list[SenderEffect]:
        """The subscriber has spoken. Raises PeerViolationError for what no subscriber can say."""
        if ack.incarnation != self.incarnation or ack.life < self._life:
            self.stale += 1
            return []
        if ack.seq > self._seq or not 0 <= ack.start <= ack.position <= self._end or ack.received < 0:
            raise PeerViolationError(
                "a subscriber acknowledged what was never sent",
                expected=f"at most request {self._seq} and entry {self._end}",
                got=repr(ack),
            )
        if ack.life > self._life:
            self._life, self.loss = ack.life, None
        first = self._known[0].number if self._known else self._end
        if self.loss is not None or ack.start < first or ack.position <= self.position:
            return []  # it waits for a new life; or it is old news: a newer request will be answered
        sent = sum(entry.rows for entry in self._known if ack.start <= entry.number < ack.position)
        if ack.received < sent:
            self.loss = Loss(ack.start, ack.position, f"{sent} messages", f"{ack.received} messages")
            return [ReportLoss(self.loss)]
        self._advance(ack.position)
        if self._requested is not None and ack.position >= self._requested.end:
            self._requested = None
        self._requested_share = min(self._requested_share, self.window.filled(*self.unacknowledged))
        self._spoke_ms = now_ms
        return []

    def ticked(self, now_ms: int) -> list[SenderEffect]:
        """Time has passed: ask for what nobody has acknowledged, again if need be."""
        if self.position == self._end:
            return []
        patience_ms = self._idle_ms if self._requested is None else self._retry_ms
        return self._request(now_ms) if now_ms - self._spoke_ms >= patience_ms else []

    # -- steps ---------------------------------------------------------------------------------------

    def _push(self, entry: Sent) -> None:
        if entry.number != self._end:
            raise InternalError(f"flow invariant 3: entry {entry.number} follows entry {self._end - 1}")
        self._known.append(entry)
        self._end += 1
        self._rows += entry.rows
        self._bytes += entry.bytes
        self._largest = Sent(
            entry.number, max(self._largest.rows, entry.rows), max(self._largest.bytes, entry.bytes), 0
        )

    def _advance(self, position: int) -> None:
        for entry in self._known:
            if self.position <= entry.number < position:
                self._rows -= entry.rows
                self._bytes -= entry.bytes
        self.position = position

    def _request(self, now_ms: int) -> list[SenderEffect]:
        while self._known and self._known[0].number < self.position:
            self._known.popleft()
        self._seq += 1
        entries = tuple((entry.rows, entry.checksum) for entry in self._known)
        self._requested = AckRequest(self.incarnation, self._seq, self.position, entries)
        self._requested_share = self.window.filled(*self.unacknowledged)
        self._spoke_ms = now_ms
        return [Request(self._requested)]

    def check(self) -> None:
        """Verify the invariants; raises InternalError naming the one that does not hold."""
        if not self.position <= self._end:
            raise InternalError(f"flow invariant 2: position {self.position} beyond {self._end}")
        numbers = [entry.number for entry in self._known]
        if (
            numbers != list(range(self._end - len(numbers), self._end))
            or len(numbers) < self._end - self.position
        ):
            raise InternalError(f"flow invariant 3: entries {numbers} before {self._end}")
        waiting = [entry for entry in self._known if entry.number >= self.position]
        if (sum(e.rows for e in waiting), sum(e.bytes for e in waiting)) != (self._rows, self._bytes):
            raise InternalError("flow invariant 3: the sums are not those of the entries")
        window = self.window
        if window.rows and self._rows >= window.rows + max(1, self._largest.rows):
            raise InternalError(f"flow invariant 1: {self._rows} messages wait, the window has {window.rows}")
        if window.bytes and self._bytes >= window.bytes + max(1, self._largest.bytes):
            raise InternalError(f"flow invariant 1: {self._bytes} bytes wait, the window has {window.bytes}")


class FlowReceiver:
    """The subscriber's end. `life` is higher than in its earlier lives; `position` is what they committed.

    An entry that the producer speaks of and that is not in the log is lost after `grace_ms`: file systems may
    show a file later to others than to the one who wrote it.
    """

    def __init__(self, *, life: int, position: int, grace_ms: int = 3_000) -> None:
        self.life = life
        self.position = position
        """The next entry that a batch takes; those below are committed."""
        self.loss: Loss | None = None
        self.stale = 0
        """Words that came from an older incarnation."""
        self._grace_ms = grace_ms
        self._received = 0
        self._counts: deque[tuple[int, int]] = deque([(position, 0)])  # how many were received up to there
        self._incarnation = -1
        self._seq = 0
        self._pending: AckRequest | None = None
        self._missing: tuple[int, int] | None = None  # the first missing entry, and since when

    # -- events --------------------------------------------------------------------------------------

    def taken(self, start: int, end: int, rows: int, logged: int) -> list[ReceiverEffect]:
        """A batch with the entries [start, end) is committed: it took so many messages, of `logged` ones."""
        if start != self.position or end < start or rows < 0:
            raise InternalError(f"a batch took entries {start} to {end} at position {self.position}")
        self.position = end
        self._received += rows
        if end > start:
            self._counts.append((end, self._received))
        if rows < logged and self.loss is None:
            # Not left to the producer: should this life end before it hears of it, the count is forgotten.
            return self._lost(Loss(start, end, f"{logged} messages", f"{rows} messages"))
        return self._answer()

    def requested(
        self, request: AckRequest, seen: Sequence[Sent | None], now_ms: int
    ) -> list[ReceiverEffect]:
        """The producer has spoken; `seen` is the log here, from `wanted(request)` on (None: not there)."""
        if (request.incarnation, request.seq) < (self._incarnation, self._seq):
            self.stale += 1
            return []
        self._incarnation, self._seq = request.incarnation, request.seq
        if self.loss is not None:
            return []
        self._pending = request
        # What is acknowledged is not asked for again.
        while len(self._counts) > 1 and self._counts[1][0] <= request.start:
            self._counts.popleft()
        found = self._compare(request, seen, now_ms)
        return self._answer() if found is None else found

    def wanted(self, request: AckRequest) -> range:
        """The entries that a request is to be compared with: those that no batch has verified yet."""
        return range(max(request.start, self.position), request.end)

    # -- steps ---------------------------------------------------------------------------------------

    def _compare(
        self, request: AckRequest, seen: Sequence[Sent | None], now_ms: int
    ) -> list[ReceiverEffect] | None:
        wanted = self.wanted(request)
        if len(seen) != len(wanted):
            raise InternalError(f"{len(seen)} entries were looked at, {len(wanted)} are wanted")
        for number, entry in zip(wanted, seen, strict=True):
            rows, checksum = request.entries[number - request.start]
            expected = f"{rows} messages, checksum {checksum:08x}"
            if entry is None:
                if self._missing is None or self._missing[0] != number:
                    self._missing = (number, now_ms)
                if now_ms - self._missing[1] >= self._grace_ms:
                    return self._lost(Loss(number, number + 1, expected, "the entry is missing"))
                return None
            if (entry.rows, entry.checksum) != (rows, checksum):
                got = f"{entry.rows} messages, checksum {entry.checksum:08x}"
                return self._lost(Loss(number, number + 1, expected, got))
        self._missing = None
        return None

    def _lost(self, loss: Loss) -> list[ReceiverEffect]:
        self.loss = loss
        return [ReportLoss(loss)]

    def _answer(self) -> list[ReceiverEffect]:
        request = self._pending
        if request is None or self.loss is not None or self.position < request.start:
            return []
        start, before = next(count for count in self._counts if count[0] >= min(request.start, self.position))
        ack = Ack(request.incarnation, request.seq, self.life, start, self.position, self._received - before)
        if self.position >= request.end:
            self._pending = None
        return [Acknowledge(ack)]

    def check(self) -> None:
        """Verify what must hold of the counts; raises InternalError."""
        if self._counts[-1] != (self.position, self._received) and self._counts[-1][0] != self.position:
            raise InternalError(f"the counts end at {self._counts[-1]}, the position is {self.position}")
        if list(self._counts) != sorted(self._counts):
            raise InternalError(f"the counts of a subscriber go back: {list(self._counts)}")
