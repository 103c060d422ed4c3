"""Persistent Tasks on Spark's keyed state: a state for each key, in buckets of keys.

Messages are packed by bucket before the shuffle (`persistent_packs`), as for folds (see `keyed`). A
bucket is one Spark group, and its state one value of bytes (`persistent_buckets`). This module connects them,
and checks the Task and its input.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import ArrayType, MapType, StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Process
from drivetrain.api.states.key_monoids import ColumnMonoid
from drivetrain.api.states.persistent import merges_only
from drivetrain.core.state.state_rules import StateRules
from drivetrain.errors import GraphError
from drivetrain.spark.compile.frame import Frame, message_class, require_column
from drivetrain.spark.compile.keyed import PACKED, UnpackResults, expander, kept_in_buckets
from drivetrain.spark.compile.named_outputs import ResultColumns
from drivetrain.spark.compile.persistent_buckets import PersistentFunction
from drivetrain.spark.compile.persistent_packs import ColumnPack, MessagePack, SumPack
from drivetrain.spark.compile.persistent_rules import rules_of
from drivetrain.spark.compile.python_work import MeasuredStage
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings
from drivetrain.spark.compile.windowed import require_timestamps


def persistent_task(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a persistent Task; the DataFrame holds packed results for `expand`."""
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    ready = [frame.resolved() for frame in inputs]
    for frame in ready:
        _require(node, frame)
    union = ready[0].df
    for frame in ready[1:]:
        union = union.unionByName(frame.df)
    columns = ready[0].columns
    rules = rules_of(operation)
    if isinstance(rules.monoid, ColumnMonoid):
        rules = replace(rules, monoid=_taking(rules.monoid, columns, ready[0].message))
    pack = _pack(node, rules, columns, ready[0])
    packed = union.mapInArrow(MeasuredStage(pack), PACKED)
    function = PersistentFunction(
        operation, node.id, str(node), rules, around.pictures, around.run_id, pack.form
    )
    out = kept_in_buckets(packed, function)
    results = ResultColumns.of(operation)
    unpack = UnpackResults(results, str(node))
    return StatefulPlan(out, expand=expander(unpack, results.schema, message_class(operation.type)))


def _taking(monoid: ColumnMonoid, columns: tuple[str, ...], message: type | None) -> ColumnMonoid:
    """The monoid for messages in the form of `messages_of`."""
    return replace(monoid, scalar=len(columns) == 1 and message is None)


def _require(node: Node, frame: Frame) -> None:
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    declared = operation.persistent
    if declared.state.window is not None:
        require_timestamps(frame, declared.state.window, str(node))
    if declared.state.step_ms is not None and not frame.timed:
        raise GraphError(
            "a state as of application times needs event time, and these messages have none",
            where=str(node),
            remedy='put .event_time("column", max_disorder="10 s") before it, or leave as_of out',
        )
    monoid = declared.state.monoid
    of = (monoid.column,) if isinstance(monoid, ColumnMonoid) and monoid.column is not None else ()
    for name in (*declared.keys, *of):
        purpose = "to tell keys by" if name in declared.keys else f"for {monoid}"
        require_column(name, frame.columns, str(node), purpose)


def _pack(
    node: Node, rules: StateRules[Any], columns: tuple[str, ...], frame: Frame
) -> MessagePack | ColumnPack | SumPack:
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    keys = operation.persistent.keys
    given = (operation, str(node), keys, columns, frame.message, frame.timed)
    if not _merges_only(operation):
        return MessagePack(*given)
    tumbles = rules.window is None or rules.window.kind == "tumbling"
    # Arrow cannot group by arrays, structs and maps.
    nested = any(isinstance(frame.df.schema[key].dataType, ArrayType | StructType | MapType) for key in keys)
    if isinstance(rules.monoid, ColumnMonoid) and keys and tumbles and not nested:
        return ColumnPack(*given, rules)
    return SumPack(*given, rules)


def _merges_only(operation: Process) -> bool:
    task = operation.task
    return merges_only(task if isinstance(task, type) else type(task()))
