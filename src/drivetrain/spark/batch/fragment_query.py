"""The lifecycle of one fragment's query: how it starts, its position, its errors, how it ends.

Two kinds of queries share it: `MicroBatchQuery`, whose batches go through `pipeline`, and `RealtimeQuery`.
Both start from the last batch that Spark has committed; so a run that died between its last batch and its end
does not wait for a batch that never comes.

`fragment_clock` derives the clock from batches; `query_progress` evaluates Spark's reports about them.

Invariants:

1. The clock never moves back.
2. Position and clock change in one step (`_take`), so a polling thread never sees half of it.

Called by `execution`, which makes queries, and by the code that runs them (`spark.run.embedded`, executors).
"""

from __future__ import annotations

import dataclasses
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.core.clock.clock_service import WORK
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS, known_clock
from drivetrain.core.job.run_progress import FragmentProgressed, FragmentState
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.loss_record import loss_record, require_batch, with_losses
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.state.state_partitions import is_division
from drivetrain.spark.batch.batch import BatchOutcome
from drivetrain.spark.batch.fragment_clock import FragmentClock
from drivetrain.spark.batch.input_steps import InputSteps
from drivetrain.spark.batch.newest_bound import NewestBound
from drivetrain.spark.batch.newest_record import NewestRecord
from drivetrain.spark.batch.query_engine import RunningQuery
from drivetrain.spark.batch.query_figures import QueryFigures
from drivetrain.spark.batch.query_flow import QueryFlow
from drivetrain.spark.batch.query_inputs import QueryInputs
from drivetrain.spark.batch.query_parts import QueryParts
from drivetrain.spark.batch.query_progress import QueryProgress
from drivetrain.spark.batch.query_versions import QueryVersions
from drivetrain.spark.batch.skipped_batches import skipped_batches
from drivetrain.spark.connector.publishing import RollingSinks
from drivetrain.spark.session.offset_log import batch_numbers, committed, read_offsets
from drivetrain.spark.session.spark_errors import translated
from drivetrain.spark.session.spark_settings import counts_state_rows

if TYPE_CHECKING:
    from drivetrain.spark.batch.query_part import CheckpointPart

LONG_BATCH_MS = 5_000
"""From this duration on, the running batch is reported as what the clock waits for, instead of the input."""


class DrainedError(RuntimeError):
    """Ends a query between two batches, when the application is asked to stop."""


class BatchFailedError(RuntimeError):
    """The exception for Spark when a batch fails; the query keeps the error itself."""


