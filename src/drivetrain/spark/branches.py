"""The branches of a fragment: everything after its trunk, run on each batch.

Branches are compiled anew for every batch, on an ordinary DataFrame. Frames that more than one
consumer reads are kept for the batch, so that nothing runs twice.

A batch that Spark runs again after a crash must not be written twice: every output skips a batch id
that it has. But Spark's state must advance all the same, and the clock must be known: so a replayed
batch is computed whole, whatever its outputs skip.

Invariants:

1. Every output of the fragment gets every message of a batch once, or has it already.
2. A channel's entry is appended after all sinks have published, so that what is behind in the graph
   never knows more than the sinks before it show.
3. If an output fails, the batch fails: Spark commits nothing, and it runs again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.graph import (
    EventTime,
    Filter,
    FlatMap,
    Graph,
    Late,
    LatePanes,
    Log,
    Node,
    Process,
    Read,
    Refine,
    Write,
)
from drivetrain.core.channel import Segment
from drivetrain.core.delivery import EXACTLY_ONCE
from drivetrain.core.plan import Fragment, PlannedChannel
from drivetrain.spark.at_driver import SmallBatches, observed
from drivetrain.spark.channel.columns import TS
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.channel.writer import DRIVER_BYTES, write_segments
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.late import BEFORE_ALL_MS, late_messages
from drivetrain.spark.compile.stateless import apply
from drivetrain.spark.compile.tasks import TO, stateless_task, with_task
from drivetrain.spark.compile.windowed import BEFORE, late_panes
from drivetrain.spark.compile_context import CompileContext
from drivetrain.spark.counting import Counts
from drivetrain.spark.failures import refusals_named
from drivetrain.spark.fragment import without_bad
from drivetrain.spark.replayed import since
from drivetrain.spark.sinks import SinkWriter
from drivetrain.spark.sinks.publishing import is_transactional
from drivetrain.spark.source_clock import Newest, observe_newest, partitions_of, read_newest
from drivetrain.spark.trunk import Trunk

log = logging.getLogger("drivetrain.messages")


@dataclass
class Batch:
    """One batch on its way through the branches.

    `clock_ms` is the fragment's clock when the batch began; `replayed` says that Spark may have run it
    before, `final` that none follows. The rest is collected on the way.
    """

    df: DataFrame
    id: int
    clock_ms: int | None
    replayed: bool = False
    final: bool = False
    frames: dict[str, Frame] = field(default_factory=dict)
    newest: dict[str, Observation] = field(default_factory=dict)
    emitted: dict[str, Observation] = field(default_factory=dict)
    skipped: dict[str, Observation] = field(default_factory=dict)
    late: Observation | None = None
    letters: list[tuple[Node, DataFrame]] = field(default_factory=list)
    kept: list[DataFrame] = field(default_factory=list)
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    begun: bool = False
    """Whether an output may have something of it that it would take twice, or has it all."""


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
        self.trunk = trunk
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
        self.told_clock = clocked_consumers(graph)
        self.first_batch = context.rundir.life.first_batch
        self._small = {channel.id: SmallBatches(DRIVER_BYTES) for channel in self.channels}
        self._small_letters = SmallBatches(DRIVER_BYTES)

    # -- one batch -----------------------------------------------------------------------------------

    def run(self, batch: Batch) -> None:
        """Write a batch to the sinks, the dead letters and new segments; `append` publishes those."""
        with self.counts.user.active():
            self._run(batch)

    def _run(self, batch: Batch) -> None:
        try:
            self._build(batch)
            if batch.replayed:
                for id in sorted({i for n in self.nodes if _ends(n) for i in n.inputs} | self._producers()):
                    # Kept for the outputs that take it again: to load the state twice is what takes long.
                    batch.kept.append(batch.frames[id].df.persist())
                    batch.frames[id].df.write.format("noop").mode("overwrite").save()
            for node in self.nodes:
                if isinstance(node.operation, Write):
                    sink = self.sinks[node.id]
                    batch.begun = batch.begun or sink.guarantee != EXACTLY_ONCE
                    written = self._write(sink, _for_sink(node, batch), self._number(batch))
                    batch.begun = True
                    self.counts.add(self.counts.into, node.id, written)
                elif isinstance(node.operation, Log):
                    self._log(node, batch.frames[node.inputs[0]])
            self._write_letters(batch)
            for channel in self.channels:
                store = self.stores[channel.id]
                if batch.id > store.last_batch():
                    batch.segments[channel.id] = write_segments(
                        self.channel_frame(channel, batch), store, batch.id, small=self._small[channel.id]
                    )
            self._count_channels(batch)
            if batch.late is not None and (late := observed(batch.late).get("late")):
                self.counts.add(self.counts.late, self.root.id, late)
            for id, observation in batch.skipped.items():
                self.counts.add(self.counts.skipped, id, observed(observation).get("skipped") or 0)
            for id, observation in batch.emitted.items():
                self.counts.add(self.counts.out, id, observed(observation).get("n") or 0)
        finally:
            for df in batch.kept:
                df.unpersist()

    def _write(self, sink: SinkWriter, df: DataFrame, number: int) -> int:
        """Give a sink its rows of a batch: to show them, or to keep them until the checkpoint's COMMIT."""
        if self.context.transactional and is_transactional(sink):
            return sink.prepare(df, number)
        return sink.write(df, number)

    def _count_channels(self, batch: Batch) -> None:
        """What a processor gave to a channel is what it emitted; several channels get the same."""
        first = {channel.producer: channel.id for channel in reversed(self.channels)}
        for producer, channel_id in first.items():
            if producer not in batch.emitted and channel_id in batch.segments:
                rows = sum(segment.rows for segment in batch.segments[channel_id])
                self.counts.add(self.counts.out, producer, rows)

    def leave_out(self, batch: Batch) -> int:
        """Run a batch for Spark's state alone, with an empty entry in channels; says how many rows it had."""
        counted = Observation()
        batch.df.observe(counted, F.count(F.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
        for channel in self.channels:
            if batch.id > self.stores[channel.id].last_batch():
                batch.segments[channel.id] = []
        return observed(counted).get("n") or 0

    def newest(self, batch: Batch) -> dict[str, Newest]:
        """The largest timestamps that a batch gave each event time it assigned."""
        return {id: read_newest(observed(observation)) for id, observation in batch.newest.items()}

    def append(self, batch: Batch, clock_ms: int | None) -> None:
        """Publish a batch to the channels, with the fragment's clock after it."""
        for channel in self.channels:
            store = self.stores[channel.id]
            if channel.id in batch.segments:
                last = store.last()
                clock = max(clock_ms or 0, last.clock_ms if last is not None else 0)
                store.append(batch.id, batch.segments[channel.id], clock)

    def again(self, batch: Batch, channel: PlannedChannel, store: ChannelStore, folder: str) -> list[Segment]:
        """Write what a batch gave to one channel as new segments in `folder`, and do nothing else of it."""
        try:
            with self.counts.user.active():
                self._build(batch)
                return write_segments(self.channel_frame(channel, batch), store, batch.id, folder)
        finally:
            for df in batch.kept:
                df.unpersist()

    def schemas(self, df: DataFrame) -> dict[str, DataFrame]:
        """What each channel will carry, from an empty batch: analysed, not run."""
        batch = Batch(df, -1, None)
        try:
            with self.counts.user.active():
                self._build(batch)
            for node in self.nodes:
                if isinstance(node.operation, Write):
                    self.context.columns[node.id] = _ddl(data_of(batch.frames[node.inputs[0]]))
            for id, frame in batch.frames.items():
                self.context.columns[id] = _ddl(data_of(frame.resolved()))
            return {c.id: self.channel_frame(c, batch) for c in self.channels}
        finally:
            for kept in batch.kept:
                kept.unpersist()

    def channel_frame(self, channel: PlannedChannel, batch: Batch) -> DataFrame:
        """What a channel takes: data columns and a timestamp, without what is late for its reader."""
        df = batch.frames[channel.producer].df
        if TS not in df.columns:
            df = df.withColumn(TS, F.timestamp_millis(F.lit(0)))
        consumer = next(f for f in self.context.plan.fragments if f.id == channel.consumer_fragment)
        columns = [c for c in df.columns if not c.startswith("__")]
        if consumer.stateful in self.told_clock:
            before = F.lit(BEFORE_ALL_MS if batch.clock_ms is None else batch.clock_ms)
            return df.select(*columns, before.alias(BEFORE), TS)
        return df.select(*columns, TS)

    # -- frames --------------------------------------------------------------------------------------

    def _build(self, batch: Batch) -> None:
        df = batch.df
        if "payload" in df.columns and "late" in df.columns:  # packed by compile.keyed
            batch.late = Observation()
            df = df.observe(batch.late, F.sum("late").alias("late"))
        root = self.trunk.frame(df)
        if isinstance(self.root.operation, Read) and getattr(self.root.operation.source, "event_time", None):
            root = self._observe_newest(self.root.id, root, batch)
        settled = self._settled(self.root, root, batch)
        for id in self.roots:
            batch.frames[id] = settled
        for node in self.nodes:
            if not _ends(node):
                inputs = [batch.frames[i] for i in node.inputs if i in batch.frames]
                with refusals_named(str(node)):
                    batch.frames[node.id] = self._settled(node, self._apply(node, inputs, batch), batch)

    def _apply(self, node: Node, inputs: list[Frame], batch: Batch) -> Frame:
        if isinstance(node.operation, Process):
            return stateless_task(node, inputs, batch.clock_ms, self.context.run_id, last=batch.final)
        if isinstance(node.operation, Late):
            of = self.context.plan.graph.nodes[node.operation.of]
            return late_messages(of, inputs[0], batch.clock_ms, node.operation.lateness_ms)
        if isinstance(node.operation, LatePanes):
            return late_panes(node, inputs[0], batch.clock_ms)
        frame = apply(node, inputs, self.context.table, self.context.report(node.id))
        replay = self.context.replay
        if replay is not None and replay.drops_at(node.id):
            batch.skipped[node.id] = Observation()
            frame = since(frame, replay.from_ms, batch.skipped[node.id], str(node))
        if isinstance(node.operation, EventTime):
            return self._observe_newest(node.id, frame, batch)
        return frame

    def _observe_newest(self, id: str, frame: Frame, batch: Batch) -> Frame:
        batch.newest[id] = Observation()
        partitions = partitions_of(self.context.plan.graph, id, self.trunk.sources)
        return Frame(observe_newest(frame.df, batch.newest[id], partitions), (), frame.message)

    def _settled(self, node: Node, frame: Frame, batch: Batch) -> Frame:
        """The frame as its consumers may use it: counted, kept when several read it, without bad messages."""
        readers = [n for n in self.nodes if node.id in n.inputs]
        several = len(readers) + sum(c.producer == node.id for c in self.channels) > 1
        passes_on = not several and len(readers) == 1 and not _ends(readers[0])
        if frame.steps and passes_on and not any(s.dead_letter for s in frame.steps):
            return frame
        frame = frame.resolved()
        if isinstance(node.operation, Filter | FlatMap):
            batch.emitted[node.id] = Observation()
            counted = frame.df.observe(batch.emitted[node.id], F.count(F.lit(1)).alias("n"))
            frame = Frame(counted, (), frame.message)
        df, letters = without_bad(frame.df)
        if several or letters is not None:
            kept = frame.df.persist()
            batch.kept.append(kept)
            df, letters = without_bad(kept)
        if letters is not None:
            batch.letters.append((node, letters))
        return Frame(df, (), frame.message)

    def _producers(self) -> set[str]:
        return {c.producer for c in self.channels}

    def _number(self, batch: Batch) -> int:
        """How outputs that are for all lives of the application know a batch."""
        return self.first_batch + batch.id

    # -- outputs -------------------------------------------------------------------------------------

    def _log(self, node: Node, frame: Frame) -> None:
        assert isinstance(node.operation, Log)
        for row in data_of(frame).limit(node.operation.limit).collect():
            log.info("%s %s", node.id, row.asDict())

    def _write_letters(self, batch: Batch) -> None:
        number = self._number(batch)
        if not batch.letters or number <= self.letters.last_batch():
            return
        union: DataFrame | None = None
        for node, df in batch.letters:
            letter = letters_frame(node, df)
            union = letter if union is None else union.unionByName(letter)
            if count := df.count():
                self.counts.add(self.counts.dead, node.id, count)
        assert union is not None
        segments = write_segments(union, self.letters, number, small=self._small_letters)
        if segments:
            last = self.letters.last()
            self.letters.append(number, segments, last.clock_ms if last is not None else 0)


def clocked_consumers(graph: Graph) -> set[str]:
    """The stateful processors whose messages must carry the clock, because others read the late ones."""
    found = {n.operation.of for n in graph.nodes.values() if isinstance(n.operation, Late)}
    for node in graph.nodes.values():
        if isinstance(node.operation, Refine):
            found.add(node.id)
        if isinstance(node.operation, Refine | LatePanes):
            found.add(node.id.removesuffix("-late") + "-on-time")
    return found


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


def _ends(node: Node) -> bool:
    return isinstance(node.operation, Write | Log)


def data_of(frame: Frame) -> DataFrame:
    """What sinks are given of a frame: its columns without those that begin with `__`."""
    columns = frame.df.columns
    data = [c for c in columns if not c.startswith("__")]
    return frame.df if len(data) == len(columns) else frame.df.select(*data)


def _for_sink(node: Node, batch: Batch) -> DataFrame:
    """The messages of a sink, in the task that its partitioner chooses."""
    operation, frame = node.operation, batch.frames[node.inputs[0]]
    assert isinstance(operation, Write)
    if operation.partitioner is None or operation.partitioner.kind == "co-location":
        return data_of(frame)
    routed = with_task(frame.df, operation.partitioner, operation.parallelism, str(node))
    return data_of(Frame(routed.repartitionById(operation.parallelism, TO)))


def _ddl(df: DataFrame) -> str:
    return ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in df.schema.fields)
