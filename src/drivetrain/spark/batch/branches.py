"""The branches of a fragment: everything after its trunk, run on each batch.

Branches are compiled anew for every batch, on an ordinary DataFrame (`branch_frames`). Here their outputs are
written: sinks, dead letters, and segments of channels.

A batch that Spark runs again after a crash must not be written twice: every output skips a batch id that it
has. But Spark's state must advance all the same, and the clock must be known: so a replayed batch is computed
whole, whatever its outputs skip.

Invariants:

1. Every output of the fragment gets every message of a batch once, or has it already.
2. A channel's entry is appended after all sinks have published, so that a later fragment never knows more
   than the sinks before it show.
3. If an output fails, the batch fails: Spark commits nothing, and it runs again.

Called by `pipeline`, `execution` (`schemas`) and `spark.repair.rerun_batch` (`write_again`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.graph import Graph, Node
from drivetrain.api.operations import Log, Write
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.core.plan.delivery import EXACTLY_ONCE
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.crash_points import CrashPoint, reached
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.batch import Batch, Begun, Written
from drivetrain.spark.batch.branch_frames import BranchFrames, BranchNodes, data_of
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.small_batches import SmallBatches, observed
from drivetrain.spark.channel.writer import DRIVER_BYTES, write_segments
from drivetrain.spark.checkpoints.publishing import is_transactional
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.late import BEFORE_ALL_MS
from drivetrain.spark.compile.tasks import TO, with_task
from drivetrain.spark.compile.windowed import BEFORE
from drivetrain.spark.connector.sink import SinkWriter
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.trunk import Trunk

log = logging.getLogger("drivetrain.messages")


class Branches:
    """Runs the branches of one fragment on batches, in order.

    `sinks` are keyed by processor id, `stores` by channel id; `letters` takes the dead letters.
    """

    def __init__(
        self,
        context: CompileContext,
        fragment: Fragment,
        trunk: Trunk,
        sinks: Mapping[str, SinkWriter],
        stores: Mapping[str, ChannelStore],
        letters: ChannelStore,
        counts: Counts,
    ) -> None:
        self.context = context
        self.sinks = sinks
        self.stores = stores
        self.letters = letters
        self.counts = counts
        graph = context.plan.graph
        self.nodes = [graph.nodes[i] for i in fragment.branches]
        self.channels = context.plan.outputs(fragment.id)
        read = [c.producer for c in context.plan.channels if c.consumer_fragment == fragment.id]
        self.roots = [*fragment.trunk[-1:], *(p for p in read if not fragment.trunk)]
        self.root = graph.nodes[self.roots[0]]
        self.clocked = clocked_consumers(graph)
        self.first_batch = context.rundir.life.first_batch
        self._compiled = BranchNodes(context, trunk, self.nodes, self.roots, self.root, self.channels)
        self._small = {channel.id: SmallBatches(DRIVER_BYTES) for channel in self.channels}
        self._small_letters = SmallBatches(DRIVER_BYTES)

    # -- one batch -----------------------------------------------------------------------------------

    def run(self, batch: Batch, begun: Begun) -> Written:
        """Write a batch to the sinks, the dead letters and new segments, which `append` publishes.

        `begun` is called before the first output that would take the batch again.
        """
        with self.counts.user.active(), BranchFrames(self._compiled, batch) as frames:
            if batch.replayed:
                frames.compute_all()
            self._write_sinks(batch, frames, begun)
            self._write_letters(batch, frames)
            segments = self._write_segments(batch, frames)
            self._count_channels(frames, segments)
            frames.add_counts(self.counts)
            return Written(segments, frames.newest())

    def skip(self, batch: Batch) -> tuple[Written, int]:
        """Run a batch for Spark's state alone, with an empty entry in channels; also returns its rows."""
        counted = Observation()
        batch.df.observe(counted, F.count(F.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
        missing = [c.id for c in self.channels if batch.id > self.stores[c.id].last_batch()]
        return Written({id: [] for id in missing}, {}), observed(counted).get("n") or 0

    def append(self, batch_id: int, written: Written, clock_ms: int | None) -> None:
        """Publish a batch to the channels, with the fragment's clock after it."""
        for channel in self.channels:
            store = self.stores[channel.id]
            if channel.id in written.segments:
                last = store.last()
                before_ms = NO_CLOCK_MS if last is None else last.clock_ms
                clock = before_ms if clock_ms is None else max(clock_ms, before_ms)
                store.append(batch_id, written.segments[channel.id], clock)

    # -- without outputs -----------------------------------------------------------------------------

    def write_again(
        self, batch: Batch, channel: PlannedChannel, store: ChannelStore, folder: str
    ) -> list[Segment]:
        """Write what a batch gave to one channel as new segments in `folder`, and do nothing else of it."""
        with self.counts.user.active(), BranchFrames(self._compiled, batch) as frames:
            return write_segments(self._channel_frame(channel, batch, frames), store, batch.id, folder)

    def schemas(self, df: DataFrame) -> dict[str, DataFrame]:
        """What each channel will carry, from an empty batch: analysed, not run."""
        batch = Batch(df, -1, None)
        with self.counts.user.active(), BranchFrames(self._compiled, batch) as frames:
            for node in self.nodes:
                if node.operation.target is not None:
                    self.context.columns[node.id] = _ddl(data_of(frames[node.inputs[0]]))
            for id, frame in frames.all.items():
                self.context.columns[id] = _ddl(data_of(frame.resolved()))
            return {c.id: self._channel_frame(c, batch, frames) for c in self.channels}

    # -- outputs -------------------------------------------------------------------------------------

    def _write_sinks(self, batch: Batch, frames: BranchFrames, begun: Begun) -> None:
        for node in self.nodes:
            if node.operation.target is not None:
                sink = self.sinks[node.id]
                reached(CrashPoint.BEFORE_SINK)
                if sink.guarantee != EXACTLY_ONCE:
                    begun()
                written = self._write(sink, _for_sink(node, frames[node.inputs[0]]), self.number(batch.id))
                begun()
                reached(CrashPoint.AFTER_SINK)
                self.counts.add(self.counts.into, node.id, written)
            elif node.operation.ends_stream:
                self._log(node, frames[node.inputs[0]])

    def _write(self, sink: SinkWriter, df: DataFrame, number: int) -> int:
        """Give a sink its rows of a batch: to show them, or to keep them until the checkpoint's COMMIT."""
        if self.context.transactional and is_transactional(sink):
            return sink.prepare(df, number)
        return sink.write(df, number)

    def _write_segments(self, batch: Batch, frames: BranchFrames) -> dict[str, list[Segment]]:
        """The segments of each channel that does not have the batch yet."""
        segments: dict[str, list[Segment]] = {}
        for channel in self.channels:
            store = self.stores[channel.id]
            if batch.id > store.last_batch():
                df = self._channel_frame(channel, batch, frames)
                segments[channel.id] = write_segments(df, store, batch.id, small=self._small[channel.id])
        return segments

    def _count_channels(self, frames: BranchFrames, segments: Mapping[str, list[Segment]]) -> None:
        """What a processor gave to a channel is what it emitted; several channels get the same."""
        first = {channel.producer: channel.id for channel in reversed(self.channels)}
        for producer, channel_id in first.items():
            if channel_id in segments and not frames.counts_emitted(producer):
                rows = sum(segment.rows for segment in segments[channel_id])
                self.counts.add(self.counts.out, producer, rows)

    def _channel_frame(self, channel: PlannedChannel, batch: Batch, frames: BranchFrames) -> DataFrame:
        """What a channel takes: data columns and a timestamp, without what is late for its reader."""
        df = frames[channel.producer].df
        if TS not in df.columns:
            df = df.withColumn(TS, F.timestamp_millis(F.lit(0)))
        consumer = next(f for f in self.context.plan.fragments if f.id == channel.consumer_fragment)
        columns = [c for c in df.columns if not c.startswith("__")]
        if consumer.stateful in self.clocked:
            before = F.lit(BEFORE_ALL_MS if batch.clock_ms is None else batch.clock_ms)
            return df.select(*columns, before.alias(BEFORE), TS)
        return df.select(*columns, TS)

    def _log(self, node: Node, frame: Frame) -> None:
        assert isinstance(node.operation, Log)
        for row in data_of(frame).limit(node.operation.limit).collect():
            log.info("%s %s", node.id, row.asDict())

    def _write_letters(self, batch: Batch, frames: BranchFrames) -> None:
        number = self.number(batch.id)
        if not frames.letters or number <= self.letters.last_batch():
            return
        union: DataFrame | None = None
        for node, df in frames.letters:
            letter = letters_frame(node, df)
            union = letter if union is None else union.unionByName(letter)
            if count := df.count():
                self.counts.add(self.counts.dead, node.id, count)
        assert union is not None
        segments = write_segments(union, self.letters, number, small=self._small_letters)
        if segments:
            last = self.letters.last()
            self.letters.append(number, segments, NO_CLOCK_MS if last is None else last.clock_ms)

    def number(self, batch_id: int) -> int:
        """The number by which outputs, which are for all lives of the application, know a batch."""
        return self.first_batch + batch_id


def clocked_consumers(graph: Graph) -> set[str]:
    """The stateful processors whose messages must carry the clock, because others read the late ones."""
    return {id for node in graph.nodes.values() for id in node.operation.clocked(node.id)}


def letters_frame(node: Node, df: DataFrame) -> DataFrame:
    """Dead letters of a processor: operator, message, file and line (of sources), error, timestamp."""
    of_source = F.col("__bad.line").isNotNull()
    return df.select(
        F.lit(str(node)).alias("operator"),
        F.col("__bad.raw").alias("message"),
        F.when(of_source, F.col("__bad.file")).alias("file"),
        F.col("__bad.line").alias("line"),
        F.col("__bad.error").alias("error"),
        (
            F.coalesce(TS, F.timestamp_millis(F.lit(0))) if TS in df.columns else F.timestamp_millis(F.lit(0))
        ).alias(TS),
    )


def _for_sink(node: Node, frame: Frame) -> DataFrame:
    """The messages of a sink, in the task that its partitioner chooses."""
    operation = node.operation
    assert isinstance(operation, Write)
    if operation.partitioner is None or operation.partitioner.kind == "co-location":
        return data_of(frame)
    routed = with_task(frame.df, operation.partitioner, operation.parallelism, str(node))
    return data_of(Frame(routed.repartitionById(operation.parallelism, TO)))


def _ddl(df: DataFrame) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields)
