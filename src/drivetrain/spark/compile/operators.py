"""How each operation is compiled: one line per operation.

The problem: a trunk, a batch's branches and a query in real-time mode compile the same operations in
different contexts. The design: a table by the operation's class, one for operations without state and one for
those with. Each entry is in the module of its family. To add an operation, add a class in `api.operations`
and a line here.

Called by `prepare.fragment`, `batch.branch_frames` and `batch.realtime_query`, which add the processor to
Spark's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import (
    Aggregate,
    AsyncMap,
    Deduplicate,
    Drop,
    EarlyResults,
    EventTime,
    Filter,
    FlatMap,
    Fold,
    JoinAsOf,
    JoinStream,
    JoinTable,
    LateMessages,
    LatePanes,
    Map,
    MatchPattern,
    Operation,
    Output,
    Process,
    Refine,
    Rename,
    Repartition,
    Sample,
    Select,
    SelectSql,
    Top,
    Union,
)
from drivetrain.errors import InternalError
from drivetrain.spark.compile import (
    as_of,
    deduplication,
    keyed,
    keyed_tasks,
    late,
    named_outputs,
    pattern_matching,
    persistent,
    sql,
    stateless,
    tasks,
    top,
    windowed,
)
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings

Stateless = Callable[[Node, Sequence[Frame], Surroundings], Frame]
Stateful = Callable[[Node, Sequence[Frame], Surroundings], StatefulPlan]


def _task(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    operation = node.operation
    assert isinstance(operation, Process)
    if operation.keyed is not None:
        return keyed_tasks.keyed_task(node, inputs, around)
    compiled = keyed.stateful_task if operation.persistent is None else persistent.persistent_task
    return compiled(node, inputs, around)


STATELESS: Final[Mapping[type[Operation], Stateless]] = {
    Map: stateless.map_messages,
    AsyncMap: stateless.async_map,
    FlatMap: stateless.flat_map,
    Filter: stateless.filter_messages,
    Select: stateless.select,
    SelectSql: sql.select_sql,
    Drop: stateless.drop,
    Rename: stateless.rename,
    EventTime: stateless.event_time,
    Union: stateless.union,
    Sample: stateless.sample,
    Repartition: stateless.repartition,
    JoinTable: stateless.join_table,
    LateMessages: late.late_messages,
    LatePanes: windowed.late_panes,
    Output: named_outputs.named_output,
    Process: tasks.stateless_task,
}

STATEFUL: Final[Mapping[type[Operation], Stateful]] = {
    Aggregate: windowed.aggregate,
    Top: top.top,
    EarlyResults: windowed.early,
    Refine: windowed.refine,
    JoinStream: windowed.join_streams,
    JoinAsOf: as_of.join_as_of,
    Deduplicate: deduplication.deduplicate,
    MatchPattern: pattern_matching.match_pattern,
    Fold: keyed.fold,
    Process: _task,
}


def compile_stateless(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The frame after a stateless processor."""
    compiled = STATELESS.get(type(node.operation))
    if compiled is None:
        raise InternalError(f"{type(node.operation).__name__} is not a stateless operator", where=str(node))
    return compiled(node, inputs, around)


def compile_stateful(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """The plan of a stateful processor."""
    compiled = STATEFUL.get(type(node.operation))
    if compiled is None:
        raise InternalError(f"{type(node.operation).__name__} keeps no state", where=str(node))
    return compiled(node, inputs, around)
