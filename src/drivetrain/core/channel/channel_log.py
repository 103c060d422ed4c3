"""The log of a channel: which entries exist, which may follow, which may be deleted.

Problem: a fragment passes its results to others across crashes and replays. A producer may write the same
batch twice, continue after it was replaced, or stop between two files; a subscriber must read every message
once, with a clock that only moves forward.

Design: a channel is a sequence of numbered entries. An entry names the segment files of one batch and holds
the producer's clock after it. This module decides and validates; the store
(`drivetrain.runtime.channel.store`) handles the files. Everything here is a value: no I/O.

Positions count like slices: a reader at position `n` has passed the entries below `n` and reads
entry `n` next.

Invariants:

1. Append is idempotent on (fragment, batch id): a fragment's batch ids increase along the log, and
   a batch at or below the last one adds nothing.
2. Entry numbers are dense: entry `n + 1` follows entry `n`.
3. An entry's clock is never below that of the entry before it.
4. A segment may be deleted only when every subscriber and the oldest restorable checkpoint have
   passed its entry. The last entry always stays: a restarted producer continues from it.
5. The incarnation never decreases: appends of an older incarnation are refused.

Called by: the channel store, to validate appends and trims; flow control and checkpoints.

Source: the offset and timestamp index of Apache Kafka's log; the replayable source-end message
store, and the incarnations of Apache Gearpump.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NewType

import msgspec

from drivetrain.core.checkpoint.transaction import Command
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.errors import DrivetrainError, InternalError, PeerViolationError, UserError

FragmentId = NewType("FragmentId", str)
SubscriberId = NewType("SubscriberId", str)

NO_BATCH = -1
"""The batch id of an entry whose producer has not appended a batch yet."""


class Segment(msgspec.Struct, frozen=True):
    """One immutable file of messages: `path` is relative to the channel; timestamps are inclusive."""

    path: str
    rows: int
    bytes: int
    crc32: int
    min_ts_ms: int
    max_ts_ms: int


class Entry(msgspec.Struct, frozen=True):
    """One step of a channel: a batch's segments and the producer's clock after it.

    `batch_id` is the producer's last batch at or before this entry, so the last entry alone determines which
    batches a replay skips. `clock_ms` is `NO_CLOCK_MS` while the producer has no clock. `barrier` is a
    PREPARE: the messages before it belong to that checkpoint. Such an entry has no messages and leaves the
    clock unchanged. `dropped` counts the messages that were deleted because another application read the
    channel too slowly.
    """

    number: int
    fragment: str
    incarnation: int
    batch_id: int
    segments: tuple[Segment, ...]
    clock_ms: int
    barrier: Command | None = None
    dropped: int = 0

    @property
    def rows(self) -> int:
        """How many messages the entry holds."""
        return sum(segment.rows for segment in self.segments)

    @property
    def bytes(self) -> int:
        """How many bytes its segments take."""
        return sum(segment.bytes for segment in self.segments)

    def may_hold(self, ts_ms: int) -> bool:
        """True if a message with a timestamp at or after `ts_ms` can be in the entry."""
        return any(segment.max_ts_ms >= ts_ms for segment in self.segments)


class StaleIncarnationError(PeerViolationError):
    """An older incarnation of the producer tried to append; a newer one has taken over."""

    code = "stale-incarnation"


class ClockMovedBackError(DrivetrainError):
    """A producer's clock was below the clock that its channel already holds."""

    code = "clock-moved-back"
    exit_code = InternalError.exit_code


class TrimmedError(UserError):
    """The requested entry is gone: every known subscriber had passed it, and it was trimmed."""

    code = "channel-trimmed"