class FragmentQuery:
    """One fragment as a query. Its owner calls `start`, then `poll` repeatedly, then `stop`."""

    def __init__(self, parts: QueryParts) -> None:
        self.engine = parts.engine
        self.plan, self.fragment, self.trunk = parts.plan, parts.fragment, parts.trunk
        self.branches, self.readers, self.counts = parts.branches, parts.readers, parts.counts
        self.directory = parts.directory
        self.checkpoint = self.directory / "checkpoint"
        plan, fragment, trunk, readers = self.plan, self.fragment, self.trunk, self.readers
        self.figures = QueryFigures(
            self.engine.cores,
            lambda: self.flow.blocked(),
            counts_rows=counts_state_rows(self.branches.context.config),
        )
        self.progress = QueryProgress(plan, fragment, trunk, readers, self.counts, self.figures)
        self.flow = QueryFlow(plan, fragment, self.branches.stores, readers, parts.book, self.progress)
        self.progress.notes.append(lambda progress: with_losses(progress, readers[progress.channel]))
        self.inputs = QueryInputs(fragment.id, trunk, readers, self.checkpoint)
        newest, bound = NewestRecord(self.directory), NewestBound(self.directory)
        self.clock = FragmentClock(plan, fragment, trunk, frozenset(readers), newest, bound)
        self.steps = InputSteps(plan, fragment, trunk, self.inputs, self.clock, self.counts)
        self.rolling = RollingSinks(self.branches.sinks.values(), self.released)
        self.state = FragmentState.STARTING
        self.clock_ms: int | None = None
        self.settled_clock_ms: int | None = None
        """The clock after the last batch that Spark has committed: the one after a restart."""
        self.batch_id = -1
        self.batches = 0
        self.busy = False
        self.planned_ms = 0
        """When Spark planned the running batch (monotonic)."""
        self.error: BaseException | None = None
        self.turn = threading.Lock()
        """Held by a batch while it runs, and by other threads to keep batches from running."""
        self.is_held = False
        """Whether no batch may begin, because other threads wait for the turn."""
        self.checkpoints: CheckpointPart | None = None
        """Its part in checkpoints of the application; set before the query starts."""
        self.versions: QueryVersions | None = None
        """The versions of the graph, if the query can switch between them; set before it starts."""
        self.replay_until = max(batch_numbers(self.checkpoint / "offsets"), default=-1)
        """The last batch that Spark may have run before this query; -1: none."""
        if self.replay_until <= committed(self.checkpoint):
            self.replay_until = -1
        self._query: RunningQuery | None = None
        self._outside: BaseException | None = None  # the error, if it did not come from a batch
        self._ran: tuple[int, int | None] = (-1, None)  # the last batch and the clock after it, set together
        self._draining = threading.Event()
        self._is_stopping = False  # the running batch is interrupted: what it raises is not its own error
        self._reported_batch = -1  # the last batch whose commit was reported to the sources

    # -- lifecycle -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query, or continue from its checkpoint."""
        raise NotImplementedError

    def poll(self) -> None:
        """Check Spark's progress and react; called repeatedly, in one thread."""
        raise NotImplementedError

    def go_on(self, before: FragmentQuery) -> None:
        """Continue the counts, and the trial, of an earlier query of the same run."""
        self.batches = before.batches
        self.progress.rows_total = before.progress.rows_total
        self.figures.go_on(before.figures.look(-1, None, ()))
        if self.versions is not None and before.versions is not None:
            self.versions.on_trial = before.versions.on_trial

    def drain(self) -> None:
        """Let the running batch finish, and stop before the next."""
        self._draining.set()

    def stop(self) -> None:
        """Stop the query now; the next attempt runs the uncommitted batch again."""
        self._end()
        if self.checkpoints is not None:
            self.checkpoints.close()
        if self.error is None or isinstance(self.error, DrainedError):
            self.rolling.pause()

    def require_own(self) -> None:
        """Raise LostLockError if another process runs the fragment by now."""
        self.branches.context.rundir.ownership.require(self.fragment.id)

    def fail(self, error: BaseException) -> None:
        """Stop the query because of an error that came from outside a batch."""
        if self.error is None:
            self.error = self._outside = error
        self._draining.set()
        self.interrupt()

    def interrupt(self) -> None:
        """Stop Spark's query now; an error that its running batch raises is not its own."""
        self._is_stopping = True
        if self._query is not None:
            self._query.stop()

    @property
    def has_failed(self) -> bool:
        """Whether there is an error, of a batch or from outside."""
        return self.error is not None

    @property
    def has_drained(self) -> bool:
        """Whether it has ended because it was asked to drain."""
        return isinstance(self.error, DrainedError)

    def forget_error(self) -> None:
        """Ignore an error of the last batch: the query has ended as it should."""
        self.error = None

    @property
    def active(self) -> bool:
        """Whether Spark still runs the query."""
        return self._query is not None and self._query.is_active

    @property
    def waits_for_data(self) -> bool:
        """Whether no batch runs, and the inputs have nothing new."""
        return self._query is not None and self._query.waits_for_data

    def failure(self) -> DrivetrainError | None:
        """The error that stopped the query, for the user; None while it runs or if it was drained."""
        if self._query is None or self._query.is_active:
            return None
        is_over = isinstance(self.error, DrainedError) or self.state is FragmentState.FINISHED
        if is_over and self._outside is None:
            return None
        # An error from outside comes first: the batch that it ended has drained, or failed because of it.
        error = self._outside or self.error or self._query.exception()
        if error is None:
            return None
        for source in self.trunk.sources.values():
            meant = source.explain(f"{error}\n{error.__cause__ or ''}")
            if meant is not None:
                return meant
        return translated(error, where=f"fragment {self.fragment.id}")

    def _end(self) -> None:
        self._is_stopping = True
        self._draining.set()  # so that a batch stops waiting for its subscribers
        for stored in self.trunk.stored.values():
            stored.ingest.stop()
        if self._query is not None:
            self._query.stop()
        self.branches.release()
        self.trunk.close()

    # -- position ------------------------------------------------------------------------------------

    @property
    def has_final_batch(self) -> bool:
        """Whether one more, empty batch follows Spark's last."""
        return False

    @property
    def newest_committed(self) -> int:
        """The newest batch that ran and that Spark has committed; -1: none."""
        return self.batch_id if self.is_committed() else self.batch_id - 1

    def is_committed(self) -> bool:
        """Whether Spark has committed the newest batch that ran."""
        return self.batch_id < 0 or self._has_committed(self.batch_id)

    def progressed(self) -> FragmentProgressed:
        """The fragment's progress, its channels included; for the polling thread."""
        entries = {id: self.inputs.entry(id) for id in self.readers}
        newest, silent = self.clock.newest_ms, self.clock.silent
        progress = self.progress.current(self.batch_id, self.clock_ms, entries, newest, silent)
        if self.plan.delivery != AT_MOST_ONCE:
            return progress
        return dataclasses.replace(progress, left_out=self._left_out())

    def waiting_for(self) -> str | None:
        """What its clock waits for, as text after "waiting for"; None if unknown."""
        if self.progress.blocked_by is not None:
            return f"room in front of {self.progress.blocked_by}"
        if self.busy and monotonic_ms() - self.planned_ms > LONG_BATCH_MS:
            return WORK
        return self.clock.waiting_for

    def _ran_without(self, channel: str, batch_id: int) -> bool:
        """Whether a batch ran with a version that has no such channel, and that has been rolled back since.

        Its messages went to that version alone.
        """
        since = None if self.versions is None else self.versions.since_of(batch_id)
        if since is None:
            return False
        stored = self.branches.context.rundir.versions
        try:
            record = stored.version(since.version)
        except InputError:
            return False  # then it is searched for like any other loss
        return all(channel not in record.channels(fragment) for fragment in record.fragments)

    def _require_batch(
        self, channel: str, store: ChannelStore, batch_id: int, *, has_none: bool = False
    ) -> None:
        """Raise MessageLossError when a channel lacks a batch's entry. With `has_none` the batch had no
        messages, and an empty entry is appended instead."""
        if ChannelBeginning(store.uri).is_open(store, batch_id):
            return
        if has_none or self._ran_without(channel, batch_id):
            last = store.last()  # an empty entry, so that no reader looks for messages that never existed
            store.append(batch_id, [], NO_CLOCK_MS if last is None else last.clock_ms)
        require_batch(store, batch_id)

    # -- for both kinds ------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Restore the position and the clock of the last committed batch, also from the channels' entries.

        Without this, a run that died between its last batch and its end would wait for a batch for ever.
        """
        newest = committed(self.checkpoint)
        appended = [_clock_until(store, newest) for store in self.branches.stores.values()]
        clocks = [known_clock(clock_ms) for clock_ms in appended]
        if not self.trunk.only_at_end:
            is_divided = is_division(self.checkpoint, newest)
            for id, store in self.branches.stores.items():
                if is_divided:  # a loss of the batch before it must not be hidden
                    self._require_batch(id, store, newest - 1)
                self._require_batch(id, store, newest, has_none=is_divided)
        self.clock.restore(newest)
        if newest >= 0:
            metadata, self.inputs.offsets = read_offsets(self.checkpoint / "offsets" / str(newest))
            self.batch_id = newest
            for id, source in self.trunk.sources.items():
                self.progress.counted[id] = source.position(self.inputs.offset(id)).done
            watermark_ms = int(metadata.get("batchWatermarkMs", 0))
            clocks.append(self.steps.clock_after(self.inputs.offsets, watermark_ms))
        self.clock_ms = max((c for c in clocks if c is not None), default=None)
        self.settled_clock_ms = self.clock_ms

    def _take(self, outcome: BatchOutcome) -> None:
        """Advance to the position after a batch, and add its counts."""
        self.counts.take(outcome.counts)
        self.inputs.offsets, self.batch_id = list(outcome.offsets), outcome.batch_id
        if outcome.clock_ms is not None and (self.clock_ms is None or outcome.clock_ms > self.clock_ms):
            # Not earlier: the final clock means that every batch was appended.
            self.clock_ms = outcome.clock_ms
        self._ran = (outcome.batch_id, self.clock_ms)
        self.batches += 1
        if outcome.reached and self.versions is not None:
            self.versions.note_reached(outcome.batch_id)

    def take_clock(self, clock_ms: int) -> None:
        """Advance the clock without a batch; called between batches."""
        self.clock_ms = self.settled_clock_ms = clock_ms
        self._ran = (self._ran[0], clock_ms)

    def _report_to_sources(self) -> None:
        """Report the end of committed batches to the sources."""
        if self.batch_id == self._reported_batch or not self.is_committed():
            return
        self._reported_batch = self.batch_id
        for id, source in self.trunk.sources.items():
            source.committed(self.inputs.offset(id))

    def _has_committed(self, batch_id: int) -> bool:
        return (self.checkpoint / "commits" / str(batch_id)).exists()

    def released(self) -> int | None:
        """The sinks' number of the newest batch that Spark does not run again; None: it does not run any
        again."""
        if self.branches.context.transactional or self.state is FragmentState.FINISHED:
            return None
        return self.branches.number(self.newest_committed)

    def _left_out(self) -> int:
        """Messages left out since the application began, in whole batches and by losses of channels."""
        lost = sum(loss_record(store).skipped_messages for store in self.readers.values())
        return skipped_batches(self.directory).messages + lost


def _clock_until(store: ChannelStore, batch_id: int) -> int:
    """The clock in a channel's entry of a batch or of one before it: later entries are appended again."""
    for number in range(store.length() - 1, store.start() - 1, -1):
        with suppress(
            MessageLossError
        ):  # its reader reports the loss; the clock of the entry before is never too late
            entry = store.entry(number)
            if entry.batch_id <= batch_id:
                return entry.clock_ms
    return NO_CLOCK_MS
