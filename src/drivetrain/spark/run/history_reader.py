"""Reads old messages again, from before a change, for the new channels of one running fragment.

Problem: a new fragment must get, exactly once, messages that a running fragment read long ago, and then
those that the running one reads from some batch on. The running fragment must not wait for that, nor be
disturbed.

Design: messages are read in parts. Each part is read by a query of its own that runs exactly one batch,
from one offset to another, on a checkpoint that is made for it. So the reader decides where a part ends,
and the last part ends where a batch of the running fragment has ended, whose offsets are in that fragment's
checkpoint. A part's messages go through the processors of the new version, older messages are dropped, and
the results become an entry of a separate copy of the channel. As long as parts end before the newest batch
of the running fragment, that fragment keeps running. Then the reader asks for it to be held (`is_near`),
and reads up to its last batch.

Entries carry the clock that follows from the messages read so far, as in a fragment. Where messages of
several sources share one event time, the order in which they are read differs from the first time, so the
entries before the last one have no clock: nothing is late then, and no window fires before the last entry.

What if we die here: no version in force names what was written; the next process deletes it.

Invariants:

1. The running fragment's directory does not change, and no sink is written.
2. Every message of a source from FROM on, up to the end of batch `done_at`, is in exactly one entry, in
   order.
3. `done_at` is a committed batch at which the fragment was held.

Called by `history_readers`; its steps are taken in a thread of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.beginning import ChannelBeginning, former_producer
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.former_messages import channel_aside
from drivetrain.runtime.state.linked_copy import link_file
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.fragment_clock import FragmentClock
from drivetrain.spark.batch.fragment_query import BatchFailedError
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.newest_bound import NewestBound
from drivetrain.spark.batch.newest_record import NewestRecord
from drivetrain.spark.session.offset_log import committed, read_offsets
from drivetrain.spark.session.spark_errors import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.core.change.history_pace import HistoryPace
    from drivetrain.core.channel.channel_log import Segment
    from drivetrain.core.plan.plan import Fragment, PlannedChannel
    from drivetrain.spark.batch.query_engine import CompiledBranches, QueryEngine, RunningQuery
    from drivetrain.spark.prepare.compile_context import CompileContext
    from drivetrain.spark.prepare.trunk import Trunk
    from drivetrain.spark.repair.steps import Steps

_START_S: Final = 60.0
"""How long Spark may take to return a query whose batch is already running."""


class _WrittenError(RuntimeError):
    """Ends the query: its one batch is written."""


class HistoryReader:
    """Reads the messages from `from_ms` on of the sources of `fragment`, for `channels`, below `aside`.

    `trunk` and `compiled` are of the new version, and drop older messages. With `is_ordered` the entries have
    clocks.
    """

    def __init__(
        self,
        engine: QueryEngine,
        context: CompileContext,
        fragment: Fragment,
        trunk: Trunk,
        compiled: CompiledBranches,
        channels: list[PlannedChannel],
        from_ms: int,
        aside: Path,
        pace: HistoryPace,
        *,
        is_ordered: bool,
    ) -> None:
        self.fragment: Final = fragment.id
        self.channels: Final = channels
        self.rows = 0
        """How many messages were written so far. Other threads read this and the next attributes."""
        self.newest_ms: int | None = None
        """The largest timestamp among them."""
        self.is_near = False
        """Whether the running fragment has to be held, so that the rest can be read."""
        self.held_at: int | None = None
        """The last batch of the running fragment, while it is held; set by the caller."""
        self.done_at: int | None = None
        """The batch of the running fragment up to which everything was read."""
        self.dead: Final = Counts()
        """The messages that processors could not process."""
        self._engine, self._context, self._plan = engine, context, context.plan
        self._trunk, self._compiled = trunk, compiled
        self._from_ms, self._aside, self._pace = from_ms, aside, pace
        self._own = context.rundir.fragment(fragment.id) / "checkpoint"
        self._checkpoint = aside / "checkpoint"
        record, bound = NewestRecord(aside), NewestBound(aside)
        self._clock = FragmentClock(self._plan, fragment, trunk, frozenset(), record, bound)
        self._is_ordered = is_ordered
        self._clock_ms = NO_CLOCK_MS
        producer = former_producer(fragment.id)
        self._stores = {
            c.id: ChannelStore(str(channel_aside(aside, c.id)), fragment=producer) for c in channels
        }
        self._letters = ChannelStore(str(aside / "letters"))
        self._parts = 0
        self._query: RunningQuery | None = None
        self._made: dict[str, list[Segment]] | None = None
        self._error: BaseException | None = None

    def steps(self) -> Steps[None]:
        """Read until the caller closes the steps. Raises errors of sources and of the user's code."""
        try:
            yield from self._read_all()
        finally:
            self.release()

    def release(self) -> None:
        """Release what was compiled, if the steps are never taken."""
        self._compiled.release()

    def _read_all(self) -> Steps[None]:
        at: list[str | None] | None = None
        while True:
            batch = committed(self._own) if self.held_at is None else self.held_at
            end = None if batch == NO_BATCH else self._ends(batch)
            if end is None and batch != NO_BATCH:  # Spark has deleted it meanwhile
                yield
                continue
            if at is None and end is not None:
                at = self._starts(end)
            if at is None or end is None or at == end:  # before the first batch there is nothing to read
                self.is_near = True
                self.done_at = self.held_at
                yield
                continue
            self.done_at = None
            to = self._part(at, end)
            began_ms = _now_ms()
            yield from self._read(at, to)
            at = to
            pause_ms = self._pace.record(_now_ms() - began_ms)
            self.is_near = self.is_near or at == end
            until_ms = _now_ms() + (0 if self.is_near else pause_ms)
            while _now_ms() < until_ms:
                yield

    # -- where parts begin and end ---------------------------------------------------------------------

    def _ends(self, batch: int) -> list[str | None] | None:
        """The end offsets of a batch of the running fragment; None if Spark has deleted it meanwhile."""
        try:
            return read_offsets(self._own / "offsets" / str(batch))[1]
        except FileNotFoundError:
            return None

    def _starts(self, end: list[str | None]) -> list[str | None]:
        inputs = zip(self._trunk.inputs, end, strict=False)
        return [
            None if id is None or to is None else self._trunk.sources[id].history_start(self._from_ms, to)
            for id, to in inputs
        ]

    def _part(self, at: list[str | None], end: list[str | None]) -> list[str | None]:
        found: list[str | None] = []
        for id, start, to in zip(self._trunk.inputs, at, end, strict=False):
            if id is None or to is None or start == to:
                found.append(to)
            else:
                source = self._trunk.sources[id]
                begin = source.history_start(self._from_ms, to) if start is None else start
                found.append(source.history_part(begin, to, self._pace.fraction))
        return found

    # -- one part --------------------------------------------------------------------------------------

    def _read(self, at: list[str | None], to: list[str | None]) -> Steps[None]:
        self._make_checkpoint(at, to)
        self._query, self._made, self._error = None, None, None
        number = self._parts

        def on_batch(df: DataFrame, _: int) -> None:
            try:
                self._made = self._written(df, number, to)
            except BaseException as error:  # noqa: BLE001 - raised by the generator that waits for the query
                self._error = error
            raise BatchFailedError(f"part {number} of a history") from _WrittenError()

        name = f"{self._plan.application}/{self.fragment}, former messages"
        query = self._query = self._engine.start(self._trunk, name, self._checkpoint, on_batch)
        try:
            while query.is_active:
                yield
        finally:
            query.stop()
        made = self._result(query)
        for id, store in self._stores.items():
            store.append(number, made[id], self._clock_ms)
            self.rows += sum(segment.rows for segment in made[id])
            newest = max((segment.max_ts_ms for segment in made[id]), default=None)
            if newest is not None:
                self.newest_ms = max(newest, newest if self.newest_ms is None else self.newest_ms)
        self._parts += 1
        maybe_crash(CrashPoint.HISTORY_PART)

    def _result(self, query: RunningQuery) -> dict[str, list[Segment]]:
        if self._made is None:
            raise translated(self._error or query.exception() or UnavailableError("Spark stopped the query"))
        return self._made

    def _make_checkpoint(self, at: list[str | None], to: list[str | None]) -> None:
        """Make the checkpoint that a crash within the batch from `at` to `to` would have left."""
        newest = committed(self._own)
        metadata = (self._own / "offsets" / str(newest)).read_text().splitlines()[1]
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        for folder in ("offsets", "commits"):
            (self._checkpoint / folder).mkdir(parents=True)
        known = {**json.loads(metadata), "batchWatermarkMs": 0}
        for batch, offsets in enumerate((at, to)):
            lines = ["v1", json.dumps(known), *(offset or "-" for offset in offsets)]
            (self._checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
        commit = (self._own / "commits" / str(newest)).read_text()
        (self._checkpoint / "commits" / "0").write_text(commit)
        (self._checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for path, _, names in os.walk(self._own / "sources"):  # Spark's own lists of the files of a batch
            into = self._checkpoint / Path(path).relative_to(self._own)
            into.mkdir(parents=True)
            for name in names:
                if not name.startswith("."):
                    with suppress(FileNotFoundError):  # Spark has merged it into another one
                        link_file(Path(path) / name, into / name)

    def _written(self, df: DataFrame, number: int, to: list[str | None]) -> dict[str, list[Segment]]:
        """Write the messages of a part for all channels, in Spark's thread."""
        for id, offset in zip(self._trunk.inputs, to, strict=False):
            if id is not None and offset is not None:
                self._trunk.sources[id].check(offset)
        counts = self.dead
        before_ms = None if self._clock_ms == NO_CLOCK_MS else self._clock_ms
        with counts.user.active(), self._compiled.frames(Batch(df, number, before_ms)) as frames:
            made = {c.id: frames.segments(c, self._stores[c.id]) for c in self.channels}
            if frames.has_letters:
                frames.letter_segments(self._letters, number, counts)
            newest = frames.newest()
        if self._is_ordered:
            newest = {**newest, **self._clock.observed_in_trunk(self._started().of_spark)}
            self._clock.observe(newest, _now_ms())
            after_ms = self._clock.after(0, to, ends_input=False)
            self._clock_ms = max(self._clock_ms, NO_CLOCK_MS if after_ms is None else after_ms)
        return made

    def _started(self) -> RunningQuery:
        deadline_s = time.monotonic() + _START_S
        while self._query is None:  # its first batch runs before Spark has returned the query
            if time.monotonic() > deadline_s:
                raise UnavailableError("Spark has not returned a query whose batch runs")
            time.sleep(0.01)
        return self._query

    # -- the end ---------------------------------------------------------------------------------------

    def complete(self, clock_ms: int | None) -> None:
        """End the former messages of each channel, so that it can be put in its place.

        The fragment is held at `done_at`, where its clock is `clock_ms`.
        """
        assert self.done_at is not None, "a history that is not read"
        for former in self._stores.values():
            last = former.last()
            known_ms = NO_CLOCK_MS if last is None else last.clock_ms
            clock = max(known_ms, NO_CLOCK_MS if clock_ms is None else clock_ms)
            Path(former.uri).mkdir(parents=True, exist_ok=True)
            ChannelBeginning(former.uri).begin_with_former(self.done_at, former.length(), self._from_ms - 1)
            if self.done_at != NO_BATCH:
                ChannelStore(former.uri, fragment=self.fragment).append(self.done_at, [], clock)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
