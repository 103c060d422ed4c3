"""A fragment as a query in micro-batches: Spark calls back for each batch, and `pipeline` runs it.

Invariants:

1. No batch runs while another thread holds the query's `turn`.
2. The fragment is finished only when its inputs are, every batch is committed, and its last entry has the
   final clock.

The parts shared with real-time mode are in `fragment_query`; `version_changes` switches to other branches
between two batches, and `idle_clock` moves the clock when no message comes.

Called by `execution`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import FragmentProgressed, FragmentState
from drivetrain.core.plan.delivery import EXACTLY_ONCE
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.channel.loss_record import require_whole
from drivetrain.runtime.dead_letter_store import DeadLetterStore, RetentionLimits
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.state.state_partitions import recorded_partitions
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.fragment_query import BatchFailedError, DrainedError, FragmentQuery
from drivetrain.spark.batch.held_rows import held_rows
from drivetrain.spark.batch.idle_clock import IdleClock
from drivetrain.spark.batch.pipeline import BatchPipeline
from drivetrain.spark.batch.query_figures import CompletedBatch
from drivetrain.spark.batch.query_part import LatePart
from drivetrain.spark.batch.query_parts import QueryParts
from drivetrain.spark.batch.skipped_batches import note_not_begun
from drivetrain.spark.batch.trimming import Trimming
from drivetrain.spark.batch.version_changes import VersionChanges
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.measure.batch_limit import BatchLimit
from drivetrain.spark.measure.batch_times import BatchTimes, Phase, spending
from drivetrain.spark.prepare.outside_stream import OutsideStream
from drivetrain.spark.prepare.trunk import CLOCK
from drivetrain.spark.session.offset_log import (
    clear_unfinished,
    make_durable,
    next_watermark_ms,
    read_offsets,
    require_newest,
)

REPORT_S = 2.0
HELD_S = 0.01
"""How often a batch that may not begin yet checks whether it may."""
ENDING_S = 0.02
"""How often a wait for the end of a failed query checks whether it has ended."""


class MicroBatchQuery(FragmentQuery):
    """One fragment as a running query; `limit` limits the size of the next batch, `config` may change."""

    def __init__(self, parts: QueryParts, limit: BatchLimit, config: RunningConfig) -> None:
        super().__init__(parts)
        self.limit = limit
        self._config = config
        self.pipeline = BatchPipeline(
            self.plan, self.trunk, self.directory, self.steps, self.branches, self.flow, self.require_own
        )
        self.changes = VersionChanges(self, self.pipeline)
        self.idle_clock = IdleClock(self)
        self.late: LatePart | None = None
        """Looks at late messages, in a fragment that can have some; set before the query starts."""
        self._begun = False  # whether an output may have part of the running batch
        branches = self.branches
        self._letters = DeadLetterStore(branches.letters, self._keep_letters())
        self._trimming = Trimming(
            self.fragment.id,
            self.trunk,
            self.checkpoint,
            branches.stores,
            self.inputs.logs,
            self._letters,
            lambda newest: None if self.late is None else self.late.oldest_needed(newest),
        )

    @property
    def has_final_batch(self) -> bool:
        """Whether one more, empty batch follows Spark's last."""
        return self.pipeline.has_final_batch

    def start(self) -> None:
        """Start the query, or continue from its checkpoint.

        Raises `MessageLossError` when the log of an input or output does not match this checkpoint.
        """
        for id, first in self.inputs.unread().items():
            require_whole(self.inputs.logs[id], first)
        require_newest(self.checkpoint, self.branches.newest())
        self._recover()
        for store in self.branches.stores.values():
            self.changes.begin_channel(store)
        self.clock.publish_known(clock_of(next_watermark_ms(self.checkpoint)), str(self.directory / CLOCK))
        clear_unfinished(self.checkpoint)
        self._trimming.note_needed()
        for store in (*self.branches.stores.values(), self.branches.letters):
            store.clean_orphans()
        self._letters.tidy()
        self.flow.begin(self.inputs.unread())
        for stored in self.trunk.stored.values():
            stored.ingest.start()
        name = f"{self.plan.application}/{self.fragment.id}"
        self._query = self.engine.start(self.trunk, name, self.checkpoint, self._on_batch)
        self.state = FragmentState.RUNNING
        if self.checkpoints is not None:
            self.checkpoints.start()

    def stop(self) -> None:
        """Stop the query now; the next attempt runs the uncommitted batch again."""
        if self.late is not None:
            self.late.stop()
        super().stop()

    # -- a batch, in Spark's thread --------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        self.planned_ms = monotonic_ms()
        self.busy, self._begun = True, False
        self.changes.planned()
        times = BatchTimes()
        try:
            with times.active():
                with spending(Phase.WAITING):
                    self.flow.wait_room(self._draining.is_set)
                with self._turn_to_run():
                    self._refuse_when_draining()
                    self.changes.choose(batch_id)
                    self._run_batch(df, batch_id, times)
        except BaseException as error:  # noqa: BLE001 - kept whole, and raised by the engine
            self.error = error
            if not self._begun:
                note_not_begun(self.directory, batch_id)
            self.changes.failed(batch_id, error, is_stopped=self._is_stopping)
            # Spark gets a short message: it applies regular expressions to Python's exceptions.
            raise BatchFailedError(
                f"batch {batch_id} of {self.fragment.id}: {type(error).__name__}"
            ) from None
        finally:
            self.busy = False

    @contextmanager
    def _turn_to_run(self) -> Iterator[None]:
        """The query's turn, once no change holds batches back. This is checked while the turn is held, so
        that no batch begins after another thread has seen that none runs."""
        while True:
            with self.turn:
                if not self.is_held or self._draining.is_set():
                    yield
                    return
            with spending(Phase.WAITING):
                time.sleep(HELD_S)

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise DrainedError(self.fragment.id)

    def _run_batch(self, df: DataFrame, batch_id: int, times: BatchTimes) -> None:
        maybe_crash(CrashPoint.BATCH_BEGINS)
        with spending(Phase.SOURCE):
            batch = self._planned(df, batch_id)
        outcome = self.pipeline.run(batch, self._note_begun)
        self._take(outcome)
        if outcome.counts.late and self.late is not None:
            self.late.note(batch_id)
        self.limit.measured(outcome.taken, outcome.took_ms)
        newest_ms = max(self.clock.newest_ms.values(), default=None)
        work, now_ms = self.counts.user.take_work(), int(time.time() * 1000)
        self.figures.ran(CompletedBatch(batch_id, now_ms, newest_ms, outcome.has_input, times, work))
        if self.checkpoints is not None:
            self.checkpoints.ran()

    def _planned(self, df: DataFrame, batch_id: int) -> Batch:
        """The input of a batch; Spark has written its extent before."""
        metadata, offsets = read_offsets(self.checkpoint / "offsets" / str(batch_id))
        if self.plan.delivery == EXACTLY_ONCE:
            make_durable(self.checkpoint, batch_id)
        watermark_ms = int(metadata.get("batchWatermarkMs", 0))
        query = None if self._query is None else self._query.of_spark
        of_state = self.plan.stateful_operation(self.fragment)
        return Batch(
            df,
            batch_id,
            self.clock_ms,
            tuple(offsets),
            watermark_ms,
            self.planned_ms,
            query,
            may_have_run=batch_id <= self.replay_until,
            whole=self.versions is not None and self.versions.on_trial,
            partitions=recorded_partitions(metadata.get("conf", {})),
            held_rows=held_rows(of_state, self.trunk.mode, watermark_ms, self.figures.state_rows, query),
        )

    def _note_begun(self) -> None:
        self._begun = True

    def progressed(self) -> FragmentProgressed:
        """The fragment's progress, with the channels that other applications read, or write for it."""
        progress = super().progressed()
        read = [
            source.progress() for source in self.trunk.sources.values() if isinstance(source, OutsideStream)
        ]
        outside = (*self.flow.outside.progress(), *(channel for channel in read if channel is not None))
        return dataclasses.replace(progress, channels=progress.channels + outside) if outside else progress

    # -- between batches, in the polling thread ----------------------------------------------------------

    def poll(self) -> None:
        """Check the query's progress, and finish the fragment when its inputs are read."""
        if self.progress.seen < self.batch_id:  # otherwise Spark has nothing to report, and is busy enough
            self.progress.read(self._query)
        self._report_to_sources()
        self._look_for_losses()
        self._trimming.trim(self.flow.trimmed)
        self.rolling.look()
        self._settle()
        self._look_at_config()
        self.idle_clock.look()
        self._look_at_late()
        if self.state is not FragmentState.RUNNING or not self.is_committed():
            return
        if self.is_held or self.batch_id < self.replay_until:
            return  # a change waits; or a batch that Spark has planned, and outputs may have, runs first
        if self.inputs.are_read and self._is_at_final_clock() and self._is_sampled():
            self._finish()

    def _look_at_late(self) -> None:
        if self.late is not None:
            self.late.note(self.progress.newest_with_late)
            if self.is_committed():
                self.late.look()

    def _is_sampled(self) -> bool:
        """Whether the sampler has finished with the late messages of the last batches."""
        if self.late is None or self._query is None or self._query.of_spark is None or not self.batches:
            return True  # an engine without observation sees no late messages
        return self.late.is_settled(is_reported=self.progress.seen >= self.batch_id)

    def _is_at_final_clock(self) -> bool:
        """Whether inputs that are read have nothing left to deliver; publishes their end to the state."""
        if self.fragment.stateful is None:
            return True
        if any(id is None for id in self.trunk.inputs):
            for path in (str(self.directory / CLOCK), *self.trunk.clock_paths.values()):
                publish_clock(path, FINAL_CLOCK_MS)
        return self.clock_ms == FINAL_CLOCK_MS or (self.trunk.only_at_end and self.batch_id < 0)

    def _look_for_losses(self) -> None:
        if self.error is None and (lost := self.flow.loss()) is not None and self._query is not None:
            self.interrupt()
            self.error = lost

    def _settle(self) -> None:
        batch_id, clock_ms = self._ran
        if batch_id >= 0 and self._has_committed(batch_id):
            self.settled_clock_ms = clock_ms

    def _look_at_config(self) -> None:
        """Apply what has changed in the configuration."""
        self.limit.look()
        self._letters.keep = self._keep_letters()

    def _keep_letters(self) -> RetentionLimits:
        config = self._config
        return RetentionLimits(config[run_keys.KEEP_LETTERS_BYTES], config[run_keys.KEEP_LETTERS_AGE])

    def wait_processed(self) -> None:
        """Wait until Spark has processed all that the inputs hold now, or until a query that fails has ended.

        Called in a thread of its own, while another polls.
        """
        query = None if self._query is None else self._query.of_spark
        if query is not None:
            try:
                query.processAllAvailable()
            except StreamingQueryException:  # `failure` has it in the user's terms, once the query has ended
                while self.active:
                    time.sleep(ENDING_S)

    # -- the end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        maybe_crash(CrashPoint.BEFORE_FINISH)
        with self.turn:
            if not self.is_committed():
                return  # one more batch has run since this was checked
            self._draining.set()  # and none may run from now on: it would never be committed
            self.clock_ms = FINAL_CLOCK_MS
            self.require_own()
            if self.has_final_batch:
                self.counts.take(self.pipeline.run_final(self.batch_id + 1))
            for store in self.branches.stores.values():
                store.append_clock(FINAL_CLOCK_MS)
            if not self.branches.context.transactional:
                self.rolling.finish()
            self.state = FragmentState.FINISHED
        self.flow.appended(last=True)
        maybe_crash(CrashPoint.AFTER_FINISH)
        self.settled_clock_ms = FINAL_CLOCK_MS
        if self.checkpoints is not None:
            self.checkpoints.ran()  # publish the last results even if the other fragments get no messages
        deadline = time.monotonic() + REPORT_S
        while self.progress.seen < self.batch_id and self.batches and time.monotonic() < deadline:
            time.sleep(0.01)  # Spark reports a batch a moment after it has committed it
            self.progress.read(self._query)
        self._end()  # it takes part in checkpoints until the application ends: its sinks may have to publish
