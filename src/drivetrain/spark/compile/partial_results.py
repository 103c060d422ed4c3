"""Aggregations whose partial results a source may deliver in place of messages (`connector.reduction`).

Problem: one aggregation is compiled over messages or over partial results, as its input changes in the course
of an application's life (a filter is added before it, say). Its state in Spark's checkpoint must stay the
same.

Design: an aggregation has `partial_values` if each of its results is a count, a sum, a minimum or a maximum
of a column as it is. A count of messages is then a sum of ones: the sum of partial counts has the same
state, which a count has not.

Invariants:

1. The state of an aggregation does not depend on whether its input is reduced.

Called by `windowed` and `prepare.reduced_sources`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.expressions.columns import Column
from drivetrain.api.operations import Aggregate
from drivetrain.api.states.monoids import Aggregation
from drivetrain.spark.connector.reduction import Function, PartialValue, name_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_COLUMNS: Final = re.compile(r"null|true|false|user|now|(current|local|session)_?[a-z]+", re.IGNORECASE)
"""Names that may mean something else than a column in SQL."""


def partial_values(operation: Aggregate) -> tuple[PartialValue, ...] | None:
    """The values of an aggregation in tumbling windows, in order; None if it has others than these."""
    if operation.window.kind != "tumbling":
        return None
    values = [_value(aggregation) for _, aggregation in operation.aggregations]
    return tuple(value for value in values if value is not None) if all(values) else None


def plain_name(column: object) -> str | None:
    """The name of a column that is recorded by its name alone; None for any other."""
    name = column
    if isinstance(column, Column):
        name = column.args[0] if column.op in ("function:col", "function:expr") else None
    is_name = isinstance(name, str) and _NAME.fullmatch(name) and not _NO_COLUMNS.fullmatch(name)
    return str(name) if is_name else None


def of_messages(values: Sequence[PartialValue]) -> list[SparkColumn]:
    """Spark's aggregates of messages."""
    return [_of_messages(value) for value in values]


def of_partial_results(values: Sequence[PartialValue]) -> list[SparkColumn]:
    """Spark's aggregates of partial results."""
    return [_merged(value, F.col(name_of(number))) for number, value in enumerate(values)]


def results(values: Sequence[PartialValue], names: Sequence[str]) -> list[SparkColumn]:
    """The results of the aggregates with these names: a count is never null."""
    return [
        F.coalesce(F.col(name), F.lit(0)).alias(name) if value.function == "count" else F.col(name)
        for value, name in zip(values, names, strict=True)
    ]


def _value(aggregation: object) -> PartialValue | None:
    if not isinstance(aggregation, Aggregation):
        return None
    column = aggregation.column
    function = column.op.removeprefix("function:")
    if function not in ("count", "sum", "min", "max") or column.kwargs or len(column.args) != 1:
        return None
    of = column.args[0]
    if function == "count" and isinstance(of, Column) and of.op == "function:lit" and of.args == (1,):
        return PartialValue("count")
    name = plain_name(of)
    return None if name is None else PartialValue(cast("Function", function), name)


def _of_messages(value: PartialValue) -> SparkColumn:
    if value.column is None:
        return F.sum(F.lit(1).cast("bigint"))
    column = F.col(value.column)
    if value.function == "count":
        return F.sum(F.when(column.isNotNull(), 1).otherwise(0).cast("bigint"))
    return _merged(value, column)


def _merged(value: PartialValue, column: SparkColumn) -> SparkColumn:
    match value.function:
        case "min":
            return F.min(column)
        case "max":
            return F.max(column)
        case _:
            return F.sum(column)
