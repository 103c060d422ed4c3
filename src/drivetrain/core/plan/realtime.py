"""Which fragments may run in Spark's real-time mode, and what stops the others.

Problem: in real-time mode Spark keeps its tasks running and passes on each message as it arrives, within
milliseconds instead of a batch. It supports few kinds of queries: from Kafka to Kafka, with expressions only.
A user who requests it must learn which operator prevents it, not merely that a plan was refused.

Design: a fragment's obstacles follow from its plan. There is no `foreachBatch` in that mode, so everything
that relies on whole batches is excluded: several outputs, channels, dead letters, the log, sinks that publish
whole batches. State is excluded too: Spark's streaming aggregations in update mode do not emit a window's
result once.

Invariants:

1. A fragment without obstacles has Kafka sources only, native operators, and one Kafka sink, at least once.
2. Every obstacle names one processor of the fragment.

Called by the planner, for the printout, and by layer `spark`, which refuses impossible plans.

Source: the real-time mode of Apache Spark 4.1 and later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import How
from drivetrain.api.sinks import Sink
from drivetrain.api.sources import Source
from drivetrain.core.plan.plan import Fragment, Obstacle, Plan, PlannedChannel
from drivetrain.errors import GraphError

_NATIVE = ("native", "lowered", "source", "sink")


def obstacles(
    graph: Graph, fragment: Fragment, channels: tuple[PlannedChannel, ...], how: Mapping[str, How]
) -> tuple[Obstacle, ...]:
    """Everything that keeps `fragment` from real-time mode, in the order of its processors.

    `how` holds how each processor runs, as far as it is known.
    """
    found: list[Obstacle] = []
    if graph.delivery == "at most once":
        first = fragment.processors[0]
        found.append(Obstacle(first, "may be repeated after a crash, and delivery is at most once"))
    writes = [id for id in fragment.processors if graph.nodes[id].operation.target is not None]
    for id in fragment.processors:
        why = _why_not(graph.nodes[id], how.get(id, "native"), stateful=id == fragment.stateful)
        if why is None and id in writes[1:]:
            why = f"is a second sink beside {writes[0]}, and a message is handed to one only"
        if why is not None:
            found.append(Obstacle(id, why))
    for channel in channels:
        if channel.producer_fragment == fragment.id:
            found.append(Obstacle(channel.producer, f"writes the channel {channel.id}, a batch at a time"))
        if channel.consumer_fragment == fragment.id:
            first = fragment.processors[0] if fragment.processors else fragment.id
            found.append(Obstacle(first, f"reads the channel {channel.id}, a batch at a time"))
    if not writes and not found:
        found.append(Obstacle(fragment.processors[-1], "leads to no sink"))
    return tuple(found)


def with_how(plan: Plan, how: Mapping[str, How]) -> Plan:
    """The plan with its obstacles updated to how Spark will run the processors."""
    known = {**{id: o.how for id, o in plan.operators.items()}, **how}
    found = {f.id: obstacles(plan.graph, f, plan.channels, known) for f in plan.fragments}
    return dataclasses.replace(plan, obstacles=found)


def require_realtime(plan: Plan, fragment: Fragment) -> None:
    """Raise `GraphError` if real-time mode is requested and the fragment cannot run in it."""
    found = plan.obstacles.get(fragment.id, ())
    if plan.latency != "realtime" or not found:
        return
    raise GraphError(
        "a fragment cannot run in Spark's real-time mode",
        where=str(plan.graph.nodes[found[0].processor]),
        expected="Kafka sources, Spark expressions, and one Kafka sink that gives at least once",
        got="; ".join(map(str, found)),
        remedy='change these, or choose latency="realtime where possible": such fragments then run in '
        "micro-batches",
    )


def _why_not(node: Node, how: How, *, stateful: bool) -> str | None:
    operation = node.operation
    if operation.stream_source is not None:
        return _source(operation.stream_source, sets_aside=operation.sets_aside)
    if operation.target is not None:
        return _sink(operation.target)
    if stateful:
        return "keeps state, whose results belong to whole batches"
    if operation.realtime_obstacle is not None:
        return operation.realtime_obstacle
    if operation.differs_by_batch:
        return "joins a table that is read again, a batch at a time"
    if how not in _NATIVE:
        return "runs in Python, which takes its messages in batches: write it with Spark expressions"
    if operation.sets_aside:
        return "may send messages to the dead letters, a batch at a time"
    return None


def _source(source: Source, *, sets_aside: bool) -> str | None:
    if not isinstance(source, Kafka):
        return "is not a Kafka source"
    if source.bounded:
        return "has an end, and real-time mode never ends: leave out end="
    if source.format in ("avro", "protobuf"):
        return f"reads {source.format} in Python, which takes its messages in batches"
    if sets_aside:
        return 'sets malformed messages aside, a batch at a time: choose on_bad_record="fail"'
    return None


def _sink(sink: Sink) -> str | None:
    if not isinstance(sink, KafkaSink):
        return "is not a Kafka sink"
    if sink.format in ("avro", "protobuf"):
        return f"writes {sink.format} in Python, which takes its messages in batches"
    if sink.guarantee != "at least once":
        return 'publishes a batch as one transaction: choose guarantee="at least once"'
    return None
