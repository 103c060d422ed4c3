"""Detects columns that need many messages, not one: aggregates, orderings, and functions over windows.

Problem: `filter(F.sum("n") > 1)` and `select(rank=F.row_number())` look like columns of one message. Spark
refuses them only when the application starts, with an error about its own plan.

Design: a recorded column is a tree of calls by name; SQL text is divided into tokens. Their names decide;
anything that is not known to need many messages is left to Spark.

Called by `column_arguments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from drivetrain.api.expressions.columns import Column
from drivetrain.api.expressions.sql.statement import AGGREGATES, aggregate_calls
from drivetrain.api.expressions.sql.tokens import tokens_of
from drivetrain.api.location import caller
from drivetrain.errors import GraphError

_AGGREGATES: Final = AGGREGATES | frozenset(
    """
    approxCountDistinct countDistinct count_distinct listagg_distinct product string_agg_distinct sumDistinct
    sum_distinct vector_avg vector_sum
    """.split()  # noqa: SIM905 - a list of words is easier to read
)
_RANKS: Final = frozenset(
    "row_number rank dense_rank percent_rank cume_dist ntile lag lead nth_value".split()  # noqa: SIM905
)
"""Functions that Spark allows only with OVER."""
_ORDERS: Final = frozenset(
    "asc asc_nulls_first asc_nulls_last desc desc_nulls_first desc_nulls_last".split()  # noqa: SIM905
)
_WINDOWS: Final = {"window": "tumbling", "session_window": "session"}


def require_of_one_message(column: Column) -> None:
    """Raise `GraphError` for a column that needs many messages, with the operator to use."""
    for part in _parts(column):
        kind, _, name = part.op.partition(":")
        if kind == "function" and name == "expr":
            _require_text(str(part.args[0]))
        elif kind == "function" and name in _AGGREGATES:
            raise _aggregates(str(part))
        elif name in _ORDERS:
            raise _order(str(part))
        elif (kind, name) == ("method", "over") or (kind == "function" and name in _RANKS):
            raise _ranks(str(part))


def require_no_window(column: Column) -> None:
    """Raise `GraphError` for a key that is one of Spark's windows, which ignore Drivetrain's clock."""
    for part in _parts(column):
        kind, _, name = part.op.partition(":")
        text = str(part.args[0]).strip() if (kind, name) == ("function", "expr") and part.args else ""
        called = text.partition("(")[0].strip().lower() if text else name if kind == "function" else ""
        if called in _WINDOWS:
            raise GraphError(
                "windows of event time cannot be keys here",
                where=f"group_by ({caller()})",
                expected=f'group_by(...).window(windows.{_WINDOWS[called]}("1 h")), which the clock fires',
                got=str(part),
            )


def _parts(column: Column) -> Iterator[Column]:
    """The column, and the columns that it is computed from."""
    yield column
    values: list[Any] = [*column.args, *(value for _, value in column.kwargs)]
    while values:
        value = values.pop()
        if isinstance(value, Column):
            yield from _parts(value)
        elif isinstance(value, list | tuple):
            values += value


def _require_text(text: str) -> None:
    tokens = tokens_of(text)
    calls = aggregate_calls(tokens)
    over = [n for n, token in enumerate(tokens[:-1]) if token.text.upper() == "OVER" and n]
    if any(tokens[n - 1].text == ")" for n in over):
        raise _ranks(text)
    if calls:
        raise _aggregates(text)


def _aggregates(got: str) -> GraphError:
    return GraphError(
        "this aggregates messages, and the operator takes one at a time",
        where=str(caller()),
        expected='group_by("key").window(...).aggregate(total=agg.sum("n"))',
        got=got,
    )


def _order(got: str) -> GraphError:
    return GraphError(
        "this is an order, and the operator takes a value",
        where=str(caller()),
        expected='top(n, by="price") for the largest, top(n, by="-price") for the smallest',
        got=got,
    )


def _ranks(got: str) -> GraphError:
    return GraphError(
        "this needs all messages of a group, sorted, and the operator takes one at a time",
        where=str(caller()),
        expected="top(n, by=...) of a window, deduplicate, match, or a KeyedTask with in_order = True",
        got=got,
    )
