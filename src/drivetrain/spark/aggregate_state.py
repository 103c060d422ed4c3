"""What Spark's native aggregates keep, as values.

Problem: Spark's state reader gives the buffers of an aggregation, not its results: a mean is a sum and a
count.

Design: of the aggregations whose buffers are plain, the results are computed here as Spark does; the others
are refused by name. The buffers of one aggregation stand side by side, in the order of the aggregations.

Called by `state_query`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from drivetrain.api.graph import Aggregate
from drivetrain.api.monoids import Aggregation
from drivetrain.core.two_state import Span
from drivetrain.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import Row

_WIDTHS: Final = {"count": 1, "sum": 1, "min": 1, "max": 1, "avg": 2}


def aggregate_values(
    operation: Aggregate, rows: Iterable[Row], processor: str
) -> Iterator[tuple[tuple[Any, ...], Span | None, Any]]:
    """Key, window and value of each row of Spark's state reader; several aggregations give a mapping by name.

    Raises `UserError` for aggregations and windows whose state says nothing by itself.
    """
    if operation.window.kind == "session":
        raise UserError(f"{processor} has sessions, whose states cannot be asked for")
    kinds = [(name, _kind(aggregation, processor)) for name, aggregation in operation.aggregations]
    width = len(operation.keys)
    running = operation.window.kind == "global" and operation.window.emission == "accumulating"
    # Running results keep the newest timestamp, too.
    expected = sum(_WIDTHS[kind] for _, kind in kinds) + running
    for row in rows:
        key, buffers = tuple(row["key"]), list(row["value"])
        if len(buffers) != expected:
            raise UserError(
                f"the states of {processor} cannot be told",
                expected=f"{expected} values in Spark's state: counts, sums of whole or floating numbers, …",
                got=f"{len(buffers)}, as of sums of decimals",
            )
        values = {}
        for name, kind in kinds:
            mine, buffers = buffers[: _WIDTHS[kind]], buffers[_WIDTHS[kind] :]
            values[name] = _mean(*mine) if kind == "avg" else mine[0]
        windows = [part for part in key if _is_window(part)] if operation.window.kind != "global" else []
        named = tuple(part for part in key if not windows or part is not windows[0])[:width]
        window = (_ms(windows[0][0]), _ms(windows[0][1])) if windows else None
        yield named, window, values if len(values) > 1 else next(iter(values.values()))


def _kind(aggregation: Any, processor: str) -> str:
    op = aggregation.column.op if isinstance(aggregation, Aggregation) else ""
    kind = op.removeprefix("function:")
    if kind in _WIDTHS:
        return str(kind)
    raise UserError(
        f"the state of {aggregation} in {processor} says nothing by itself",
        expected="count, sum, min, max and mean can be asked for",
        got=str(aggregation),
        remedy="let its results go to a sink, and ask there",
    )


def _mean(total: Any, count: int) -> Any:
    return total / count if count else None


def _is_window(part: Any) -> bool:
    return hasattr(part, "asDict") and list(part.asDict()) == ["start", "end"]


def _ms(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
