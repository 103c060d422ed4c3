"""A fragment in Spark's real-time mode: messages pass one by one, in milliseconds.

Problem: in that mode Spark passes no batches to Drivetrain. Its tasks run for a whole checkpoint interval,
read Kafka as messages come, and write to Kafka themselves; offsets are recorded after the interval.

Design: the branches are compiled into the streaming plan, after the trunk, and Spark's Kafka sink ends it.
Spark's report of each interval replaces the results of a batch: observed timestamps (the clock), the
numbers of messages, the offsets in its log. So everything here is as exact as elsewhere, but coarser in time:

- clock, counts, lag and the consumer group move once an interval;
- an idle partition is detected at the end of an interval, not in between;
- whether a topic was replaced is checked after an interval, not before it;
- draining does not wait for the end of the interval, which may be minutes away: messages since the last
  interval are delivered again, as at-least-once delivery allows.

Invariants:

1. The clock never moves back, and excludes intervals that Spark has not committed.
2. A fragment runs in this mode only if `core.plan.realtime` finds no obstacle.

Called by `execution`, instead of a `MicroBatchQuery`.

Source: the real-time mode of Apache Spark 4.1 and later.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.graphs.graph import Node
from drivetrain.connectors.kafka.kafka_sink import AtLeastOnceKafka
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.spark.batch.batch import BatchOutcome
from drivetrain.spark.batch.branch_frames import branch_nodes, data_of
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.batch.query_parts import QueryParts
from drivetrain.spark.batch.spark_engine import SparkQuery
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.operators import compile_stateless
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.prepare.replay_filter import since, skipped_name
from drivetrain.spark.prepare.source_clock import read_newest, with_newest_observed
from drivetrain.spark.prepare.trunk import Trunk, newest_name
from drivetrain.spark.session.offset_log import read_offsets
from drivetrain.spark.session.spark_errors import refusals_named


class TooFewCoresError(UserError):
    """Real-time mode needs a core for every partition, all of the time."""

    code = "too-few-cores"


class RealtimeQuery(FragmentQuery):
    """One fragment as a running query in real-time mode; `interval_ms` is its checkpoint interval."""

    def __init__(self, parts: QueryParts, interval_ms: int) -> None:
        super().__init__(parts)
        self._interval_ms = self.figures.trigger_ms = interval_ms
        self._sink_id = next(n.id for n in self.branches.nodes if n.operation.target is not None)
        self._sink = cast(AtLeastOnceKafka, self.branches.sinks[self._sink_id])
        self._reported: list[StreamingQueryProgress] = []

    # -- lifecycle ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query, or continue from the end of the last recorded interval."""
        self._recover()
        # Spark's connector cannot limit an interval's messages: only time ends it.
        stream = _stream(self.branches, self.fragment, self.trunk)
        writer = self._sink.stream(stream).queryName(f"{self.plan.application}/{self.fragment.id}")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).outputMode("update")
        self._query = SparkQuery(writer.trigger(realTime=f"{self._interval_ms} milliseconds").start())
        self.state = FragmentState.RUNNING

    def failure(self) -> DrivetrainError | None:
        """The error that stopped the query; None while it runs or if it was stopped."""
        if self._query is not None and not self._query.is_active and self.error is None:
            raised = self._query.exception()
            meant = self._sink.meant(raised) if isinstance(raised, Exception) else None
            if meant is not None:
                return meant
        return super().failure()

    def poll(self) -> None:
        """Process the intervals that Spark has committed since the last call."""
        if self._query is None:
            return
        # On a busy machine Spark reports an interval before its logs have it.
        self._reported += self.progress.read(self._query)
        while self._reported and (self.checkpoint / "commits" / str(self._reported[0].batchId)).exists():
            progress = self._reported.pop(0)
            if progress.batchId > self.batch_id:
                self._take_interval(progress)
        self._report_to_sources()

    def _take_interval(self, progress: StreamingQueryProgress) -> None:
        """The steps of a batch, without branches: Spark's tasks have written the messages."""
        try:
            self.require_own()
            _, offsets = read_offsets(self.checkpoint / "offsets" / str(progress.batchId))
            self.steps.check_sources(offsets)
            planned_ms = monotonic_ms() - int(progress.durationMs["triggerExecution"])
            self.steps.observe(self._newest(progress), offsets, progress.batchId, planned_ms)
            self.clock.looked()
            clock_ms = self.clock.after(0, offsets, ends_input=False)
            self._take(BatchOutcome(progress.batchId, tuple(offsets), clock_ms, self._counted(progress)))
            self.settled_clock_ms = self.clock_ms
            self.steps.check_partitions()
        except DrivetrainError as error:
            self.error = error
            self.stop()

    def _newest(self, progress: StreamingQueryProgress) -> dict[str, Newest]:
        observed = progress.observedMetrics
        ids = [id for id in self.fragment.processors if newest_name(id) in observed]
        return {id: read_newest(observed[newest_name(id)].asDict()) for id in ids}

    def _counted(self, progress: StreamingQueryProgress) -> Counts:
        observed, counts = progress.observedMetrics, Counts()
        for id in self.fragment.processors:
            if skipped_name(id) in observed:
                counts.add(counts.skipped, id, int(observed[skipped_name(id)].skipped or 0))
        counts.add(counts.into, self._sink_id, max(0, progress.sink.numOutputRows))
        return counts


def require_cores(plan: Plan, queries: dict[str, FragmentQuery], cores: int) -> None:
    """Raise `TooFewCoresError` when the fragments in real-time mode need more than `cores` at once."""
    needed = {
        id: sum(source.partitions for source in query.trunk.sources.values())
        for id, query in queries.items()
        if isinstance(query, RealtimeQuery)
    }
    if sum(needed.values()) > cores:
        raise TooFewCoresError(
            "real-time mode needs a core for every partition of its topics, all of the time",
            where=f"application {plan.application}",
            expected=f"{sum(needed.values())} cores: "
            + ", ".join(f"{n} for fragment {id}" for id, n in needed.items()),
            got=f"{cores}",
            remedy=f'give Spark more of them (spark.master="local[{sum(needed.values())}]" shares those of '
            "this machine), use topics with fewer partitions, or run in micro-batches",
        )


def _stream(branches: Branches, fragment: Fragment, trunk: Trunk) -> DataFrame:
    """The branches after the trunk as one streaming plan, up to the sink's input."""
    graph, context = branches.context.plan.graph, branches.context
    root, of = trunk.frame(trunk.df), branch_nodes(context, fragment, trunk)
    frames = {id: _timed(of.root, root, trunk, branches) for id in of.roots}
    sink: Node | None = None
    for node in of.nodes:
        if node.operation.target is not None:
            sink = node
            continue
        with refusals_named(str(node)):
            inputs = [frames[i] for i in node.inputs if i in frames]
            frame = compile_stateless(node, inputs, context.surroundings(node.id))
            if context.replay is not None and context.replay.drops_at(node.id):
                frame = since(frame, context.replay.from_ms, skipped_name(node.id), str(node))
            frames[node.id] = _timed(graph.nodes[node.id], frame, trunk, branches)
    assert sink is not None, "a fragment without a sink has an obstacle"
    return data_of(frames[sink.inputs[0]].resolved())


def _timed(node: Node, frame: Frame, trunk: Trunk, branches: Branches) -> Frame:
    """The frame, with its largest timestamps observed if `node` assigns them."""
    if node.operation.assigned_time is None or node.id in trunk.observed:
        return frame
    graph = branches.context.plan.graph
    return with_newest_observed(frame, node.id, newest_name(node.id), graph, trunk.sources)
