"""Conversion between Arrow columns and the messages that Python functions see.

Arrow is lenient: it turns 1.5 into 1 for an integer column, a string into a list of characters, a
number into an instant. A user who declared `-> int` and returns 1.5 has made a mistake, and must learn of
it. So such values are detected first, by their types and at C speed, in the columns that can have them.

Invariants:

1. A function's result is stored unchanged, or is an error of its operator: never another value.
2. A function gets a column's values as the declared type: a map as a dict.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any

import pyarrow as pa

from drivetrain.api.types import MessageType
from drivetrain.core.state.state_keys import canonical_key
from drivetrain.errors import OperatorError
from drivetrain.spark.session.spark_errors import embedded

MISFITS = (pa.ArrowException, TypeError, ValueError, ArithmeticError, AttributeError)
_NO_ROW = (str, bytes, dict, set, frozenset)


def messages_of(batch: pa.RecordBatch, columns: Sequence[str], wants: type | None) -> list[Any]:
    """The messages of a batch: values of a single column, instances of `wants`, or rows by name.

    `wants` is a dataclass or NamedTuple (its fields name the columns), `tuple` (all columns in
    order), or None.
    """
    if wants is None and len(columns) == 1:
        return values_of(batch.column(columns[0]))
    if wants is tuple:
        return list(zip(*(values_of(batch.column(n)) for n in columns), strict=True))
    names = tuple(columns) if wants is None else field_names(wants)
    make = row_class(names) if wants is None else wants
    return list(map(make, *(values_of(batch.column(n)) for n in names)))


def with_form(
    messages: list[Any], declared: MessageType, names: Sequence[str], wants: type | None, operator: str
) -> list[Any]:
    """The messages, returned by `operator`, in the form that `messages_of` would give their columns.

    Raises an embedded `OperatorError` for a message that does not have the declared type.
    """
    try:
        columns = [list(column) for column in _values(messages, declared, names)]
    except (AttributeError, TypeError, ValueError) as error:
        raise _wrong_shape(messages, declared, names, operator) from error
    if wants is None and len(columns) == 1:
        return columns[0]
    if wants is tuple:
        return list(zip(*columns, strict=True))
    if wants is None:
        return list(map(row_class(tuple(names)), *columns))
    by_name = dict(zip(names, columns, strict=True))
    return list(map(wants, *(by_name[name] for name in field_names(wants))))


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column; maps as dicts, structs as dicts by field, instants in UTC."""
    if _is_direct(column):
        try:
            return column.to_numpy(zero_copy_only=False).tolist()
        except pa.ArrowException:  # text that is no UTF-8: the error names the byte here
            return column.to_pylist()
    values: list[Any] = column.to_pylist()
    return [_with_dicts(v, column.type) for v in values] if _has_map(column.type) else values


def _is_direct(column: pa.Array) -> bool:
    """Whether NumPy makes the same Python values, which takes half the time."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return True
    return not column.null_count and bool(types.is_integer(kind) or types.is_float64(kind))


def keys_of(column: pa.Array) -> list[Any]:
    """The values of a key column: equal, and with one hash, if Spark groups them together."""
    values = values_of(column)
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        return [canonical_key(value) for value in values]
    return values


@cache
def row_class(names: tuple[str, ...]) -> type:
    """The class of messages that are rows: columns as attributes, or by position for odd names."""
    make: Any = collections.namedtuple
    made: type = make("Row", names, rename=True)
    # Without it pickles would contain the class: thousands of bytes for each state that keeps a row.
    setattr(made, "__reduce__", lambda row: (_row, (names, *row)))  # noqa: B010 - a class made at run time
    return made


def _row(names: tuple[str, ...], *values: Any) -> Any:
    return row_class(names)(*values)


def columns_of(
    messages: list[Any], declared: MessageType, schema: pa.Schema, operator: str
) -> list[pa.Array]:
    """Arrow columns of messages; raises an embedded `OperatorError` for one that does not fit its type."""
    try:
        values = _values(messages, declared, schema.names)
    except (AttributeError, TypeError, ValueError) as error:
        raise _wrong_shape(messages, declared, schema.names, operator) from error
    arrays = []
    for column, field in zip(values, schema, strict=True):
        try:
            arrays.append(_array(column, field.type))
        except MISFITS as error:
            raise _misfit(column, field, messages, operator) from error
    return arrays


def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass or NamedTuple, in order."""
    return tuple(getattr(cls, "__dataclass_fields__", ())) or tuple(getattr(cls, "_fields", ()))