class ChannelLog:
    """The state of one channel: its retained entries, in order.

    It may start at any number (earlier entries were trimmed, or were not needed). `entries` must
    continue one another; see the module's invariants for what else holds.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = []
        self._highest_ts_ms: list[int] = []  # prefix maxima, so that a timestamp search can bisect
        self._last_batch: dict[str, int] = {}
        for entry in entries:
            self._validate(entry)
            self._push(entry)

    # -- the entries ----------------------------------------------------------------------------

    @property
    def entries(self) -> Sequence[Entry]:
        """The retained entries, oldest first."""
        return self._entries

    @property
    def start(self) -> int:
        """The number of the oldest retained entry; equals `end` when the log is empty."""
        return self._entries[0].number if self._entries else 0

    @property
    def end(self) -> int:
        """The number that the next entry will get."""
        return self._entries[-1].number + 1 if self._entries else 0

    @property
    def last(self) -> Entry | None:
        """The newest entry, or None."""
        return self._entries[-1] if self._entries else None

    def last_batch(self, fragment: FragmentId) -> int:
        """The newest batch id of that producer, or `NO_BATCH`."""
        return self._last_batch.get(fragment, NO_BATCH)

    def since(self, ts_ms: int) -> list[Entry]:
        """The retained entries that can hold a message with a timestamp at or after `ts_ms`."""
        first = bisect_left(self._highest_ts_ms, ts_ms)
        return [entry for entry in self._entries[first:] if entry.may_hold(ts_ms)]

    # -- appending -----------------------------------------------------------------------------

    def next_entry(
        self,
        *,
        fragment: FragmentId,
        incarnation: int,
        batch_id: int | None,
        segments: Sequence[Segment],
        clock_ms: int,
        barrier: Command | None = None,
    ) -> Entry | None:
        """The entry that this append would add, or None if it adds nothing; changes nothing.

        A batch id at or below the fragment's last one is a replay. With `batch_id` None the append only moves
        the clock, or is a barrier: it takes no segment, and adds nothing if neither clock nor barrier is new.
        Raises StaleIncarnationError, ClockMovedBackError, or InternalError for segments without a batch and
        for a barrier with anything else.
        """
        last = self.last
        if last is not None and incarnation < last.incarnation:
            raise StaleIncarnationError(
                "an append from an older incarnation of the producer was refused",
                where=f"channel of fragment {fragment}",
                expected=f"incarnation {last.incarnation} or later",
                got=str(incarnation),
                remedy="stop the older process: another one has taken over this fragment",
            )
        if batch_id is not None and batch_id <= self.last_batch(fragment):
            return None
        known_ms = NO_CLOCK_MS if last is None else last.clock_ms
        if barrier is not None and (batch_id is not None or clock_ms != known_ms):
            raise InternalError("a barrier was appended with something else", where=fragment)
        if batch_id is None:
            if segments:
                raise InternalError("segments were appended without a batch id", where=fragment)
            if last is not None and clock_ms == last.clock_ms and barrier in (None, last.barrier):
                return None
        entry = Entry(
            number=self.end,
            fragment=fragment,
            incarnation=incarnation,
            batch_id=self.last_batch(fragment) if batch_id is None else batch_id,
            segments=tuple(segments),
            clock_ms=clock_ms,
            barrier=barrier,
        )
        self._validate(entry)
        return entry

    def add(self, entry: Entry) -> None:
        """Add an entry that is durable; raises, and changes nothing, if it cannot follow."""
        self._validate(entry)
        self._push(entry)

    # -- trimming ------------------------------------------------------------------------------

    def trimmable(
        self, subscribers: Mapping[SubscriberId, int], checkpoint: int | None = None
    ) -> list[Entry]:
        """The entries that all subscribers have passed, oldest first (invariant 4).

        `subscribers` maps each to its position; `checkpoint` is the position of the oldest restorable
        checkpoint, None if there is none. Without any subscriber nothing may be deleted: the first one has
        not read anything yet.
        """
        if not subscribers:
            return []
        floor = min([*subscribers.values(), self.end - 1])
        if checkpoint is not None:
            floor = min(floor, checkpoint)
        return self._entries[: max(0, floor - self.start)]

    def drop(self, entries: Sequence[Entry]) -> None:
        """Forget entries that were trimmed; they must be the oldest, and not all."""
        if list(entries) != self._entries[: len(entries)] or len(entries) >= len(self._entries) > 0:
            raise InternalError("only the oldest entries of a channel may be dropped, and never the last")
        del self._entries[: len(entries)]
        self._highest_ts_ms = _prefix_maxima(self._entries)

    # -- invariants ---------------------------------------------------------------------------

    def check(self) -> None:
        """Verify the invariants over the whole log; raises InternalError with the entries at fault."""
        last_batch: dict[str, int] = {}
        before: Entry | None = None
        for entry in self._entries:
            if before is not None:
                if entry.number != before.number + 1:
                    self._broken("2: numbers are dense", before, entry)
                if entry.clock_ms < before.clock_ms:
                    self._broken("3: the clock never decreases", before, entry)
                if entry.incarnation < before.incarnation:
                    self._broken("5: the incarnation never decreases", before, entry)
            known = last_batch.get(entry.fragment, NO_BATCH)
            if entry.batch_id < known or (entry.segments and entry.batch_id == known):
                self._broken("1: a fragment's batch ids increase", before or entry, entry)
            last_batch[entry.fragment] = entry.batch_id
            before = entry
        if self._highest_ts_ms != _prefix_maxima(self._entries):
            raise InternalError("the timestamp index of a channel does not agree with its entries")

    def _validate(self, entry: Entry) -> None:
        last = self.last
        if entry.clock_ms < (entry.clock_ms if last is None else last.clock_ms):
            raise ClockMovedBackError(
                "the clock of a channel cannot move back",
                where=f"channel of fragment {entry.fragment}, entry {entry.number}",
                expected=f"{last.clock_ms if last else None} ms or later",
                got=f"{entry.clock_ms} ms",
                remedy="a producer must restore its clock from its checkpoint before it appends",
            )
        if last is None:
            return
        if entry.number != last.number + 1:
            self._broken("2: numbers are dense", last, entry)
        if entry.incarnation < last.incarnation:
            self._broken("5: the incarnation never decreases", last, entry)
        known = self._last_batch.get(entry.fragment, NO_BATCH)
        if entry.batch_id < known or (entry.segments and entry.batch_id == known):
            self._broken("1: a fragment's batch ids increase", last, entry)

    def _push(self, entry: Entry) -> None:
        self._entries.append(entry)
        own = _highest_ts_ms(entry)
        self._highest_ts_ms.append(max(own, self._highest_ts_ms[-1]) if self._highest_ts_ms else own)
        self._last_batch[entry.fragment] = entry.batch_id

    def _broken(self, invariant: str, before: Entry, entry: Entry) -> None:
        raise InternalError(f"channel invariant {invariant}", history=[repr(before), repr(entry)])


_NO_TS_MS = -(2**63)


def _highest_ts_ms(entry: Entry) -> int:
    return max((segment.max_ts_ms for segment in entry.segments), default=_NO_TS_MS)


def _prefix_maxima(entries: Sequence[Entry]) -> list[int]:
    maxima: list[int] = []
    highest = _NO_TS_MS
    for entry in entries:
        highest = max(highest, _highest_ts_ms(entry))
        maxima.append(highest)
    return maxima
