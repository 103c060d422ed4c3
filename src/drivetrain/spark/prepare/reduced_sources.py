"""Windows over an input that delivers partial results in place of messages; see `connector.reduction`.

Problem: it depends on all of a trunk whether messages are needed one by one: an operator between source and
window, another reader, a clock of partitions.

Design: a trunk qualifies if it is a source that marks its end, an event time that is one of its columns, and
an aggregation in tumbling windows whose keys and values are columns as they are; or if it is only such an
aggregation, of a channel. Their types must allow it. The state, the offsets and the clock are the same with
messages, so a query continues from either kind's checkpoint.

A source learns its reduction before it is opened, as it may choose its reader by it.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Aggregate, EventTime
from drivetrain.core.plan.plan import Fragment
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.channel.clocked import with_clock_of_partial_results
from drivetrain.spark.compile.partial_results import partial_values, plain_name
from drivetrain.spark.compile.surroundings import StatefulPlan
from drivetrain.spark.compile.windowed import BEFORE, first_window_ms, merged
from drivetrain.spark.connector.reduction import ROWS, Reduction
from drivetrain.spark.connector.source import OpenedSource
from drivetrain.spark.prepare.trunk import count_name
from drivetrain.spark.session.dataframe_calls import observing


@dataclass(frozen=True)
class ReducedPlan:
    """The plan of an aggregation over partial results of the source or channel `input`."""

    input: str
    plan: StatefulPlan


def reduction_of(graph: Graph, fragment: Fragment) -> Reduction | None:
    """What the fragment's aggregation needs of its only source, if the types of the messages allow it.

    None if it needs messages.
    """
    if fragment.stateful is None:
        return None
    *before, last = (graph.nodes[id] for id in fragment.trunk)
    if not isinstance(last.operation, Aggregate) or not before or before[0].operation.stream_source is None:
        return None
    return _reduction(before, last.operation) if _in_a_row(graph, [*before, last]) else None


def over_partial_results(
    node: Node, source: str, sources: Mapping[str, OpenedSource], reduction: Reduction | None
) -> ReducedPlan | None:
    """The plan of the aggregation `node` over partial results of a `source`; None if it needs messages."""
    operation = node.operation
    if reduction is None or not isinstance(operation, Aggregate) or source not in sources:
        return None
    df = sources[source].reduced(reduction) if sources[source].has_end_row else None
    return None if df is None else _merged(source, df, operation, reduction)


def over_partial_results_of_channel(
    node: Node, channel: str, columns: StructType, read: Callable[[str, Reduction], DataFrame]
) -> ReducedPlan | None:
    """The plan of `node`, a fragment's whole trunk, over partial results; None if it needs messages.

    `read` makes the stream of the channel, whose messages have these `columns`.
    """
    operation = node.operation
    if (
        not isinstance(operation, Aggregate) or BEFORE in columns.names
    ):  # whose windows depend on each message
        return None
    reduction = _by(operation, TS, 0, str(node), moves_clock=False)
    if reduction is None or not reduction.fits(columns):
        return None
    return _merged(channel, read(channel, reduction), operation, reduction)


def _merged(input: str, df: DataFrame, operation: Aggregate, reduction: Reduction) -> ReducedPlan:
    counted = observing(df, count_name(input), f"sum({ROWS}) AS n")
    clocked = with_clock_of_partial_results(counted, reduction.disorder_ms)
    return ReducedPlan(input, merged(operation, clocked, reduction.values))


def _reduction(before: Sequence[Node], operation: Aggregate) -> Reduction | None:
    timing = [node for node in before if node.operation.assigned_time is not None]
    if len(timing) != 1 or timing[0] is not before[-1]:
        return None
    time = timing[0].operation.assigned_time
    assert time is not None
    timestamp = plain_name(time.column)
    if timestamp is None or time.partition is not None:
        return None
    return _by(operation, timestamp, time.max_disorder_ms, str(timing[0]))


def _by(
    operation: Aggregate, timestamp: str, disorder_ms: int, where: str, *, moves_clock: bool = True
) -> Reduction | None:
    values = partial_values(operation)
    keys = tuple(name for name, key in operation.keys if plain_name(key) == name)
    if values is None or len(keys) < len(operation.keys):
        return None
    size_ms, first_ms = operation.window.size_ms, first_window_ms(operation.window)
    return Reduction(keys, values, timestamp, size_ms, first_ms, disorder_ms, where, moves_clock)


def _in_a_row(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether each processor has only the next one as its reader, and there is nothing else between."""
    if any(not isinstance(node.operation, EventTime) for node in nodes[1:-1]):
        return False
    return all(
        [reader.id for reader in graph.consumers(node.id)] == [after.id] and after.inputs == (node.id,)
        for node, after in pairwise(nodes)
    )