def message_text(message: Any, form: Callable[[Any], str] = repr, limit: int = 500) -> str:
    """A message as text: its repr (or another `form`), cut at `limit` characters."""
    try:
        text = form(message)
    except Exception as error:  # noqa: BLE001 - the user's own repr must not hide the original error
        text = f"<a {type(message).__name__} whose {form.__name__}() raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _values(messages: list[Any], declared: MessageType, names: Sequence[str]) -> Iterable[list[Any]]:
    if declared.scalar:
        return [messages]
    if declared.python is None or declared.python is tuple:
        width = len(names)
        if any(issubclass(kind, _NO_ROW) for kind in set(map(type, messages))) or any(
            len(m) != width for m in messages
        ):
            raise ValueError("a message has another number of columns")
        return [list(column) for column in zip(*messages, strict=True)] or [[] for _ in names]
    return [list(map(attrgetter(name), messages)) for name in names]


def _wrong_shape(
    messages: list[Any], declared: MessageType, names: Sequence[str], operator: str
) -> Exception:
    wanted = getattr(declared.python, "__name__", None) or f"a tuple of {len(names)}"
    culprit = next((m for m in messages if not _has_shape(m, names, declared)), messages[0])
    return embedded(
        OperatorError(
            f"a result does not have the declared type: expected {wanted} ({declared.ddl}), "
            f"got {message_text(culprit)} ({type(culprit).__name__})",
            operator=operator,
            message=message_text(culprit),
            user_traceback="",
        )
    )


def _has_shape(message: Any, names: Sequence[str], declared: MessageType) -> bool:
    if declared.python is None or declared.python is tuple:
        return hasattr(message, "__len__") and not isinstance(message, _NO_ROW) and len(message) == len(names)
    return all(hasattr(message, n) for n in names)


def _misfit(column: list[Any], field: pa.Field, messages: list[Any], operator: str) -> Exception:
    what, culprit = f"results do not have one type: column {field.name} is {field.type}", None
    for value, message in zip(column, messages, strict=True):
        try:
            _array([value], field.type)
        except MISFITS:
            culprit = message_text(message)
            what = (
                "a result does not have the declared type: "
                f"expected column {field.name} to be {field.type}, "
                f"got {message_text(value)} ({type(value).__name__})"
            )
            break
    return embedded(OperatorError(what, operator=operator, message=culprit, user_traceback=""))


# -- conversions that Arrow would do silently ----------------------------------------------------------


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if _changed(values, type_):
        raise pa.ArrowInvalid("a value would be changed to fit")
    try:
        return pa.array(values, type_)
    except MISFITS:
        if not pa.types.is_nested(type_):
            raise
        return pa.array([_plain(v) for v in values], type_)


def _changed(values: Sequence[Any], type_: pa.DataType) -> bool:
    """Whether Arrow would change one of these values to fit the type."""
    if pa.types.is_integer(type_):
        cut = [k for k in set(map(type, values)) if issubclass(k, float | Decimal)]
        return bool(cut) and any(isinstance(v, float | Decimal) and v % 1 != 0 for v in values)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return any(issubclass(k, int | float) for k in set(map(type, values)))
    if pa.types.is_list(type_):
        if any(issubclass(k, str | bytes) for k in set(map(type, values))):
            return True
        inside = [v for v in values if isinstance(v, list | tuple | set | frozenset)]
        return _may_change(type_.value_type) and _changed(list(chain.from_iterable(inside)), type_.value_type)
    if pa.types.is_map(type_):
        pairs = list(chain.from_iterable(v.items() for v in values if isinstance(v, dict)))
        return _changed([k for k, _ in pairs], type_.key_type) or _changed(
            [v for _, v in pairs], type_.item_type
        )
    if pa.types.is_struct(type_):
        fields = enumerate(type_)
        return any(_changed([_member(v, f.name, i) for v in values], f.type) for i, f in fields)
    return False


def _may_change(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_date(type_)
    )


def _member(value: Any, name: str, index: int) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, tuple):
        return value[index] if index < len(value) else None
    return getattr(value, name, None)


def _plain(value: Any) -> Any:
    """A value of a nested column in a form that Arrow accepts: dataclasses as dicts, any set as a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return dict(zip(names, map(_plain, value), strict=True)) if names else tuple(map(_plain, value))
    return list(map(_plain, value)) if isinstance(value, list | set | frozenset) else value


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    if pa.types.is_list(type_):
        return _has_map(type_.value_type)
    return pa.types.is_struct(type_) and any(_has_map(f.type) for f in type_)


def _with_dicts(value: Any, type_: pa.DataType) -> Any:
    if value is None or not _has_map(type_):
        return value
    if pa.types.is_map(type_):
        return {k: _with_dicts(v, type_.item_type) for k, v in value}
    if pa.types.is_list(type_):
        return [_with_dicts(v, type_.value_type) for v in value]
    return {f.name: _with_dicts(value[f.name], f.type) for f in type_}
