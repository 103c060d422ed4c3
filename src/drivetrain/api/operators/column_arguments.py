"""The column arguments of a stream's operators, and their conversion.

Columns are given as names, SQL text, recorded columns or Python functions.

Called by `stream`, `passthrough_operators` and `grouped`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drivetrain.api.durations import milliseconds
from drivetrain.api.expressions.columns import Column, col, expr, require_free_names
from drivetrain.api.graphs.functions import function, name_of
from drivetrain.api.location import caller
from drivetrain.api.operations import EventTime, Function
from drivetrain.api.operators.multi_message_columns import require_of_one_message
from drivetrain.errors import GraphError

_CONSTANTS = ("true", "false", "null")


def event_time(
    column: Column | str,
    max_disorder: str,
    partition: Column | str | None,
    partitions: int | Iterable[int | str] | None,
    idle_timeout: str | None,
) -> EventTime:
    """The event time of `Stream.event_time`'s arguments; raises `GraphError` for a contradiction."""
    disorder_ms = milliseconds(max_disorder, "max_disorder")
    if partition is not None:
        idle_ms = milliseconds(idle_timeout or "30 s", "idle_timeout")
        names = _partition_names(partitions)
        return EventTime(as_column(column), disorder_ms, as_column(partition), names, idle_ms)
    if partitions is not None or idle_timeout is not None:
        raise GraphError(
            "partitions= needs a column with the partition of each message",
            where=str(caller()),
            expected='event_time("ts", partition="shard", partitions=4)',
        )
    return EventTime(as_column(column), disorder_ms)


def _partition_names(partitions: int | Iterable[int | str] | None) -> tuple[int | str, ...]:
    names = tuple(range(partitions)) if isinstance(partitions, int) else tuple(partitions or ())
    if not names or len(set(names)) != len(names) or len({type(name) for name in names}) > 1:
        raise GraphError(
            "partitions= of an event time cannot be read",
            where=str(caller()),
            expected='their number, or their names, each once: partitions=4, partitions=["eu", "us"]',
            got=repr(partitions),
        )
    return names


def require_names_of_columns(operator: str, names: Iterable[object], expected: str) -> None:
    """Raise `GraphError` unless there are names, and all are strings."""
    given = list(names)
    if not given or not all(isinstance(name, str) for name in given):
        raise GraphError(
            f"{operator} needs names of columns",
            where=str(caller()),
            expected=expected,
            got=", ".join(map(repr, given)) or "nothing",
        )


def require_keywords(operator: str, unnamed: Iterable[object], expected: str) -> None:
    """Raise `GraphError` if something was given without a name."""
    given = ", ".join(map(str, unnamed))
    if given:
        raise GraphError(
            f"{operator} needs a name for each column", where=str(caller()), expected=expected, got=given
        )


def as_column(value: Column | str) -> Column:
    """The column for a `Column`, a column's name, or SQL text. The words true, false and null are SQL.

    Raises `GraphError` for anything else, and for a column that needs more than one message.
    """
    if isinstance(value, Column):
        require_of_one_message(value)
        return value
    if not isinstance(value, str):
        raise GraphError(
            "not a column", where=str(caller()), expected="a column, or SQL text", got=repr(value)
        )
    if value.isidentifier() and value.lower() not in _CONSTANTS:
        return col(value)
    words = value.split()
    if len(words) == 2 and words[0].lower() != "not" and all(word.isidentifier() for word in words):
        raise GraphError(
            f"{value!r} is neither the name of a column nor an SQL expression",
            where=str(caller()),
            expected=f"col({value!r}) for the column of that name, {words[1]}={words[0]!r} for another name",
        )
    made = expr(value)
    require_of_one_message(made)
    return made


def named_columns(
    operator: str, positional: Iterable[Column | str], named: dict[str, Any]
) -> tuple[tuple[str | None, Column | Function], ...]:
    """The columns of an operator, from its positional arguments (which have no name) and its keywords."""
    out: list[tuple[str | None, Column | Function]] = []
    for c in positional:
        if not isinstance(c, Column | str):
            raise GraphError(
                "a function needs a name here",
                where=f"{operator} ({caller()})",
                expected=f"{operator}(name=function)",
                got=f"{operator}({name_of(c)})",
            )
        out.append((None, as_column(c)))
    require_free_names(named)
    for key, value in named.items():
        if isinstance(value, Column | str):
            out.append((key, as_column(value)))
        elif callable(value):
            out.append((key, function(operator, caller(), value, None)))
        else:
            raise GraphError(
                f"{key}= is neither a column nor a function",
                where=f"{operator} ({caller()})",
                expected="a column, SQL text or a function; lit(...) for a constant",
                got=repr(value),
            )
    if not out:
        raise GraphError(
            f"{operator} needs a column",
            where=str(caller()),
            expected=f'{operator}(total="price * 2")',
            got="nothing",
        )
    return tuple(out)
