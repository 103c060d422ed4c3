"""A fragment as a query in micro-batches: Spark calls back for each batch, and `pipeline` runs it.

Invariants:

1. No batch runs while another thread holds the query's `turn`.
2. The fragment is finished only when its inputs are, every batch is committed, and its last entry has the
   final clock.

Called by `execution`. The parts shared with real-time mode are in `fragment_query`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.crash_points import CrashPoint, reached
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.loss_record import require_whole
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.dead_letter_store import DeadLetterStore, Keep
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.batch.batch_limit import BatchLimit
from drivetrain.spark.batch.batch_times import BatchTimes, Phase, spending
from drivetrain.spark.batch.branches import channel_store
from drivetrain.spark.batch.fragment_query import BatchFailedError, DrainedError, FragmentQuery
from drivetrain.spark.batch.offset_log import clear_unfinished, next_watermark_ms
from drivetrain.spark.batch.pipeline import BatchPipeline
from drivetrain.spark.batch.query_figures import RanBatch
from drivetrain.spark.batch.query_versions import BranchSet
from drivetrain.spark.batch.skipped_batches import note_not_begun
from drivetrain.spark.batch.source_clock import PartitionsChangedError
from drivetrain.spark.batch.trimming import Trimming
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.checkpoints.publishing import RollingSinks
from drivetrain.spark.prepare.trunk import CLOCK
from drivetrain.spark.session.spark_errors import translated

REPORT_S = 2.0
HELD_S = 0.01
"""How often a batch that may not begin yet looks whether it may."""
LOOK_S = 0.25
"""How often Spark is asked whether a query waits for data, if that can move a clock."""


def is_loss(error: BaseException) -> bool:
    """Whether a batch has met lost messages, which are repaired before it runs again."""
    return isinstance(translated(error), MessageLossError)


class MicroBatchQuery(FragmentQuery):
    """One fragment as a running query; `limit` limits the size of the next batch, `config` may change."""

    def __init__(self, *given: Any, limit: BatchLimit, config: RunningConfig) -> None:
        super().__init__(*given)
        self.limit = limit
        self._config = config
        self.pipeline = self._made_pipeline()
        self._begun = False  # whether an output may have part of the running batch
        self._has_version = False  # whether its version is noted
        self._looked_s = time.monotonic()
        branches = self.branches
        self._letters = DeadLetterStore(branches.letters, self._keep_letters())
        self._trimming = Trimming(
            self.fragment.id, self.trunk, self.checkpoint, branches.stores, self.inputs.logs, self._letters
        )

    def _made_pipeline(self) -> BatchPipeline:
        return BatchPipeline(
            self.plan, self.trunk, self.directory, self.steps, self.branches, self.flow, self.limit
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
        self._recover()
        for store in self.branches.stores.values():
            self._begin_channel(store)
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

    # -- a batch, in Spark's thread --------------------------------------------------------------------

    def _on_batch(self, df: DataFrame, batch_id: int) -> None:
        self.planned_ms = monotonic_ms()
        self.busy, self._begun, self._has_version = True, False, False
        times = BatchTimes()
        try:
            with times.active():
                with spending(Phase.WAITING):
                    self.flow.wait_room(self._draining.is_set)
                    self._wait_while_held()
                with self.turn:
                    self._refuse_when_draining()
                    self._choose_version(batch_id)
                    self._run_batch(df, batch_id, times)
        except BaseException as error:  # noqa: BLE001 - kept whole, and raised by the engine
            self.error = error
            if not self._begun:
                note_not_begun(self.directory, batch_id)
            self._note_version_after(batch_id, error)
            # Spark gets a short message: it applies regular expressions to Python's exceptions.
            raise BatchFailedError(
                f"batch {batch_id} of {self.fragment.id}: {type(error).__name__}"
            ) from None
        finally:
            self.busy = False

    def _wait_while_held(self) -> None:
        while self.is_held and not self._draining.is_set():
            time.sleep(HELD_S)

    def _note_version_after(self, batch_id: int, error: BaseException) -> None:
        """Note which versions may run a batch that has ended without a commit.

        One that was stopped midway, or whose input was lost, is like one that a crash interrupted: outputs
        may have it already, and its code is not to be corrected.
        """
        if self.versions is None:
            return
        if not self._has_version:
            self.versions.not_begun(batch_id)
        elif not self._is_stopping and not is_loss(error):
            self.versions.failed(batch_id)

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise DrainedError(self.fragment.id)

    def _choose_version(self, batch_id: int) -> None:
        """Go over to another version, if one is wanted and the batch is not bound to its own."""
        if self.versions is None:
            return
        chosen = self.versions.before_batch(batch_id)
        self._has_version = True
        reached(CrashPoint.VERSION_NOTED)
        if chosen.branches is not self.branches:
            for store in self.go_over(chosen):
                self._begin_channel(store)
                self.flow.adds(self._id_of(store), store)

    def go_over(self, chosen: BranchSet) -> list[ChannelStore]:
        """Switch to other branches from the next batch on. No batch may be running.

        Returns the channels that the fragment did not write before; they have to begin.
        """
        stores, wanted = self.branches.stores, chosen.plan.outputs(chosen.fragment.id)
        added = [channel.id for channel in wanted if channel.id not in stores]
        for id in stores.keys() - {channel.id for channel in wanted}:
            self.flow.drops(id)
            del stores[id]
        self.plan, self.fragment, self.branches = chosen.plan, chosen.fragment, chosen.branches
        for part in (self.clock, self.steps, self.flow):
            part.go_over(chosen.plan, chosen.fragment)
        self.rolling = RollingSinks(self.branches.sinks.values(), self._released)
        self.pipeline = self._made_pipeline()
        for id in added:
            stores[id] = channel_store(self.plan, self.branches.context.rundir, self.fragment.id, id)
        return [stores[id] for id in added]

    def _begin_channel(self, store: ChannelStore) -> None:
        """Begin a channel that was added while the application ran, unless it has begun."""
        newest_ms = None if self.versions is None else self.versions.newest_ms()
        ChannelBeginning(store.uri).begin(store, self.batch_id, self.clock_ms, newest_ms)

    def _id_of(self, store: ChannelStore) -> str:
        return next(id for id, known in self.branches.stores.items() if known is store)

    def _run_batch(self, df: DataFrame, batch_id: int, times: BatchTimes) -> None:
        outcome = self.pipeline.run(
            df,
            batch_id,
            self.clock_ms,
            None if self._query is None else self._query.of_spark,
            self._note_begun,
            planned_ms=self.planned_ms,
            replayed=batch_id <= self.replay_until,
            whole=self.versions is not None and self.versions.on_trial,
        )
        self._take(outcome)
        newest_ms = max(self.clock.newest_ms.values(), default=None)
        work, now_ms = self.counts.user.take_work(), int(time.time() * 1000)
        self.figures.ran(RanBatch(batch_id, now_ms, newest_ms, outcome.has_input, times, work))
        if self.checkpoints is not None:
            self.checkpoints.ran()

    def _note_begun(self) -> None:
        self._begun = True

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
        self._look_between_batches()
        if self.state is not FragmentState.RUNNING or not self.is_committed():
            return
        if self.batch_id < self.replay_until:
            return  # Spark has planned one more batch, which outputs may have: it runs again first
        if self.inputs.are_read and self._is_at_final_clock():
            self._finish()

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
            self._is_stopping = True
            self._query.stop()
            self.error = lost

    def _settle(self) -> None:
        batch_id, clock_ms = self._ran
        if batch_id >= 0 and self._has_committed(batch_id):
            self.settled_clock_ms = clock_ms

    def _look_at_config(self) -> None:
        """Take up what was changed of the configuration."""
        self.limit.look()
        self._letters.keep = self._keep_letters()

    def _keep_letters(self) -> Keep:
        config = self._config
        return Keep(config[run_keys.KEEP_LETTERS_BYTES], config[run_keys.KEEP_LETTERS_AGE])

    def _look_between_batches(self) -> None:
        """Move the clock without a message, when partitions of a source have become idle."""
        if self.state is not FragmentState.RUNNING or self.clock.waiting_for is None:
            return
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_S or not self.turn.acquire(blocking=False):
            return
        self._looked_s = now_s
        try:
            if not self.active or not self.is_committed():
                return
            if self.clock.has_outgrown:
                self._end_outgrown()
            elif self._query is not None and self._query.waits_for_data and self.clock.looked():
                self._move_clock()
        finally:
            self.turn.release()

    def advance_clock(self, clock_ms: int) -> None:
        """Move the clock to `clock_ms` without messages: the caller guarantees that no older message follows.

        A fragment without sources, or one that has ended, is left as it is. Called between batches.
        """
        if not self.trunk.sources or self.state is not FragmentState.RUNNING:
            return
        with self.turn:
            self.clock.reached(clock_ms)
            self.clock.publish_reached(clock_ms, str(self.directory / CLOCK))
            self._move_clock()

    def wait_processed(self) -> None:
        """Wait until Spark has processed all that the inputs hold now; a query that fails ends the wait.

        Called in a thread of its own, while another polls.
        """
        query = None if self._query is None else self._query.of_spark
        if query is not None:
            with suppress(StreamingQueryException):  # `failure` has the error in the user's terms
                query.processAllAvailable()

    def _end_outgrown(self) -> None:
        try:
            self.steps.check_partitions()
        except PartitionsChangedError as error:
            self.error = error
        assert self._query is not None
        self._query.stop()

    def _move_clock(self) -> None:
        self.clock.publish()  # with state, the query's own next batch gets it
        if self.fragment.stateful is not None:
            return
        clock_ms = self.clock.after(0, self.inputs.offsets, ends_input=False)
        if clock_ms is None or (self.clock_ms is not None and clock_ms <= self.clock_ms):
            return
        for store in self.branches.stores.values():
            store.append_clock(clock_ms)
        self.flow.appended()
        self.clock_ms = self.settled_clock_ms = clock_ms
        self._ran = (self._ran[0], clock_ms)
        if self.checkpoints is not None:
            self.checkpoints.ran()  # windows that the clock fires elsewhere are worth a checkpoint, too

    # -- the end -------------------------------------------------------------------------------------

    def _finish(self) -> None:
        reached(CrashPoint.BEFORE_FINISH)
        with self.turn:
            if not self.is_committed():
                return  # one more batch has run since this was checked
            self._draining.set()  # and none may run from now on: it would never be committed
            self.clock_ms = FINAL_CLOCK_MS
            if self.has_final_batch:
                self.pipeline.run_final(self.batch_id + 1)
            for store in self.branches.stores.values():
                store.append_clock(FINAL_CLOCK_MS)
            if not self.branches.context.transactional:
                self.rolling.finish()
            self.state = FragmentState.FINISHED
        self.flow.appended(last=True)
        reached(CrashPoint.AFTER_FINISH)
        self.settled_clock_ms = FINAL_CLOCK_MS
        if self.checkpoints is not None:
            self.checkpoints.ran()  # publish the last results even if the other fragments get no messages
        deadline = time.monotonic() + REPORT_S
        while self.progress.seen < self.batch_id and self.batches and time.monotonic() < deadline:
            time.sleep(0.01)  # Spark reports a batch a moment after it has committed it
            self.progress.read(self._query)
        self._end()  # it takes part in checkpoints until the application ends: its sinks may have to publish
