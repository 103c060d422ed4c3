"""Windows over a source that delivers partial results in place of messages; see `connector.reduction`.

Problem: it depends on all of a trunk whether messages are needed one by one: an operator between source and
window, another reader, a clock of partitions.

Design: a trunk qualifies if it is a source that marks its end, an event time that is one of its columns, and
an aggregation in tumbling windows whose keys and values are columns as they are. The source decides whether
their types allow it. The state, the offsets and the clock are the same with messages, so a query continues
from either kind's checkpoint.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Aggregate, EventTime
from drivetrain.core.plan.plan import Fragment
from drivetrain.spark.channel.clocked import with_end_of_partial_results
from drivetrain.spark.compile.partial_results import partial_values, plain_name
from drivetrain.spark.compile.surroundings import StatefulPlan
from drivetrain.spark.compile.windowed import first_window_ms, merged
from drivetrain.spark.connector.reduction import ROWS, PartialValue, Reduction
from drivetrain.spark.connector.source import OpenedSource
from drivetrain.spark.prepare.trunk import count_name
from drivetrain.spark.session.dataframe_calls import observing


@dataclass(frozen=True)
class ReducedPlan:
    """The plan of an aggregation over partial results of `source`."""

    source: str
    plan: StatefulPlan


def over_partial_results(
    graph: Graph, fragment: Fragment, sources: Mapping[str, OpenedSource]
) -> ReducedPlan | None:
    """The plan of the fragment's aggregation over partial results; None if it needs messages."""
    *before, last = (graph.nodes[id] for id in fragment.trunk)
    operation = last.operation
    if not isinstance(operation, Aggregate) or not before or before[0].id not in sources:
        return None
    opened, values = sources[before[0].id], partial_values(operation)
    if values is None or not opened.has_end_row or not _in_a_row(graph, [*before, last]):
        return None
    reduction = _reduction(before, operation, values)
    df = None if reduction is None else opened.reduced(reduction)
    if reduction is None or df is None:
        return None
    counted = observing(df, count_name(before[0].id), f"sum({ROWS}) AS n")
    clocked = with_end_of_partial_results(counted, reduction.disorder_ms)
    return ReducedPlan(before[0].id, merged(operation, clocked, values))


def _reduction(
    before: Sequence[Node], operation: Aggregate, values: tuple[PartialValue, ...]
) -> Reduction | None:
    timing = [node for node in before if node.operation.assigned_time is not None]
    keys = tuple(name for name, key in operation.keys if plain_name(key) == name)
    if len(timing) != 1 or timing[0] is not before[-1] or len(keys) < len(operation.keys):
        return None
    time = timing[0].operation.assigned_time
    assert time is not None
    timestamp = plain_name(time.column)
    if timestamp is None or time.partition is not None:
        return None
    return Reduction(
        keys,
        values,
        timestamp,
        operation.window.size_ms,
        first_window_ms(operation.window),
        time.max_disorder_ms,
        str(timing[0]),
    )


def _in_a_row(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether each processor has only the next one as its reader, and there is nothing else between."""
    if any(not isinstance(node.operation, EventTime) for node in nodes[1:-1]):
        return False
    return all(
        [reader.id for reader in graph.consumers(node.id)] == [after.id] and after.inputs == (node.id,)
        for node, after in pairwise(nodes)
    )
