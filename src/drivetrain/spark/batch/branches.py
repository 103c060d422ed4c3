"""The branches of a fragment: everything after its trunk, run on each batch.

Problem: a batch goes to several outputs, and may run again after a crash, when some of them have it.

Design: the query engine computes the DataFrame of each output (`query_engine.CompiledBranches`). This module
decides which outputs are written, in which order, and which have the batch already.

A batch that Spark runs again after a crash must not be written twice: every output skips a batch id that it
has. But Spark's state must still advance, and the clock must be known: so a replayed batch is computed
completely, even if its outputs skip it.

A batch of a version on trial must not be shown in part. Computing it completely first would be another job of
Spark's. So channels get their segments first, which nobody sees before their entry, and the first sink is its
own proof if it shows whole batches. Only what other sinks read is computed before.

Invariants:

1. Every output of the fragment gets every message of a batch once, or has it already.
2. A channel's entry is appended after all sinks have published, so a later fragment never knows more
   than the sinks before it show.
3. If an output fails, the batch fails: Spark commits nothing, and it runs again.
4. With `batch.whole`, no sink shows any of a batch of which something else cannot be computed.

Called by `pipeline`, `execution` (`schemas`) and `spark.repair.rerun_batch` (`write_again`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.core.plan.delivery import AT_MOST_ONCE, EXACTLY_ONCE
from drivetrain.core.plan.plan import Fragment, Plan, PlannedChannel
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch.batch import Batch, Begun, BranchResult
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_engine import BatchFrames, CompiledBranches
from drivetrain.spark.connector.publishing import is_transactional
from drivetrain.spark.connector.sink import NumberedSinkWriter, SinkWriter, shows_whole_batches
from drivetrain.spark.measure.batch_times import Phase, spending
from drivetrain.spark.prepare.compile_context import CompileContext


def channel_store(plan: Plan, rundir: RunDirectory, fragment: str, id: str) -> ChannelStore:
    """The channel `id`, which a fragment writes."""
    # Not durable otherwise: if a power cut loses entries, that is detected, and they are repaired or left
    # out.
    return ChannelStore(rundir.channel(id), fragment=fragment, durable=plan.delivery == EXACTLY_ONCE)


class Branches:
    """Runs the branches of one fragment on batches, in order.

    `sinks` are keyed by processor id (those of other fragments are not used); `stores` are keyed by channel
    id, and shared by all versions of the branches of one query; `letters` takes the dead letters.
    """

    def __init__(
        self,
        context: CompileContext,
        fragment: Fragment,
        compiled: CompiledBranches,
        sinks: Mapping[str, SinkWriter],
        stores: dict[str, ChannelStore],
        letters: ChannelStore,
        counts: Counts,
    ) -> None:
        self.context = context
        self.stores = stores
        self.letters = letters
        self.counts = counts
        self.nodes = _nodes(context, fragment)
        self.sinks = {node.id: sinks[node.id] for node in self.nodes if node.id in sinks}
        self.channels = context.plan.outputs(fragment.id)
        self.first_batch = context.rundir.places.first_batch(fragment.id)
        self.compiled = compiled

    # -- one batch -----------------------------------------------------------------------------------

    def run(self, batch: Batch, begun: Begun) -> BranchResult:
        """Write a batch to the sinks, the dead letters and new segments, which `append` publishes.

        `begun` is called before the first output that would write the batch twice if it ran again.
        """
        with self.counts.user.active(), self._planned(batch) as frames:
            # An entry may come from the final batch of an earlier run, which had the same id.
            has_entry = any(batch.id <= self.stores[c.id].last_batch() for c in self.channels)
            early = None
            if batch.may_have_run or has_entry or (batch.whole and not self._has_proof):
                frames.compute()
            elif batch.whole:
                frames.compute(self._shown_later())
                early = self._write_segments(batch, frames)  # no reader sees them before their entry
            self._write_sinks(batch, frames, begun)
            self._write_letters(batch, frames)
            segments = self._write_segments(batch, frames) if early is None else early
            counts = Counts()
            self._count_channels(frames, segments, counts)
            frames.add_counts(counts)
            return BranchResult(segments, frames.newest(), counts, frames.reached())

    @property
    def _has_proof(self) -> bool:
        """Whether a batch may fail in its first sink, and still run again with another version.

        At most once it may not, since a sink that has begun may have shown something. During a handover, the
        sinks of the old version may read from other processors than those of the new one.
        """
        return self.context.plan.delivery != AT_MOST_ONCE and self.context.handing_over is None

    def _shown_later(self) -> set[str]:
        """The processors that sinks read, without those of which the first sink is the proof.

        It computes all of a batch before it shows any of it, so that nothing is shown if that fails.
        """
        showing = [node for node in self.nodes if _shows(node)]
        read = {id for node in showing for id in node.inputs}
        for first in showing[:1]:
            if first.operation.target is None or shows_whole_batches(self.sinks[first.id]):
                read -= set(first.inputs)
        return read

    @contextmanager
    def _planned(self, batch: Batch) -> Iterator[BatchFrames]:
        with ExitStack() as release:
            with spending(Phase.PLANNING):
                frames = release.enter_context(self.compiled.frames(batch))
            yield frames

    def skip(self, batch: Batch) -> tuple[BranchResult, int]:
        """Run a batch only for Spark's state, with an empty entry in channels; also returns its number of
        rows."""
        rows = self.advance(batch)
        missing = [c.id for c in self.channels if batch.id > self.stores[c.id].last_batch()]
        return BranchResult({id: [] for id in missing}), rows

    def advance(self, batch: Batch) -> int:
        """Run a batch only for Spark's state, and emit nothing; returns the number of rows from the trunk."""
        return self.compiled.advance(batch.df)

    def empty(self) -> DataFrame:
        """A batch without messages."""
        return self.compiled.empty()

    def append(self, batch_id: int, written: BranchResult, clock_ms: int | None) -> None:
        """Publish a batch to the channels, with the fragment's clock after it."""
        for channel in self.channels:
            store = self.stores[channel.id]
            if channel.id in written.segments:
                last = store.last()
                before_ms = NO_CLOCK_MS if last is None else last.clock_ms
                clock = before_ms if clock_ms is None else max(clock_ms, before_ms)
                store.append(batch_id, written.segments[channel.id], clock)

    def newest(self) -> dict[str, int]:
        """The newest batch, as Spark numbers it, of each channel, and of each sink whose target shows it."""
        sinks = {id: sink for id, sink in self.sinks.items() if isinstance(sink, NumberedSinkWriter)}
        found = {f"channel {id}": store.last_batch() for id, store in self.stores.items()}
        return found | {f"sink {id}": sink.newest() - self.first_batch for id, sink in sinks.items()}

    # -- without outputs -----------------------------------------------------------------------------

    def write_again(
        self, batch: Batch, channel: PlannedChannel, store: ChannelStore, folder: str
    ) -> list[Segment]:
        """Write the messages of a batch for one channel as new segments in `folder`; no other output."""
        with self.counts.user.active(), self.compiled.frames(batch) as frames:
            return frames.segments(channel, store, folder)

    def schemas(self) -> dict[str, StructType]:
        """The schema of each channel: analysed, not run."""
        try:
            with self.counts.user.active():
                return self.compiled.schemas()
        finally:
            self.release()  # perhaps they are only checked, and never run

    def release(self) -> None:
        """Free what is kept of large functions for the next batch; no batch may be running."""
        self.compiled.release()

    # -- outputs -------------------------------------------------------------------------------------

    def _write_sinks(self, batch: Batch, frames: BatchFrames, begun: Begun) -> None:
        for node in self.nodes:
            if node.operation.target is not None:
                sink = self.sinks[node.id]
                maybe_crash(CrashPoint.BEFORE_SINK)
                if sink.guarantee != EXACTLY_ONCE:
                    begun()
                with spending(Phase.SINK, node.id):
                    written = self._write(sink, self._for_sink(frames, node), self.number(batch.id))
                begun()
                maybe_crash(CrashPoint.AFTER_SINK)
                # Counted at once: if the batch runs again, a sink that already has it reports no rows.
                self.counts.add(self.counts.into, node.id, written)
            elif _shows(node):
                frames.log(node)

    def _for_sink(self, frames: BatchFrames, node: Node) -> DataFrame:
        with spending(Phase.PLANNING):
            return frames.for_sink(node)

    def _write(self, sink: SinkWriter, df: DataFrame, number: int) -> int:
        """Give a sink its rows of a batch: to show, or to keep until the checkpoint's COMMIT."""
        if self.context.transactional and is_transactional(sink):
            return sink.prepare(df, number)
        return sink.write(df, number)

    def _write_segments(self, batch: Batch, frames: BatchFrames) -> dict[str, list[Segment]]:
        """The segments of each channel that does not have the batch yet."""
        segments: dict[str, list[Segment]] = {}
        for channel in self.channels:
            store = self.stores[channel.id]
            if batch.id > store.last_batch():
                with spending(Phase.CHANNEL):
                    segments[channel.id] = frames.segments(channel, store)
        return segments

    def _count_channels(
        self, frames: BatchFrames, segments: Mapping[str, list[Segment]], counts: Counts
    ) -> None:
        """Count the messages in a processor's channel as emitted; several channels get the same messages.

        Sources report what they emit themselves.
        """
        nodes = self.context.plan.graph.nodes
        first = {channel.producer: channel.id for channel in reversed(self.channels)}
        for producer, channel_id in first.items():
            is_source = nodes[producer].operation.stream_source is not None
            if channel_id in segments and not is_source and not frames.counts_emitted(producer):
                rows = sum(segment.rows for segment in segments[channel_id])
                counts.add(counts.out, producer, rows)

    def _write_letters(self, batch: Batch, frames: BatchFrames) -> None:
        number = self.number(batch.id)
        if not frames.has_letters or number <= self.letters.last_batch():
            return
        segments = frames.letter_segments(self.letters, number, self.counts)
        if segments:
            last = self.letters.last()
            self.letters.append(number, segments, NO_CLOCK_MS if last is None else last.clock_ms)

    def number(self, batch_id: int) -> int:
        """The batch's number for outputs; these numbers continue through all lives of the application."""
        return self.first_batch + batch_id


def _shows(node: Node) -> bool:
    """Whether it is a sink or a log, which shows messages."""
    return node.operation.ends_stream and not node.operation.is_subscription


def _nodes(context: CompileContext, fragment: Fragment) -> list[Node]:
    """The processors of the branches, including those that only a version that hands over has."""
    nodes = [context.plan.graph.nodes[id] for id in fragment.branches]
    if context.handing_over is not None:
        old = context.handing_over.context.plan
        before = next(f for f in old.fragments if f.id == fragment.id)
        nodes += [old.graph.nodes[id] for id in before.branches if id not in fragment.branches]
    return nodes
