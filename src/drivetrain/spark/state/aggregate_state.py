"""Reads the state of Spark's native aggregates as values.

Problem: Spark's state reader returns the buffers of an aggregation, not its results: a mean is a sum and a
count.

Design: aggregations with plain buffers are computed here as Spark does; the others are refused by name. The
buffers are in the order of the aggregations.

Called by `state_query`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.operations import Aggregate
from drivetrain.api.states.monoids import Aggregation
from drivetrain.core.state.state_rules import Span
from drivetrain.errors import UserError
from drivetrain.spark.channel.watermark import SHIFT_MS
from drivetrain.spark.connector.reduction import END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_WIDTHS: Final = {"count": 1, "sum": 1, "min": 1, "max": 1, "avg": 2}


def on_our_scale(states: DataFrame, size_ms: int) -> DataFrame:
    """Rows of Spark's state reader for `aggregate_values`: the end of a window of `size_ms` as its bounds in
    ms."""
    key: Any = states.schema["key"].dataType
    parts = []
    for field in key.fields:
        part = F.col("key").getField(field.name)
        if field.name == END:
            end = F.unix_millis(part) - SHIFT_MS
            part = F.struct((end - size_ms).alias("start"), end.alias("end"))
        parts.append(part.alias(field.name))
    return states.withColumn("key", F.struct(*parts))


def aggregate_values(
    operation: Aggregate, rows: Iterable[Row], processor: str
) -> Iterator[tuple[tuple[Any, ...], Span | None, Any]]:
    """Key, window and value of each row of `on_our_scale`; several aggregations give a mapping by name.

    Raises `UserError` for aggregations and windows whose state is not a result.
    """
    if operation.window.kind == "session":
        raise UserError(f"{processor} has session windows, whose states cannot be queried")
    kinds = [(name, _kind(aggregation, processor)) for name, aggregation in operation.aggregations]
    width = len(operation.keys)
    running = operation.window.kind == "global" and operation.window.emission == "accumulating"
    # Accumulating results also keep the newest timestamp.
    expected = sum(_WIDTHS[kind] for _, kind in kinds) + running
    for row in rows:
        key, buffers = tuple(row["key"]), list(row["value"])
        if len(buffers) != expected:
            raise UserError(
                f"the states of {processor} cannot be queried",
                expected=f"{expected} values in Spark's state: counts, sums of whole or floating numbers, …",
                got=f"{len(buffers)}, as of sums of decimals",
            )
        values = {}
        for name, kind in kinds:
            mine, buffers = buffers[: _WIDTHS[kind]], buffers[_WIDTHS[kind] :]
            values[name] = _mean(*mine) if kind == "avg" else mine[0]
        windows = [part for part in key if _is_window(part)] if operation.window.kind != "global" else []
        named = tuple(_plain(part) for part in key if not windows or part is not windows[-1])[:width]
        window = (windows[-1][0], windows[-1][1]) if windows else None
        yield named, window, values if len(values) > 1 else next(iter(values.values()))


def _kind(aggregation: Any, processor: str) -> str:
    op = aggregation.column.op if isinstance(aggregation, Aggregation) else ""
    kind = op.removeprefix("function:")
    if kind in _WIDTHS:
        return str(kind)
    raise UserError(
        f"the state of {aggregation} in {processor} cannot be queried",
        expected="count, sum, min, max or mean",
        got=str(aggregation),
        remedy="send its results to a sink, and query them there",
    )


def _mean(total: Any, count: int) -> Any:
    return total / count if count else None


def _plain(part: Any) -> Any:
    """A part of a key in the form in which functions get column values: a struct is a dict by field."""
    if hasattr(part, "asDict"):
        return {name: _plain(value) for name, value in part.asDict().items()}
    if isinstance(part, dict):
        return {_plain(name): _plain(value) for name, value in part.items()}
    return list(map(_plain, part)) if isinstance(part, list) else part


def _is_window(part: Any) -> bool:
    return hasattr(part, "asDict") and list(part.asDict()) == ["start", "end"]
