"""Between Arrow columns and the messages that Python functions see, both ways."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from drivetrain.api.types import MessageType
from drivetrain.errors import OperatorError
from drivetrain.spark.failures import embedded

MISFITS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, AttributeError)


def messages_of(batch: pa.RecordBatch, columns: Sequence[str], wants: type | None) -> list[Any]:
    """The messages of a batch: values of a single column, instances of `wants`, or rows by name.

    `wants` is a dataclass or NamedTuple (its fields name the columns), `tuple` (all columns in
    order), or None.
    """
    if wants is None and len(columns) == 1:
        return list(batch.column(columns[0]).to_pylist())
    if wants is tuple:
        return list(zip(*(batch.column(n).to_pylist() for n in columns), strict=True))
    names = tuple(columns) if wants is None else field_names(wants)
    make = row_class(names) if wants is None else wants
    return list(map(make, *(batch.column(n).to_pylist() for n in names)))


@cache
def row_class(names: tuple[str, ...]) -> type:
    """The class of messages that are rows: columns as attributes, or by position for odd names."""
    return collections.namedtuple("Row", names, rename=True)


def columns_of(
    messages: list[Any], declared: MessageType, schema: pa.Schema, operator: str
) -> list[pa.Array]:
    """Arrow columns of messages; raises an embedded `OperatorError` for one that does not fit its type."""
    try:
        values = _values(messages, declared, schema)
    except (AttributeError, TypeError, ValueError) as error:
        raise _wrong_shape(messages, declared, schema, operator) from error
    arrays = []
    for column, field in zip(values, schema, strict=True):
        try:
            arrays.append(pa.array(column, field.type))
        except MISFITS as error:
            raise _misfit(column, field, messages, operator) from error
    return arrays


def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass or NamedTuple, in order."""
    return tuple(getattr(cls, "__dataclass_fields__", ())) or tuple(getattr(cls, "_fields", ()))


def told(message: Any, limit: int = 500) -> str:
    """A message for people: its repr, cut at `limit` characters."""
    text = repr(message)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _values(messages: list[Any], declared: MessageType, schema: pa.Schema) -> Iterable[list[Any]]:
    if declared.scalar:
        return [messages]
    if declared.python is None or declared.python is tuple:
        width = len(schema)
        if any(len(m) != width for m in messages):
            raise ValueError("a message has another number of columns")
        return [list(column) for column in zip(*messages, strict=True)] or [[] for _ in schema]
    return [list(map(attrgetter(name), messages)) for name in schema.names]


def _wrong_shape(messages: list[Any], declared: MessageType, schema: pa.Schema, operator: str) -> Exception:
    wanted = getattr(declared.python, "__name__", None) or f"a tuple of {len(schema)}"
    culprit = next((m for m in messages if not _has_shape(m, schema, declared)), messages[0])
    return embedded(
        OperatorError(
            f"a result is not what was declared: expected {wanted} ({declared.ddl}), "
            f"got {told(culprit)} ({type(culprit).__name__})",
            operator=operator,
            message=told(culprit),
            user_traceback="",
        )
    )


def _has_shape(message: Any, schema: pa.Schema, declared: MessageType) -> bool:
    if declared.python is None or declared.python is tuple:
        return hasattr(message, "__len__") and len(message) == len(schema)
    return all(hasattr(message, n) for n in schema.names)


def _misfit(column: list[Any], field: pa.Field, messages: list[Any], operator: str) -> Exception:
    what, culprit = f"results do not have one type: column {field.name} is {field.type}", None
    for value, message in zip(column, messages, strict=True):
        try:
            pa.array([value], field.type)
        except MISFITS:
            culprit = told(message)
            what = (
                "a result does not have the declared type: "
                f"expected column {field.name} to be {field.type}, got {value!r} ({type(value).__name__})"
            )
            break
    return embedded(OperatorError(what, operator=operator, message=culprit, user_traceback=""))
