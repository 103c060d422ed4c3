"""Repairs what a channel has lost: segments that are damaged or missing, and entries.

Problem: a subscriber finds that messages in the log cannot be read. It must get exactly those messages,
without stopping the producer, without any reader seeing a message twice, and without a new loss when the
repair is killed.

Design: the damaged entries of a channel are found by reading every entry that the subscriber has not
committed. Each is replaced as a whole: its batch runs once more, separately from the producer
(`rerun_batch`), its messages go to new segments in a folder of the subscriber's, and an entry with the same
number, batch and clock replaces the old one in one step. When the input of that batch is damaged itself, that
is repaired first, and so on up to the sources. An entry that cannot be read is rebuilt from those around it
(`core.channel.lost_entries`), with the clock of the one before it, which is never too late. The end of the
log is lost if the producer's checkpoint has committed more batches than the log has.

The store of a source that cannot replay cannot be repaired: that is an error, as it is when Spark has deleted
the batch. An application that runs at most once leaves out what is lost, and counts it.

What if we die here: before an entry is replaced, only files that no entry names have changed; after it
the entry is whole. Its loss was recorded as open before, and the next repair closes it.

Invariants:

1. An entry that can be read, with all its segments, is never changed.
2. A replaced entry keeps number, producer, incarnation, batch, barrier and clock.
3. One repair at a time works on a channel, across all processes: an advisory lock.

Called by `recovery`. Source: the loss detection and replay of Apache Gearpump, done from the producer's
checkpoint instead of from its source.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import msgspec

from drivetrain.core.channel.channel_log import NO_BATCH, Entry, FragmentId, Segment, TrimmedError
from drivetrain.core.channel.lost_entries import lost_batches
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.plan.plan import PlannedChannel
from drivetrain.errors import UserError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.loss_record import LossRecord, loss_record, record
from drivetrain.runtime.channel.segments import REMADE, MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.state.state_partitions import is_division
from drivetrain.spark.batch.query_engine import QueryEngine
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.trunk import tells_only_at_end
from drivetrain.spark.repair.damage import Damage, rebuilt_up_to_the_beginning, unreadable
from drivetrain.spark.repair.outside_damage import outside_channel, repaired_by_producer
from drivetrain.spark.repair.rerun_batch import BatchRerun, LostForGoodError
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.session.offset_log import batch_numbers, committed

log = logging.getLogger("drivetrain.losses")

ContextOf: TypeAlias = Callable[[str, int], CompileContext]
"""Returns the context that a batch of a fragment was compiled in: the application may have changed since."""

_SETTLE_S = 5.0
"""How long a producer may take from its last entry until Spark has committed the batch."""


class Repair:
    """The repairs that one process does for one fragment, each in steps.

    `context_of` returns the context that a batch was compiled with; by default `context`. `compiling` is
    held during a compilation. `tell` receives notices for users. With `skip`, lost messages are left out.
    """

    def __init__(
        self,
        context: CompileContext,
        engine: QueryEngine,
        aside: Path,
        *,
        context_of: ContextOf | None = None,
        compiling: AbstractContextManager[object],
        tell: Callable[[str], None],
        skip: bool = False,
    ) -> None:
        self._context = context
        self._context_of = context_of
        self._engine = engine
        self._plan = context.plan
        self._aside = aside
        self._compiling = compiling
        self._tell = tell
        self._skip = skip

    def mend(self, fragment: str, unread: Mapping[str, int]) -> Steps[int]:
        """Repair the input of a stopped `fragment`, and the end of its output; returns how many entries.

        `unread`: of each log that it reads, the first entry that it has not taken.
        Raises LostForGoodError, naming what is lost, when that is impossible.
        """
        shutil.rmtree(self._aside, ignore_errors=True)  # left by a repair that was killed
        try:
            mended = 0
            for id, first in unread.items():
                mended += yield from self._mend(id, first)
            for channel in self._plan.outputs(fragment):
                numbers = self._store(channel.id).numbers()
                mended += yield from self._mend(channel.id, numbers[-1] if numbers else 0)
            return mended
        finally:
            shutil.rmtree(self._aside, ignore_errors=True)

    def mend_channel(self, id: str, first: int) -> Steps[int]:
        """Repair one channel from entry `first` on, whose producer may run; raises like `mend`."""
        try:
            return (yield from self._mend(id, first))
        finally:
            shutil.rmtree(self._aside, ignore_errors=True)

    # -- one channel ---------------------------------------------------------------------------------

    def _mend(self, id: str, first: int, end: int | None = None) -> Steps[int]:
        """Repair the entries [first, end) of a channel, or of a source's store."""
        outside = outside_channel(self._plan, self._context.rundir, id)
        if outside is not None:
            return (yield from repaired_by_producer(id, outside, first, self._report))
        store = self._store(id)
        lock = self._lock(store)
        try:
            while not lock.take():
                yield
            return (yield from self._mend_locked(id, store, first, end))
        finally:
            lock.release()

    def _mend_locked(self, id: str, store: ChannelStore, first: int, end: int | None) -> Steps[int]:
        known = loss_record(store)
        damages = self._damages(id, store, first, end, known.open)
        for number in set(known.open) - {damage.number for damage in damages}:
            # Repaired by a repair that was killed afterwards: how many messages it left out is unknown.
            closed = known.skipped(number, 0) if self._skip else known.mended(number)
            known = self._note(store, closed)
        for damage in damages:
            known = self._note(store, known.found(damage.number, max(1, len(damage.bad))))
            self._report(f"channel {id}: entry {damage.number} is lost ({damage.defect})")
        self._clean(store)
        lost = yield from self._rebuilt(id, store, [d.number for d in damages if d.entry is None])
        for damage in damages:
            if known.too_often(damage.number):
                raise self._for_good(id, damage, "it was repaired before, and damaged again")
            entry = damage.entry or lost[damage.number]
            if self._skip:
                known = self._note(store, self._left_out(id, store, damage, entry, known))
            else:
                yield from self._remade(id, store, damage, entry)
                known = self._note(store, known.mended(damage.number))
                self._report(f"channel {id}: entry {damage.number} was repaired")
        return len(damages)

    def _remade(self, id: str, store: ChannelStore, damage: Damage, entry: Entry) -> Steps[None]:
        if entry.segments or damage.entry is None:
            segments = yield from self._segments_again(id, store, damage, entry)
            entry = msgspec.structs.replace(entry, segments=tuple(segments))
        store.put_back(entry)

    def _left_out(
        self, id: str, store: ChannelStore, damage: Damage, entry: Entry, known: LossRecord
    ) -> LossRecord:
        kept = tuple(segment for segment in entry.segments if segment not in damage.bad)
        store.put_back(msgspec.structs.replace(entry, segments=kept))
        messages = sum(segment.rows for segment in damage.bad)
        self._report(f"channel {id}: entry {damage.number} was left out ({messages} known messages)")
        return known.skipped(damage.number, messages)

    def _segments_again(
        self, id: str, store: ChannelStore, damage: Damage, entry: Entry
    ) -> Steps[list[Segment]]:
        channel = self._channel(id)
        if channel is None:
            raise self._for_good(id, damage, "a source's store: the source cannot be asked twice")
        if (
            self._is_beginning(id, store, damage)
            or entry.batch_id == NO_BATCH
            or (damage.entry is None and self._only_clock(store, entry))
        ):
            return []
        own = self._context.rundir.fragment(channel.producer_fragment) / "checkpoint"
        if is_division(own, entry.batch_id):
            return []
        clock_ms = self._clock_before(store, entry)
        context = self._context
        if self._context_of is not None:
            context = self._context_of(channel.producer_fragment, entry.batch_id)
        producer = next(f for f in context.plan.fragments if f.id == channel.producer_fragment)
        was_whole = False
        while True:
            with self._compiling:
                aside = self._aside / uuid.uuid4().hex
                again = BatchRerun(context, self._engine, producer, entry.batch_id, aside)
            try:
                return (yield from again.segments(channel, store, clock_ms))
            except MessageLossError as error:
                mended = 0
                for input, (start, end) in again.inputs().items():
                    mended += yield from self._mend(input, start, end)
                if not mended and was_whole:
                    raise self._for_good(id, damage, str(error)) from error
                was_whole = not mended  # another repair may have fixed it just now: one more attempt
            except LostForGoodError:
                raise
            except UserError as error:
                raise self._for_good(id, damage, str(error)) from error

    def _is_beginning(self, id: str, store: ChannelStore, damage: Damage) -> bool:
        """Whether an entry only begins a channel, after messages from before it."""
        former = ChannelBeginning(store.uri).former
        if damage.number < former:
            raise self._for_good(id, damage, "messages from before the channel, which no batch has written")
        return bool(former) and damage.number == former

    def _only_clock(self, store: ChannelStore, entry: Entry) -> bool:
        """Whether a rebuilt entry can only have moved the clock: the entry before has the same batch."""
        return entry.number > 0 and store.read_entry(entry.number - 1).batch_id == entry.batch_id

    def _clock_before(self, store: ChannelStore, entry: Entry) -> int | None:
        if entry.number == 0:
            return None
        before_ms = store.read_entry(entry.number - 1).clock_ms
        return before_ms if before_ms > 0 else None

    # -- what is damaged -----------------------------------------------------------------------------

    def _damages(
        self, id: str, store: ChannelStore, first: int, end: int | None, unmended: tuple[int, ...]
    ) -> list[Damage]:
        """The damage to the entries [first, end) and to those that a killed repair left open."""
        channel = self._channel(id)
        newest = NO_BATCH if channel is None else self._committed(channel)  # before the log is listed
        numbers = store.numbers()
        if end is None:
            end = numbers[-1] + 1 if numbers else 0
            first = min(first, end)  # entries after the end may have been read and then lost
            if channel is not None:
                end += self._missing_at_the_end(store, channel, numbers, newest)
        found = []
        kept = [number for number in unmended if numbers and number >= numbers[0]]
        for number in sorted({*range(first, end), *kept}):
            try:
                entry = store.read_entry(number)
            except (TrimmedError, MessageLossError) as error:
                found.append(Damage(number, None, (), error.got or "the file is missing"))
                continue
            bad = {s: defect for s in entry.segments if (defect := unreadable(store, s)) is not None}
            if bad:
                segment, defect = next(iter(bad.items()))
                found.append(Damage(number, entry, tuple(bad), f"{segment.path}: {defect}"))
        return found

    def _missing_at_the_end(
        self, store: ChannelStore, channel: PlannedChannel, numbers: list[int], newest: int
    ) -> int:
        """How many entries the log lacks at its end: the producer committed their batches.

        Each unreadable entry after the last readable one may be of one of these batches.
        """
        if tells_only_at_end(self._plan, channel.producer_fragment):
            return 0
        if ChannelBeginning(store.uri).is_open(store, newest):
            return 0
        for number in reversed(numbers):
            try:
                entry = store.read_entry(number)
            except (TrimmedError, MessageLossError):
                continue
            missing = self._last_written(channel, newest, entry) - entry.batch_id
            return max(0, missing - (numbers[-1] - number))
        return max(0, newest - max(numbers, default=-1))

    def _last_written(self, channel: PlannedChannel, newest: int, last: Entry) -> int:
        """The last batch of a producer that is in a channel: later versions of it may not write there."""
        if last.clock_ms >= FINAL_CLOCK_MS:
            return last.batch_id
        while self._context_of is not None and newest > last.batch_id:
            plan = self._context_of(channel.producer_fragment, newest).plan
            if any(known.id == channel.id for known in plan.written_channels):
                break
            newest -= 1
        return newest

    def _committed(self, channel: PlannedChannel) -> int:
        return committed(self._context.rundir.fragment(channel.producer_fragment) / "checkpoint")

    def _rebuilt(self, id: str, store: ChannelStore, numbers: list[int]) -> Steps[dict[int, Entry]]:
        """Lost entries, derived from their neighbours: without segments, with the clock before them."""
        channel = self._channel(id)
        made = rebuilt_up_to_the_beginning(store, numbers)
        numbers = [number for number in numbers if number not in made]
        for _, grouped in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            run = [number for _, number in grouped]
            before = made.get(run[0] - 1)
            if before is None and run[0]:
                before = self._neighbour(id, store, run[0] - 1)
            if channel is not None and run[-1] >= max(store.numbers(), default=-1):
                yield from self._settled(channel)
            is_last = run[-1] >= max(store.numbers(), default=-1)
            after = None if is_last else store.read_entry(run[-1] + 1)
            batches = {} if channel is None else lost_batches(run, before, after, self._committed(channel))
            batch = NO_BATCH if before is None else before.batch_id
            for number in run:
                placed = batches.get(number)
                batch = batch if placed is None else placed
                made[number] = Entry(
                    number=number,
                    fragment=FragmentId(store.fragment),
                    incarnation=0 if before is None else before.incarnation,
                    batch_id=batch,
                    segments=(),
                    clock_ms=NO_CLOCK_MS if before is None else before.clock_ms,
                )
        return made

    def _settled(self, channel: PlannedChannel) -> Steps[None]:
        """Wait until the producer, if it runs, has committed the batch that it planned last.

        A lost entry may be of that batch. If the producer does not run, it will run the batch again.
        """
        checkpoint = self._context.rundir.fragment(channel.producer_fragment) / "checkpoint"
        deadline = time.monotonic() + _SETTLE_S
        while max(batch_numbers(checkpoint / "offsets"), default=NO_BATCH) > committed(checkpoint):
            if time.monotonic() > deadline:
                return
            yield

    def _neighbour(self, id: str, store: ChannelStore, number: int) -> Entry:
        try:
            return store.read_entry(number)
        except (TrimmedError, MessageLossError) as error:
            damage = Damage(number + 1, None, (), "the entry before it is not readable either")
            raise self._for_good(id, damage, str(error)) from error

    # -- how -----------------------------------------------------------------------------------------

    def _store(self, id: str) -> ChannelStore:
        channel = self._channel(id)
        if channel is None:
            return ChannelStore(self._context.rundir.store(id), fragment="ingest")
        return ChannelStore(self._context.rundir.channel(id), fragment=channel.producer_fragment)

    def _channel(self, id: str) -> PlannedChannel | None:
        """The channel with that id; None for a source's store."""
        return next((c for c in self._plan.written_channels if c.id == id), None)

    def _lock(self, store: ChannelStore) -> FileLock:
        Path(store.uri).mkdir(parents=True, exist_ok=True)
        return FileLock(Path(store.uri) / "repair.lock")

    def _clean(self, store: ChannelStore) -> None:
        """Delete segments that a killed repair left without an entry."""
        entries = []
        for number in store.numbers():
            try:
                entries.append(store.read_entry(number))
            except (TrimmedError, MessageLossError):
                continue
        named = {segment.path for entry in entries for segment in entry.segments}
        for name in store.files.names(REMADE):
            if f"{REMADE}/{name}" not in named:
                store.files.delete(f"{REMADE}/{name}")

    def _note(self, store: ChannelStore, known: LossRecord) -> LossRecord:
        record(store, known)
        return known

    def _report(self, text: str) -> None:
        log.warning("%s", text)
        self._tell(text)

    def _for_good(self, id: str, damage: Damage, why: str) -> LostForGoodError:
        entry = damage.entry
        rows = sum(segment.rows for segment in damage.bad) if entry is not None else None
        what = "an unknown number of" if rows is None else str(rows)
        return LostForGoodError(
            f"{what} messages of a channel are lost and cannot be repaired",
            where=f"channel {id}, entry {damage.number} ({self._store(id).uri})",
            expected="a file as it was written",
            got=f"{damage.defect}; {why}",
            remedy="restore the file from a backup, or start over with --fresh, or continue without these "
            'messages with --set run.delivery="at most once"',
        )
