"""A fragment in Spark's real-time mode: messages pass one by one, in milliseconds.

Problem: in that mode Spark hands no batch to anybody. Its tasks run on for a whole checkpoint interval, read
Kafka as messages come, and write to Kafka themselves; offsets are noted when the interval is over.

Design: the branches are compiled into the streaming plan, behind the trunk, and Spark's Kafka sink ends it.
What a batch would tell is told by what Spark reports of each interval: observed timestamps (the clock), the
numbers of messages, the offsets in its log. So everything here is as true as elsewhere, but coarser in time:

- clock, counts, lag and the consumer group move once an interval;
- an idle partition is found at the end of an interval, not in between;
- whether a topic was replaced is looked up after an interval, not before it;
- draining does not wait for the end of the interval, which may be minutes away: what came since the last one
  comes again. That is what at least once allows.

Invariants:

1. The clock never moves back, and says nothing of an interval that Spark has not committed.
2. A fragment runs so only if `core.realtime` finds no obstacle.

Called by `execution`, instead of a `FragmentQuery`.

Source: the real-time mode of Apache Spark 4.1 and later.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.graph import EventTime, Node, Read, Write
from drivetrain.core.plan import Plan
from drivetrain.core.progress import FragmentState
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.spark.branches import Branches, data_of
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.stateless import apply
from drivetrain.spark.failures import refusals_named
from drivetrain.spark.offset_log import read_offsets
from drivetrain.spark.query import FragmentQuery
from drivetrain.spark.replayed import since, skipped_name
from drivetrain.spark.sinks.kafka import AtLeastOnceKafka
from drivetrain.spark.source_clock import Newest, observe_newest, partitions_of, read_newest
from drivetrain.spark.trunk import Trunk, newest_name


class TooFewCoresError(UserError):
    """Real-time mode needs a core for every partition, all of the time."""

    code = "too-few-cores"


class RealtimeQuery(FragmentQuery):
    """One fragment as a running query in real-time mode; `interval_ms` is its checkpoint interval."""

    def __init__(self, *given: Any, interval_ms: int) -> None:
        super().__init__(*given)
        self._interval_ms = interval_ms
        self._sink_id = next(n.id for n in self.branches.nodes if isinstance(n.operation, Write))
        self._sink = cast(AtLeastOnceKafka, self.branches.sinks[self._sink_id])
        self._reported: list[StreamingQueryProgress] = []

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query, or go on from the end of the last interval that was noted."""
        self._recover()
        # Spark's connector takes no limit of an interval's messages: it is over when its time is.
        stream = _stream(self.branches, self.trunk)
        writer = self._sink.stream(stream).queryName(f"{self.plan.application}/{self.fragment.id}")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).outputMode("update")
        self._query = writer.trigger(realTime=f"{self._interval_ms} milliseconds").start()
        self.state = FragmentState.RUNNING

    def failure(self) -> DrivetrainError | None:
        """What stopped the query; None while it runs or when it was stopped."""
        if self._query is not None and not self._query.isActive and self.error is None:
            raised = self._query.exception()
            meant = None if raised is None else self._sink.meant(raised)
            if meant is not None:
                return meant
        return super().failure()

    def poll(self) -> None:
        """Take the intervals that Spark has committed since the last time."""
        if self._query is None:
            return
        # On a busy machine Spark reports an interval before its logs have it.
        self._reported += self.progress.read(self._query)
        while self._reported and (self.checkpoint / "commits" / str(self._reported[0].batchId)).exists():
            progress = self._reported.pop(0)
            if progress.batchId > self.batch_id:
                self._take(progress)
        self._tell_sources()

    def _take(self, progress: StreamingQueryProgress) -> None:
        try:
            _, offsets = read_offsets(self.checkpoint / "offsets" / str(progress.batchId))
            self._check_sources(offsets)
            observed = progress.observedMetrics
            ids = [id for id in self.fragment.processors if newest_name(id) in observed]
            newest: dict[str, Newest] = {id: read_newest(observed[newest_name(id)].asDict()) for id in ids}
            self._clock.saw(newest, monotonic_ms() - int(progress.durationMs["triggerExecution"]))
            self._clock.looked()
            self._note_newest(newest, offsets)
            for id in self.fragment.processors:
                if skipped_name(id) in observed:
                    self.counts.add(self.counts.skipped, id, int(observed[skipped_name(id)].skipped or 0))
            self.counts.add(self.counts.into, self._sink_id, max(0, progress.sink.numOutputRows))
            clock_ms = self._clock.after(0, offsets, ends_input=False)
            self._raise_clock(clock_ms)
            self.settled_clock_ms = self.clock_ms
            self.inputs.offsets, self.batch_id = offsets, progress.batchId
            self._ran = (self.batch_id, self.clock_ms)
            self.batches += 1
            self._refuse_when_outgrown()
        except DrivetrainError as error:
            self.error = error
            self.stop()


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


def _stream(branches: Branches, trunk: Trunk) -> DataFrame:
    """The branches behind the trunk as one streaming plan, up to what the sink takes."""
    graph, context = branches.context.plan.graph, branches.context
    root = trunk.frame(trunk.df)
    frames = {id: _timed(branches.root, root, trunk, branches) for id in branches.roots}
    sink: Node | None = None
    for node in branches.nodes:
        if isinstance(node.operation, Write):
            sink = node
            continue
        with refusals_named(str(node)):
            inputs = [frames[i] for i in node.inputs if i in frames]
            frame = apply(node, inputs, context.table, context.report(node.id))
            if context.replay is not None and context.replay.drops_at(node.id):
                frame = since(frame, context.replay.from_ms, skipped_name(node.id), str(node))
            frames[node.id] = _timed(graph.nodes[node.id], frame, trunk, branches)
    assert sink is not None, "a fragment without a sink has an obstacle"
    return data_of(frames[sink.inputs[0]].resolved())


def _timed(node: Node, frame: Frame, trunk: Trunk, branches: Branches) -> Frame:
    """The frame, with what its timestamps say observed if `node` assigns them."""
    operation = node.operation
    declared = isinstance(operation, Read) and getattr(operation.source, "event_time", None)
    if not (declared or isinstance(operation, EventTime)) or node.id in trunk.observed:
        return frame
    frame = frame.resolved()
    partitions = partitions_of(branches.context.plan.graph, node.id, trunk.sources)
    return Frame(observe_newest(frame.df, newest_name(node.id), partitions), (), frame.message)
