"""The steps of one batch, from beginning to end.

    read offsets → check sources → run branches → observe → advance the clock → append to channels → account

Problem: Spark passes a DataFrame and a number. Everything else about the batch must be the same as when
it ran first, and each step must find the ones before it complete.

Design: the offsets and the watermark are read from Spark's offset log, which was written before the batch
began. `run` calls the steps in order; each takes the results of the ones before it. This module keeps no
state about batches: the outcome is returned, and the query keeps it.

What if we die here: sinks and channels skip a batch number that they have; Spark runs the batch again with
the same offsets and the same watermark. An entry is appended after every sink has its batch, and Spark
commits after that.

Invariants:

1. The same batch, run again, has the same messages and the same clock.
2. A batch that fails is not counted anywhere.

Called by `micro_batch_query`, in Spark's thread.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.core.plan.plan import Plan
from drivetrain.crash_points import CrashPoint, reached
from drivetrain.spark.batch.batch import Batch, BatchOutcome, Begun, Written, ignore_begun
from drivetrain.spark.batch.batch_limit import BatchLimit
from drivetrain.spark.batch.batch_times import Phase, spending
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.input_steps import InputSteps
from drivetrain.spark.batch.offset_log import read_offsets
from drivetrain.spark.batch.skipped_batches import left_out, note_left_out, note_not_begun
from drivetrain.spark.batch.small_batches import taking
from drivetrain.spark.flow.query_flow import QueryFlow
from drivetrain.spark.prepare.replay_filter import skipped_in_trunk
from drivetrain.spark.prepare.trunk import Trunk


class BatchPipeline:
    """Runs the batches of one fragment, whose directory is `directory`."""

    def __init__(
        self,
        plan: Plan,
        trunk: Trunk,
        directory: Path,
        steps: InputSteps,
        branches: Branches,
        flow: QueryFlow,
        limit: BatchLimit,
    ) -> None:
        self._trunk = trunk
        self._directory = directory
        self._steps = steps
        self._inputs = steps.inputs
        self._branches = branches
        self._flow = flow
        self._limit = limit
        self._is_lossy = plan.delivery == AT_MOST_ONCE

    def go_over(self, plan: Plan, branches: Branches) -> None:
        """Run the branches of another version from the next batch on."""
        self._branches = branches
        self._is_lossy = plan.delivery == AT_MOST_ONCE

    def run(
        self,
        df: DataFrame,
        batch_id: int,
        clock_ms: int | None,
        query: StreamingQuery | None,
        begun: Begun,
        *,
        planned_ms: int,
        replayed: bool,
        whole: bool = False,
    ) -> BatchOutcome:
        """Run a batch that Spark planned at `planned_ms` (monotonic); `clock_ms` is the clock before it.

        `query` is Spark's, which has observed the trunk. `begun` is called before the first output that would
        write the batch twice if it ran again; with `whole` everything is computed before that. Raises errors
        of sources, of the user's functions and of outputs.
        """
        reached(CrashPoint.BATCH_BEGINS)
        with spending(Phase.SOURCE):
            self._steps.check_partitions()
            batch = self._read_offsets(df, batch_id, clock_ms, replayed=replayed, whole=whole)
            self._steps.check_sources(batch.offsets)
            taken = self._inputs.taken(batch.offsets)
        written = self._run_branches(batch, self._inputs.bytes_of(taken), begun)
        self._observe(batch, written, query, planned_ms)
        after_ms = _latest(clock_ms, self._steps.clock_after(batch.offsets, batch.watermark_ms))
        with spending(Phase.CHANNEL):
            self._append(batch, written, after_ms)
        self._account(query, taken, planned_ms)
        reached(CrashPoint.BEFORE_COMMIT)
        return BatchOutcome(batch_id, batch.offsets, after_ms, any(taken.values()))

    def run_final(self, batch_id: int) -> None:
        """Run one more, empty batch, which tells Tasks the final clock and stops them.

        All of it is computed, for its outputs may have it from before a crash: then nothing else would.
        """
        batch = Batch(self._branches.empty(), batch_id, FINAL_CLOCK_MS, final=True, whole=True)
        written = self._branches.run(batch, ignore_begun)
        self._branches.append(batch_id, written, FINAL_CLOCK_MS)

    @property
    def has_final_batch(self) -> bool:
        """Whether one more, empty batch follows Spark's last."""
        return any(n.operation.hears_end for n in self._branches.nodes)

    # -- the steps -----------------------------------------------------------------------------------

    def _read_offsets(
        self, df: DataFrame, batch_id: int, clock_ms: int | None, *, replayed: bool, whole: bool
    ) -> Batch:
        metadata, offsets = read_offsets(self._directory / "checkpoint" / "offsets" / str(batch_id))
        watermark_ms = int(metadata.get("batchWatermarkMs", 0))
        return Batch(df, batch_id, clock_ms, tuple(offsets), watermark_ms, replayed=replayed, whole=whole)

    def _run_branches(self, batch: Batch, size_bytes: int, begun: Begun) -> Written:
        if self._must_skip(batch):
            written, rows = self._branches.skip(batch)
            note_left_out(self._directory, batch.id, rows)
            return written
        if self._trunk.only_at_end and not self._inputs.end_with(batch.offsets):
            self._branches.advance(batch)
            return Written({}, {})
        with taking(size_bytes):
            return self._branches.run(batch, begun)

    def _must_skip(self, batch: Batch) -> bool:
        """Whether no output may get a batch, because one may have got it before a crash (at most once)."""
        if not batch.replayed:
            return False
        if left_out(self._directory).not_begun == batch.id:
            note_not_begun(self._directory, NO_BATCH)  # from now on an output may have it
            return False
        return self._is_lossy

    def _observe(self, batch: Batch, written: Written, query: StreamingQuery | None, planned_ms: int) -> None:
        newest = {**written.newest, **self._steps.clock.observed_in_trunk(query)}
        self._steps.observe(newest, batch.offsets, batch.id, planned_ms)

    def _append(self, batch: Batch, written: Written, clock_ms: int | None) -> None:
        """Append to the channels; with the final clock only if no final batch follows."""
        if self.has_final_batch and clock_ms == FINAL_CLOCK_MS:
            clock_ms = FINAL_CLOCK_MS - 1
        self._branches.append(batch.id, written, clock_ms)
        self._flow.appended()

    def _account(self, query: StreamingQuery | None, taken: dict[str, int], planned_ms: int) -> None:
        counts = self._steps.counts
        for id, count in skipped_in_trunk(query, self._trunk.skipping).items():
            counts.add(counts.skipped, id, count)
        self._limit.measured(taken, monotonic_ms() - planned_ms)


def _latest(before_ms: int | None, after_ms: int | None) -> int | None:
    """The larger clock: the clock never moves back."""
    return max((ms for ms in (before_ms, after_ms) if ms is not None), default=None)
