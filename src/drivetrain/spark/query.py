"""The life of one fragment's query: its batches, its clock, and how it ends.

Spark calls `_on_batch` for every batch. What the batch is made of (offsets of the inputs, the
watermark) is read from Spark's own offset log, which was written before the batch began: so a batch
that is run again sees the clock it saw the first time.

How its clock follows from that is in `fragment_clock`; what Spark reports of batches, in `query_progress`.

Invariants:

1. The clock never moves back.
2. The fragment is finished only when its inputs are, every batch is committed, and its last entry
   says the final clock.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.graph import Process
from drivetrain.core.channel import NO_BATCH
from drivetrain.core.clock import FINAL_CLOCK_MS
from drivetrain.core.clock_service import WORK
from drivetrain.core.delivery import AT_MOST_ONCE
from drivetrain.core.plan import Fragment, Plan
from drivetrain.core.progress import FragmentProgressed, FragmentState
from drivetrain.core.replay import source_time
from drivetrain.errors import DrivetrainError
from drivetrain.spark.at_driver import taking
from drivetrain.spark.batch_limit import BatchLimit
from drivetrain.spark.branches import Batch, Branches
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.counting import Counts
from drivetrain.spark.failures import translated
from drivetrain.spark.flow_book import FlowBook
from drivetrain.spark.fragment_clock import FragmentClock, known_clock
from drivetrain.spark.left_out import left_out, note_left_out, note_not_begun
from drivetrain.spark.loss_record import loss_record, require_batch, require_whole, with_losses
from drivetrain.spark.offset_log import (
    batch_numbers,
    clear_unfinished,
    committed,
    read_offsets,
)
from drivetrain.spark.query_flow import QueryFlow
from drivetrain.spark.query_inputs import QueryInputs
from drivetrain.spark.query_progress import QueryProgress
from drivetrain.spark.replayed import skipped_in_trunk
from drivetrain.spark.source_clock import Newest, PartitionsChangedError, newest_of_all
from drivetrain.spark.trimming import Trimming
from drivetrain.spark.trunk import Trunk

if TYPE_CHECKING:
    from drivetrain.spark.checkpoints.participation import Participation

REPORT_S = 2.0
LONG_BATCH_MS = 5_000
"""After how long a batch is what keeps the clock, rather than what comes in."""
LOOK_S = 0.25
"""How often Spark is asked whether a query waits for data, where a clock moves by that."""


class DrainedError(RuntimeError):
    """Ends a query between two batches, when the application is asked to stop."""


class BatchFailedError(RuntimeError):
    """What Spark is told when a batch fails; the error itself is kept by the query."""


class FragmentQuery:
    """One fragment as a running query. The engine polls it; Spark calls it back for each batch."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        trunk: Trunk,
        branches: Branches,
        directory: Path,
        readers: dict[str, ChannelStore],
        counts: Counts,
        book: FlowBook,
        limit: BatchLimit,
    ) -> None:
        self.plan = plan
        self.fragment = fragment
        self.trunk = trunk
        self.branches = branches
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.readers = readers
        self.counts = counts
        self.progress = QueryProgress(plan, fragment, trunk, readers, counts)
        self.flow = QueryFlow(plan, fragment, branches.stores, readers, book, self.progress)
        self.progress.notes.append(lambda told: with_losses(told, readers[told.channel]))
        self.limit = limit
        self.state = FragmentState.STARTING
        self.clock_ms: int | None = None
        self.settled_clock_ms: int | None = None
        """The clock after the last batch that Spark has committed: what a restart knows."""
        self.batch_id = -1
        self.batches = 0
        self.busy = False
        self.error: BaseException | None = None
        self._outside: BaseException | None = None  # the error, if it did not come from a batch
        self.inputs = QueryInputs(fragment.id, trunk, readers, self.checkpoint)
        self._ran: tuple[int, int | None] = (-1, None)  # the last batch and the clock after it, in one step
        self._clock = FragmentClock(plan, fragment, trunk, frozenset(readers))
        self._batch: Batch | None = None
        self._draining = threading.Event()
        self.turn = threading.Lock()
        """Held by a batch while it runs, and by others while they need that none does."""
        self._looked_s = time.monotonic()
        self._planned_ms = 0
        self._query: StreamingQuery | None = None
        self._told_sources = -1
        self._trimming = Trimming(fragment.id, trunk, self.checkpoint, branches.stores, self.inputs.logs)
        self.checkpoints: Participation | None = None
        """Its part in checkpoints of the application; set before it starts."""
        self.replay_until = max(batch_numbers(self.checkpoint / "offsets"), default=-1)
        if self.replay_until <= committed(self.checkpoint):
            self.replay_until = -1

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query, or go on from its checkpoint.

        Raises `MessageLossError` when the log of an input or output is not what this checkpoint knows of it.
        """
        for id, first in self.inputs.unread().items():
            require_whole(self.inputs.logs[id], first)
        self._recover()
        clear_unfinished(self.checkpoint)
        self._trimming.note_needed()
        for store in (*self.branches.stores.values(), self.branches.letters):
            store.clean_orphans()
        self.flow.begin(self.inputs.unread())
        for stored in self.trunk.stored.values():
            stored.ingest.start()
        writer = (
            self.trunk.df.writeStream.outputMode(self.trunk.mode)
            .queryName(f"{self.plan.application}/{self.fragment.id}")
            .option("checkpointLocation", str(self.checkpoint))
            .foreachBatch(self._on_batch)
        )
        self._query = writer.start()
        self.state = FragmentState.RUNNING
        if self.checkpoints is not None:
            self.checkpoints.start()

    def go_on(self, before: FragmentQuery) -> None:
        """Go on counting where an earlier query of the same run stopped."""
        self.batches = before.batches
        self.progress.rows_total = before.progress.rows_total

    def drain(self) -> None:
        """Let the running batch finish, and stop before the next."""
        self._draining.set()

    def stop(self) -> None:
        """Stop the query now; what the running batch did not commit runs again next time."""
        self._end()
        if self.checkpoints is not None:
            self.checkpoints.close()

    @property
    def has_failed(self) -> bool:
        """Whether there is an error, of a batch or from outside."""
        return self.error is not None

    def forget_error(self) -> None:
        """It has ended as it should; whatever its last batch met means nothing."""
        self.error = None

    def fail(self, error: BaseException) -> None:
        """Stop the query because of an error that came from outside a batch."""
        if self.error is None:
            self.error = self._outside = error
        self._draining.set()
        if self._query is not None:
            self._query.stop()

    def _end(self) -> None:
        self._draining.set()  # a batch that waits for its subscribers must not be waited for
        for stored in self.trunk.stored.values():
            stored.ingest.stop()
        if self._query is not None:
            self._query.stop()
        for source in self.trunk.sources.values():
            source.close()

    @property
    def active(self) -> bool:
        """Whether Spark still runs the query."""
        return self._query is not None and self._query.isActive

    def failure(self) -> DrivetrainError | None:
        """What stopped the query, in the user's terms; None while it runs or when it was drained."""
        if self._query is None or self._query.isActive:
            return None
        is_over = isinstance(self.error, DrainedError) or self.state is FragmentState.FINISHED
        if is_over and self._outside is None:
            return None
        error = self.error or self._query.exception()
        if error is None:
            return None
        for source in self.trunk.sources.values():
            meant = source.explain(f"{error}\n{error.__cause__ or ''}")
            if meant is not None:
                return meant
        return translated(error, where=f"fragment {self.fragment.id}")

    # -- batches -------------------------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        planned_ms = self._planned_ms = monotonic_ms()
        self.busy = True
        self._batch = None
        try:
            self.flow.wait_room(self._draining.is_set)
            self._refuse_when_draining()
            with self.turn:
                self._run_batch(df, batch_id, planned_ms)
        except BaseException as error:  # noqa: BLE001 - kept whole, and raised by the engine
            self.error = error
            if not self._was_begun():
                note_not_begun(self.directory, batch_id)
            # Spark gets the short story: it runs regular expressions over whatever Python tells it.
            raise BatchFailedError(
                f"batch {batch_id} of {self.fragment.id}: {type(error).__name__}"
            ) from None
        finally:
            self.busy = False

    def _run_batch(self, df: DataFrame, batch_id: int, planned_ms: int) -> None:
        self._refuse_when_outgrown()
        metadata, offsets = read_offsets(self.checkpoint / "offsets" / str(batch_id))
        self._check_sources(offsets)
        batch = Batch(df, batch_id, self.clock_ms, replayed=batch_id <= self.replay_until)
        self._batch = batch
        taken = self.inputs.taken(offsets)
        if self._leaves_out(batch):
            note_left_out(self.directory, batch_id, self.branches.leave_out(batch))
        elif self.trunk.only_at_end and not self.inputs.end_with(offsets):
            df.write.format("noop").mode("overwrite").save()  # Spark's state goes on, nothing is told
        else:
            with taking(self.inputs.bytes_of(taken)):
                self.branches.run(batch)
        newest = {**self.branches.newest(batch), **self._clock.observed_in_trunk(self._query)}
        self._clock.saw(newest, planned_ms)
        self._clock.publish()
        self._note_newest(newest, offsets)
        for id, count in skipped_in_trunk(self._query, self.trunk.skipping).items():
            self.counts.add(self.counts.skipped, id, count)
        clock_ms = self._clock_after(metadata, offsets)
        self.branches.append(batch, self._told_clock(clock_ms))
        self.flow.appended()
        self.limit.measured(taken, monotonic_ms() - planned_ms)
        self.inputs.offsets, self.batch_id = offsets, batch_id
        self._raise_clock(clock_ms)  # not before: a clock at its end says that every batch was appended
        self._ran = (batch_id, self.clock_ms)
        self.batches += 1
        if self.checkpoints is not None:
            self.checkpoints.ran()

    def _raise_clock(self, clock_ms: int | None) -> None:
        if clock_ms is not None and (self.clock_ms is None or clock_ms > self.clock_ms):
            self.clock_ms = clock_ms

    def _note_newest(self, newest: Mapping[str, Newest], offsets: list[str | None]) -> None:
        """Tell the sources how new the messages were, where those of a source get their timestamps here."""
        for id, source in self.trunk.sources.items():
            time, index = source_time(self.plan.graph, id), self.trunk.inputs.index(id)
            if time is None or not set(time.places) <= set(self.fragment.processors):
                continue
            told = [newest[place] for place in time.places if place in newest]
            known = newest_of_all(told) if len(told) == len(time.places) else None
            source.ran(self.inputs.offset(id), offsets[index] if index < len(offsets) else None, known)

    def _was_begun(self) -> bool:
        return self._batch is not None and self._batch.begun

    def _leaves_out(self, batch: Batch) -> bool:
        """Whether a batch must not be told again to anybody, because it may have been told before a crash."""
        if not batch.replayed:
            return False
        if left_out(self.directory).not_begun == batch.id:
            note_not_begun(self.directory, NO_BATCH)  # from now on it may have
            return False
        return self._is_lossy

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise DrainedError(self.fragment.id)

    def _refuse_when_outgrown(self) -> None:
        if self._clock.has_outgrown:
            raise PartitionsChangedError(
                "a source has more partitions than when the query began",
                where=f"fragment {self.fragment.id}",
                remedy="nothing: it is compiled anew, with all of them, and goes on where it was",
            )

    def _check_sources(self, offsets: list[str | None]) -> None:
        for id, offset in self.inputs.by_id(offsets):
            if id in self.trunk.sources:
                source = self.trunk.sources[id]
                source.check(offset)
                self.counts.lost[id] = source.lost()

    def _clock_after(self, metadata: dict[str, Any], offsets: list[str | None]) -> int | None:
        watermark_ms = int(metadata.get("batchWatermarkMs", 0))
        return self._clock.after(watermark_ms, offsets, ends_input=self.inputs.end_with(offsets))

    def _recover(self) -> None:
        """Take up the position and the clock of the last committed batch, and what channels were told.

        Without it, a run that died between its last batch and its end would wait for a batch for ever.
        """
        newest = committed(self.checkpoint)
        told = [_told_until(store, newest) for store in self.branches.stores.values()]
        clocks = [known_clock(clock_ms) for clock_ms in told]
        if not self.trunk.only_at_end:
            for store in self.branches.stores.values():
                require_batch(store, newest)
        if newest >= 0:
            metadata, self.inputs.offsets = read_offsets(self.checkpoint / "offsets" / str(newest))
            self.batch_id = newest
            for id, source in self.trunk.sources.items():
                self.progress.counted[id] = source.position(self.inputs.offset(id)).done
            clocks.append(self._clock_after(metadata, self.inputs.offsets))
        self.clock_ms = max((c for c in clocks if c is not None), default=None)
        self.settled_clock_ms = self.clock_ms

    # -- the end -------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Look whether the fragment has come to its end, and do what the end asks for."""
        if self.progress.seen < self.batch_id:  # else Spark has nothing to report, and is busy enough
            self.progress.read(self._query)
        self._tell_sources()
        self._look_for_losses()
        self._trimming.trim(self.flow.trimmed)
        self._settle()
        self._look_between_batches()
        if self.state is not FragmentState.RUNNING or not self.is_committed():
            return
        if not self.inputs.are_read:
            return
        if self.fragment.stateful is not None:
            if any(id is None for id in self.trunk.inputs):
                for path in (str(self.directory / "clock"), *self.trunk.clock_paths.values()):
                    publish_clock(path, FINAL_CLOCK_MS)
            if self.clock_ms != FINAL_CLOCK_MS and not (self.trunk.only_at_end and self.batch_id < 0):
                return
        elif not self.trunk.sources and self.clock_ms != FINAL_CLOCK_MS:
            return
        self._finish()

    def _look_between_batches(self) -> None:
        """Move the clock though no message comes, when partitions of a source have become idle."""
        if self.state is not FragmentState.RUNNING or self._clock.waiting_for is None:
            return
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S or not self.turn.acquire(blocking=False):
            return
        self._looked_s = now_s
        try:
            if not self.active or not self.is_committed():
                return
            if self._clock.has_outgrown:
                self._end_outgrown()
            elif self._waits_for_data() and self._clock.looked():
                self._move_clock()
        finally:
            self.turn.release()

    def _end_outgrown(self) -> None:
        try:
            self._refuse_when_outgrown()
        except PartitionsChangedError as error:
            self.error = error
        assert self._query is not None
        self._query.stop()

    def _waits_for_data(self) -> bool:
        assert self._query is not None
        status = self._query.status
        return not status["isDataAvailable"] and not status["isTriggerActive"]

    def _move_clock(self) -> None:
        self._clock.publish()  # behind state: the query's own next batch takes it from there
        if self.fragment.stateful is not None:
            return
        clock_ms = self._clock.after(0, self.inputs.offsets, ends_input=False)
        if clock_ms is None or (self.clock_ms is not None and clock_ms <= self.clock_ms):
            return
        for store in self.branches.stores.values():
            store.append_clock(clock_ms)
        self.flow.appended()
        self.clock_ms = self.settled_clock_ms = clock_ms
        self._ran = (self._ran[0], clock_ms)
        if self.checkpoints is not None:
            self.checkpoints.ran()  # what the clock makes others publish is news, too

    @property
    def newest_ms(self) -> dict[str, int]:
        """The largest timestamp that each processor here which assigns event times has seen."""
        return self._clock.newest_ms

    def _look_for_losses(self) -> None:
        if self.error is None and (lost := self.flow.loss()) is not None and self._query is not None:
            self._query.stop()
            self.error = lost

    def _settle(self) -> None:
        batch_id, clock_ms = self._ran
        if batch_id >= 0 and (self.checkpoint / "commits" / str(batch_id)).exists():
            self.settled_clock_ms = clock_ms

    def _tell_sources(self) -> None:
        """Tell the sources how far committed batches have come."""
        if self.batch_id == self._told_sources or not self.is_committed():
            return
        self._told_sources = self.batch_id
        for id, source in self.trunk.sources.items():
            source.committed(self.inputs.offset(id))

    def _finish(self) -> None:
        with self.turn:
            self.clock_ms = FINAL_CLOCK_MS
            if self.has_last_batch:
                self._last_batch()
            for store in self.branches.stores.values():
                store.append_clock(FINAL_CLOCK_MS)
            self.state = FragmentState.FINISHED
        self.flow.appended(last=True)
        self.settled_clock_ms = FINAL_CLOCK_MS
        deadline = time.monotonic() + REPORT_S
        while self.progress.seen < self.batch_id and self.batches and time.monotonic() < deadline:
            time.sleep(0.01)  # Spark reports a batch a moment after it has committed it
            self.progress.read(self._query)
        self._end()  # in checkpoints it takes part until the application ends: its sinks may have to publish

    def _told_clock(self, clock_ms: int | None) -> int | None:
        """What channels are told of the clock after a batch: the end only once nothing can follow it."""
        known = max((ms for ms in (clock_ms, self.clock_ms) if ms is not None), default=None)
        return FINAL_CLOCK_MS - 1 if self.has_last_batch and known == FINAL_CLOCK_MS else known

    @property
    def has_last_batch(self) -> bool:
        """Whether one more, empty batch follows Spark's last."""
        return any(isinstance(n.operation, Process) for n in self.branches.nodes)

    def _last_batch(self) -> None:
        """One more, empty batch, in which Tasks hear of the final clock and that they stop."""
        spark = self.trunk.df.sparkSession
        empty = spark.createDataFrame([], self.trunk.df.schema)
        batch = Batch(empty, self.batch_id + 1, FINAL_CLOCK_MS, final=True)
        self.branches.run(batch)
        self.branches.append(batch, FINAL_CLOCK_MS)

    def progressed(self) -> FragmentProgressed:
        """How far it has come, its channels included; for the thread that polls."""
        entries = {id: self.inputs.entry(id) for id in self.readers}
        told = self.progress.told(self.batch_id, self.clock_ms, entries, self._clock.newest_ms)
        return dataclasses.replace(told, left_out=self._left_out()) if self._is_lossy else told

    @property
    def _is_lossy(self) -> bool:
        return self.plan.delivery == AT_MOST_ONCE

    def _left_out(self) -> int:
        """Messages that were left out since the application began, of batches and of what channels lost."""
        lost = sum(loss_record(store).skipped_messages for store in self.readers.values())
        return left_out(self.directory).messages + lost

    def waiting_for(self) -> str | None:
        """What keeps its clock, in words that fit behind "waiting for"; None when it knows of nothing."""
        if self.progress.blocked_by is not None:
            return f"room in front of {self.progress.blocked_by}"
        if self.busy and monotonic_ms() - self._planned_ms > LONG_BATCH_MS:
            return WORK
        blocked_by = self.progress.blocked_by
        return self._clock.waiting_for if blocked_by is None else f"{blocked_by}, whose window is full"

    def is_committed(self) -> bool:
        """Whether Spark has committed the newest batch that ran."""
        return self.batch_id < 0 or (self.checkpoint / "commits" / str(self.batch_id)).exists()


def _told_until(store: ChannelStore, batch_id: int) -> int:
    """The clock that a channel was told with a batch or before it: what follows runs again with that one."""
    for number in range(store.length() - 1, store.start() - 1, -1):
        entry = store.entry(number)
        if entry.batch_id <= batch_id:
            return entry.clock_ms
    return 0
