"""Message types: how Python annotations and dataclasses become types of Spark columns.

The return type that an operator's function declares determines the columns of the message:

| declared | columns |
|---|---|
| `str`, `int`, `float`, `bool`, `bytes`, `datetime`, `date`, `Decimal` | one, named `value` |
| `list[T]`, `dict[K, V]` | one, named `value` |
| `tuple[K, V]` | two, named `key` and `value` |
| a dataclass or a `NamedTuple` | one per field |
| a DDL string such as `"carrier string, delay double"` | those of the schema |

`T | None` is the same as `T`, because columns that user functions return are always nullable. Types are
represented as DDL strings, so that building a graph needs no Spark.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_SCALARS: dict[object, str] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    dt.datetime: "timestamp",
    dt.date: "date",
    decimal.Decimal: "decimal(38,18)",
}

VALUE = "value"
KEY = "key"


class UnsupportedTypeError(TypeError):
    """An annotation has no column type; the message names the annotation and the supported types."""


@dataclass(frozen=True)
class MessageType:
    """The columns of a message.

    `fields` maps column names to DDL types, in order; empty when `ddl` was given as text. `python`
    is the class that functions receive and return: a dataclass, a NamedTuple, `tuple`, or `None`
    for a single value. If `scalar` is true, functions receive the bare value of the only column.
    """

    ddl: str
    fields: tuple[tuple[str, str], ...] = ()
    python: type | None = None
    scalar: bool = False

    def __str__(self) -> str:
        return self.ddl


def column_type(annotation: object) -> str:
    """The DDL type of one column for a Python annotation; raises `UnsupportedTypeError`."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if len(inner) == 1:
            return column_type(inner[0])
        raise UnsupportedTypeError(f"a column has one type, not {_name(annotation)}")
    if origin is typing.Annotated:
        return column_type(args[0])
    if origin in (list, tuple, set, frozenset) or origin in (
        Iterable,
        typing.get_origin(typing.Sequence[int]),
    ):
        if len(args) < 1:
            raise UnsupportedTypeError(
                f"{_name(annotation)} has no element type: write, for example, list[str]"
            )
        if origin is tuple and not (len(args) == 2 and args[1] is Ellipsis):
            inside = ",".join(f"_{i + 1}:{column_type(a)}" for i, a in enumerate(args))
            return f"struct<{inside}>"
        return f"array<{column_type(args[0])}>"
    if origin is dict and len(args) == 2:
        return f"map<{column_type(args[0])},{column_type(args[1])}>"
    if (fields := record_fields(annotation)) is not None:
        return "struct<" + ",".join(f"{n}:{t}" for n, t in fields) + ">"
    raise UnsupportedTypeError(
        f"{_name(annotation)} has no column type: use str, int, float, bool, bytes, datetime, date, Decimal, "
        "list[T], dict[K, V], a dataclass or a NamedTuple"
    )


def record_fields(annotation: object) -> tuple[tuple[str, str], ...] | None:
    """Columns of a dataclass or NamedTuple, or None for anything else."""
    if not isinstance(annotation, type):
        return None
    if dataclasses.is_dataclass(annotation):
        names = [f.name for f in dataclasses.fields(annotation)]
    elif issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
        names = list(annotation._fields)
    else:
        return None
    try:
        hints = typing.get_type_hints(annotation)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise UnsupportedTypeError(f"an annotation of {_name(annotation)} is not a type: {error}") from error
    return tuple((n, column_type(hints[n])) for n in names)


def message_type(annotation: object) -> MessageType:
    """The message type that an annotation, a dataclass or a DDL string declares.

    >>> message_type(int).ddl
    'value bigint'
    >>> message_type(tuple[str, int]).ddl
    'key string, value bigint'
    """
    if isinstance(annotation, str):
        return MessageType(annotation)
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and len(args) == 2 and args[1] is not Ellipsis:
        pair: tuple[tuple[str, str], ...] = ((KEY, column_type(args[0])), (VALUE, column_type(args[1])))
        return MessageType(_ddl(pair), pair, tuple)
    if (fields := record_fields(annotation)) is not None:
        assert isinstance(annotation, type)
        return MessageType(_ddl(fields), fields, annotation)
    one = ((VALUE, column_type(annotation)),)
    return MessageType(_ddl(one), one, None, scalar=True)


def schema_of(declared: object) -> str:
    """The DDL of a schema given as a dataclass, an annotation or a DDL string."""
    return message_type(declared).ddl


def returned_annotation(fn: Callable[..., Any]) -> object | None:
    """The return annotation of a function, or None if it has none, as lambdas do."""
    target = fn if hasattr(fn, "__annotations__") and not isinstance(fn, type) else type(fn).__call__
    try:
        hints = typing.get_type_hints(target)
    except (NameError, AttributeError, TypeError, SyntaxError):
        # An unresolvable annotation is treated as missing; the error asks for one.
        hints = {}
    return hints.get("return")


def element_annotation(annotation: object) -> object | None:
    """The element type of an iterable annotation: `list[str]`, `Iterator[str] | None` → `str`."""
    args = typing.get_args(annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        return element_annotation(inner[0]) if len(inner) == 1 else None
    if typing.get_origin(annotation) is tuple and len(args) == 2 and args[1] is Ellipsis:
        return args[0]  # type: ignore[no-any-return]
    if typing.get_origin(annotation) in _ITERABLES and args:
        return args[0]  # type: ignore[no-any-return]
    return None


_ITERABLES = {
    list,
    set,
    frozenset,
    Iterable,
    Iterator,
    typing.get_origin(typing.Generator[int, None, None]),
    typing.get_origin(typing.Sequence[int]),
    typing.get_origin(typing.Collection[int]),
}


def _ddl(fields: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{n} {t}" for n, t in fields)


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
