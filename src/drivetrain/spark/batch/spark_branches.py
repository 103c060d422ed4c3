"""The branches of a fragment in Spark: the messages of a batch for sinks, channels and dead letters.

Problem: an output needs the messages of one processor with the columns that it can use, routed by its
partitioner, and small batches without a job of Python workers.

Design: branches are compiled again for every batch, on an ordinary DataFrame (`branch_frames`). This module
selects each output's part of that. `branches` decides which output is written, and when.

Called by `spark_engine`, which makes one per fragment and compilation; used by `branches`.
"""

from __future__ import annotations

import logging
from typing import Final

from pyspark.sql import DataFrame, Observation
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Log, Write
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.runtime.channel.columns import BAD, TS
from drivetrain.runtime.channel.segments import SEGMENTS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.branch_frames import BranchFrames, BranchNodes, branch_nodes, data_of
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.channel.writer import DRIVER_BYTES, write_segments
from drivetrain.spark.compile.compiled_parts import CompiledParts
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.late import BEFORE_ALL_MS
from drivetrain.spark.compile.tasks import distributed, with_task
from drivetrain.spark.compile.windowed import BEFORE
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import SmallBatches, observed, row_number
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.dataframe_calls import observing, selected, with_number
from drivetrain.spark.session.spark_text import literal, quoted

log = logging.getLogger("drivetrain.messages")


class SparkBranches:
    """The branches of `fragment`, after its `trunk`."""

    def __init__(self, context: CompileContext, fragment: Fragment, trunk: Trunk) -> None:
        self.context: Final = context
        self.of: Final = branch_nodes(context, fragment, trunk)
        self.clocked: Final = clocked_consumers(context.plan.graph)
        self.small: Final = {channel.id: SmallBatches(DRIVER_BYTES) for channel in self.of.channels}
        """Decides which batches of a channel come to the driver."""
        self.small_letters: Final = SmallBatches(DRIVER_BYTES)
        self.parts: Final = CompiledParts()
        """What is the same in each batch."""

    def frames(self, batch: Batch) -> SparkFrames:
        """Their DataFrames for a batch; released at the end."""
        return SparkFrames(self, self.of, batch)

    def release(self) -> None:
        """Free what large functions take; they are computed again if a batch follows."""
        self.parts.release()

    def empty(self) -> DataFrame:
        """A batch of the trunk without messages."""
        df = self.of.trunk.df
        return df.sparkSession.createDataFrame([], df.schema)

    def advance(self, df: DataFrame) -> int:
        """Run a batch only for Spark's state; returns the number of rows from the trunk."""
        counted = Observation()
        with computing():
            observing(df, counted, "count(1) AS n").write.format("noop").mode("overwrite").save()
        return observed(counted).get("n") or 0

    def schemas(self) -> dict[str, StructType]:
        """The schema of each channel, from an empty batch; Spark checks every operator."""
        columns = self.context.columns
        with self.frames(Batch(self.empty(), -1, None)) as frames:
            for node in self.of.nodes:
                if node.operation.target is not None:
                    columns[node.id] = _ddl(data_of(frames[node.inputs[0]]))
            for id, frame in frames.all.items():
                columns[id] = _ddl(data_of(frame.resolved()))
            return {channel.id: frames.for_channel(channel).schema for channel in self.of.channels}


class SparkFrames(BranchFrames):
    """The branches' DataFrames for one batch, output by output."""

    def __init__(self, branches: SparkBranches, of: BranchNodes, batch: Batch) -> None:
        super().__init__(of, batch, branches.parts)
        self._branches: Final = branches

    def for_sink(self, node: Node) -> DataFrame:
        """The messages of a sink, in the task that its partitioner chooses."""
        with self._parts.active():
            return routed(node, self[node.inputs[0]])

    def for_channel(self, channel: PlannedChannel) -> DataFrame:
        """The messages for a channel: data columns and a timestamp, without those late for its reader."""
        plan, clock_ms = self._branches.context.plan, self._batch.clock_ms
        df = self[channel.producer].df
        columns = [quoted(c) for c in df.columns if not c.startswith("__")]
        consumer = next((f for f in plan.fragments if f.id == channel.consumer_fragment), None)
        stamp = TS if TS in df.columns else f"timestamp_millis(0) AS {TS}"
        if consumer is None or consumer.stateful not in self._branches.clocked:
            return selected(df, *columns, stamp)
        before_ms = BEFORE_ALL_MS if clock_ms is None else clock_ms
        return with_number(selected(df, *columns, f"0L AS {BEFORE}", stamp), BEFORE, before_ms)

    def segments(self, channel: PlannedChannel, store: ChannelStore, folder: str = SEGMENTS) -> list[Segment]:
        """The messages for a channel, written as new segments; a repeated batch may be of any size."""
        return self.written(self.for_channel(channel), channel, store, folder)

    def written(
        self, df: DataFrame, channel: PlannedChannel, store: ChannelStore, folder: str
    ) -> list[Segment]:
        """The messages of `df` as new segments of a channel."""
        small = self._branches.small[channel.id] if folder == SEGMENTS else None
        return write_segments(df, store, self._batch.id, folder, small=small)

    @property
    def has_letters(self) -> bool:
        """Whether there may be dead letters in the batch."""
        return bool(self.letters)

    def letter_segments(self, letters: ChannelStore, number: int, counts: Counts) -> list[Segment]:
        """The dead letters, written as new segments."""
        union: DataFrame | None = None
        for node, df in self.letters:
            letter = letters_frame(node, df)
            union = letter if union is None else union.unionByName(letter)
            with computing():
                count = df.count()
            if count:
                counts.add(counts.dead, node.id, count)
        if union is None:
            return []
        return write_segments(union, letters, number, small=self._branches.small_letters)

    def log(self, node: Node) -> None:
        """Write the messages for a `Log` into the log."""
        assert isinstance(node.operation, Log)
        # Not `limit`: Spark would compute only as much as it needs, but its state must advance as a whole.
        df = data_of(self[node.inputs[0]])
        first = df.where(row_number() < node.operation.limit)
        with computing():
            rows = first.collect()
        for row in rows[: node.operation.limit]:
            log.info("%s %s", node.id, row.asDict())


def routed(node: Node, frame: Frame) -> DataFrame:
    """Messages for a sink, in the task that its partitioner chooses."""
    operation = node.operation
    assert isinstance(operation, Write)
    if operation.partitioner is None or operation.partitioner.kind == "co-location":
        return data_of(frame)
    chosen = with_task(frame.df, operation.partitioner, operation.parallelism, str(node))
    return data_of(Frame(distributed(chosen, operation.parallelism, str(node))))


def clocked_consumers(graph: Graph) -> set[str]:
    """The stateful processors whose messages must carry the clock, because others read the late ones."""
    return {id for node in graph.nodes.values() for id in node.operation.clocked(node.id)}


def letters_frame(node: Node, df: DataFrame) -> DataFrame:
    """Dead letters of a processor: operator, message, file and line (of sources), error, timestamp."""
    stamp = f"coalesce({TS}, timestamp_millis(0))" if TS in df.columns else "timestamp_millis(0)"
    return selected(
        df,
        f"{literal(str(node))} AS operator",
        f"{BAD}.raw AS message",
        f"if({BAD}.line IS NOT NULL, {BAD}.file, null) AS file",
        f"{BAD}.line AS line",
        f"{BAD}.error AS error",
        f"{stamp} AS {TS}",
    )


def _ddl(df: DataFrame) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields)
