"""The steps of one batch, from beginning to end.

    check sources → run branches → observe → advance the clock → append to channels → count

Problem: Spark passes a DataFrame and a number. Everything else about the batch must be the same as when
it ran first, and each step must find the ones before it complete.

Design: the input is one frozen record. Its offsets and watermark come from Spark's offset log, which was
written before the batch began. `run` calls the steps in order; each takes the results of the ones before it.
This module keeps no state about batches: the outcome is returned, and the query keeps it. Three effects are
made on the way, since they must come before the channels' entries: outputs, the record of newest timestamps,
and what follows from those for the clock.

What if we die here: sinks and channels skip a batch number that they have; Spark runs the batch again with
the same offsets and the same watermark. An entry is appended after every sink has its batch, and Spark
commits after that.

Invariants:

1. The same batch, run again, has the same messages and the same clock.
2. A batch that fails is not counted, except for messages that sinks and dead letters have already taken.

Called by `micro_batch_query`, in Spark's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.core.plan.plan import Plan
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.spark.batch.batch import Batch, BatchOutcome, Begun, BranchResult, ignore_begun
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.input_steps import InputSteps
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_flow import QueryFlow
from drivetrain.spark.batch.skipped_batches import note_not_begun, note_skipped, skipped_batches
from drivetrain.spark.measure.batch_times import Phase, spending
from drivetrain.spark.measure.small_batches import taking
from drivetrain.spark.prepare.replay_filter import skipped_in_trunk
from drivetrain.spark.prepare.trunk import Trunk


class BatchPipeline:
    """Runs the batches of one fragment, whose directory is `directory`.

    `require_own` raises LostLockError if another process runs the fragment by now.
    """

    def __init__(
        self,
        plan: Plan,
        trunk: Trunk,
        directory: Path,
        steps: InputSteps,
        branches: Branches,
        flow: QueryFlow,
        require_own: Callable[[], None],
    ) -> None:
        self._trunk = trunk
        self._directory = directory
        self._steps = steps
        self._inputs = steps.inputs
        self._branches = branches
        self._flow = flow
        self._require_own = require_own
        self._is_lossy = plan.delivery == AT_MOST_ONCE

    def switch_to(self, plan: Plan, branches: Branches) -> None:
        """Run the branches of another version from the next batch on."""
        self._branches = branches
        self._is_lossy = plan.delivery == AT_MOST_ONCE

    def run(self, batch: Batch, begun: Begun) -> BatchOutcome:
        """Run a batch.

        `begun` is called before the first output that would write the batch twice if it ran again; with
        `batch.whole` everything is computed before that. Raises errors of sources, of the user's functions
        and of outputs, and LostLockError.
        """
        with spending(Phase.SOURCE):
            self._require_own()
            self._steps.check_partitions()
            self._steps.check_sources(batch.offsets)
            taken = self._inputs.taken(batch.offsets)
        written = self._run_branches(batch, self._inputs.bytes_of(taken), begun)
        self._observe(batch, written)
        after_ms = _latest(batch.clock_ms, self._steps.clock_after(batch.offsets, batch.watermark_ms))
        with spending(Phase.CHANNEL):
            self._require_own()
            self._append(batch, written, after_ms)
        counts = self._counted(batch, written)
        took_ms = monotonic_ms() - batch.planned_ms
        maybe_crash(CrashPoint.BEFORE_COMMIT)
        self._require_own()  # the last look before Spark commits
        return BatchOutcome(batch.id, batch.offsets, after_ms, counts, taken, took_ms, written.reached)

    def run_final(self, batch_id: int) -> Counts:
        """Run one more, empty batch, which passes Tasks the final clock and stops them; returns its counts.

        All of it is computed: if its outputs have it from before a crash, they would not compute it.
        """
        self._require_own()
        batch = Batch(self._branches.empty(), batch_id, FINAL_CLOCK_MS, final=True, may_have_run=True)
        written = self._branches.run(batch, ignore_begun)
        self._branches.append(batch_id, written, FINAL_CLOCK_MS)
        return written.counts

    @property
    def has_final_batch(self) -> bool:
        """Whether one more, empty batch follows Spark's last."""
        return any(n.operation.hears_end for n in self._branches.nodes)

    # -- the steps -----------------------------------------------------------------------------------

    def _run_branches(self, batch: Batch, size_bytes: int, begun: Begun) -> BranchResult:
        if self._must_skip(batch):
            written, rows = self._branches.skip(batch)
            note_skipped(self._directory, batch.id, rows)
            return written
        if self._trunk.only_at_end and not self._inputs.end_with(batch.offsets):
            self._branches.advance(batch)
            return BranchResult()
        with taking(size_bytes, batch.partitions, batch.held_rows):
            return self._branches.run(batch, begun)

    def _must_skip(self, batch: Batch) -> bool:
        """Whether no output may get a batch, because one may have got it before a crash (at most once)."""
        if not batch.may_have_run:
            return False
        if skipped_batches(self._directory).not_begun == batch.id:
            note_not_begun(self._directory, NO_BATCH)  # from now on an output may have it
            return False
        return self._is_lossy

    def _observe(self, batch: Batch, written: BranchResult) -> None:
        newest = {**written.newest, **self._steps.clock.observed_in_trunk(batch.query)}
        self._steps.observe(newest, batch.offsets, batch.id, batch.planned_ms)

    def _append(self, batch: Batch, written: BranchResult, clock_ms: int | None) -> None:
        """Append to the channels; with the final clock only if no final batch follows."""
        if self.has_final_batch and clock_ms == FINAL_CLOCK_MS:
            clock_ms = FINAL_CLOCK_MS - 1
        self._branches.append(batch.id, written, clock_ms)
        self._flow.appended()

    def _counted(self, batch: Batch, written: BranchResult) -> Counts:
        counts = written.counts
        for id, count in skipped_in_trunk(batch.query, self._trunk.skipping).items():
            counts.add(counts.skipped, id, count)
        return counts


def _latest(before_ms: int | None, after_ms: int | None) -> int | None:
    """The larger clock: the clock never moves back."""
    return max((ms for ms in (before_ms, after_ms) if ms is not None), default=None)
