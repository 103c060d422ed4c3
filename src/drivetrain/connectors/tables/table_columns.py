"""Whether the columns of a batch fit into a table: pure, for tables of any format with Arrow types.

The problem: a table has a schema that other writers may change, and files that do not fit it make the table
unreadable. So the columns are compared before a file is written, and the file has the table's types.

The design: each column of the batch is found in the table by its name. Its type is the table's, or one that
widens without loss; it is then written as the table's. A column that the batch lacks is null in its rows.

Invariants:

1. A file with the columns of a `Fit` can be added to the table as it was when they were compared.

Called by the sinks of tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from drivetrain.errors import OutputError

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_OTHERS = (*_INTEGERS, pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.string(), pa.binary())
_IN_NO_NAME = " ,;{}()\n\t="
"""Characters that names of columns may not have."""


@dataclass(frozen=True)
class Fit:
    """How a batch is written: its columns in the types of the files, and columns that the table gets first.

    `required` are the columns in which the table accepts no null.
    """

    columns: pa.Schema
    added: tuple[pa.Field, ...] = ()
    required: tuple[str, ...] = ()


def fit(batch: pa.Schema, table: pa.Schema, where: str, *, evolve: bool) -> Fit:
    """How rows with the columns of `batch` are written to `table`; raises `OutputError` if they do not."""
    columns, added = [], []
    folded = {name.lower(): name for name in table.names}
    for field in batch:
        if field.name in table.names:
            columns.append(_fitted(field, table.field(field.name), where))
        elif field.name.lower() in folded:
            raise OutputError(
                f"the column {field.name} differs from one of the table only in capital letters",
                where=where,
                expected=folded[field.name.lower()],
                got=field.name,
                remedy="rename it before the sink: readers of tables do not distinguish such names",
            )
        else:
            columns.append(field)
            added.append(field)
    if added and not evolve:
        raise OutputError(
            f"the table has no column {', '.join(field.name for field in added)}",
            where=where,
            expected=f"columns among {', '.join(table.names)}",
            got=", ".join(batch.names),
            remedy="add evolve=True to the sink, which adds such columns to the table; or select other "
            "columns before the sink",
        )
    required = [field.name for field in table if not field.nullable]
    unfed = [name for name in required if name not in batch.names]
    if unfed:
        raise OutputError(
            f"the table requires a value for {', '.join(unfed)}, and the sink has none",
            where=where,
            expected=f"{', '.join(unfed)} among the columns {', '.join(batch.names)}",
            remedy="select such a column before the sink",
        )
    return Fit(nullable(pa.schema(columns)), tuple(added), tuple(required))


def require_types(columns: pa.Schema, where: str) -> None:
    """Raise `OutputError` for a column whose name or type tables do not have."""
    for field in columns:
        if any(character in _IN_NO_NAME for character in field.name):
            raise OutputError(
                f"{field.name!r} cannot be the name of a table's column",
                where=where,
                expected="a name without spaces and without , ; { } ( ) =",
                remedy="rename it before the sink",
            )
        if not _is_known(field.type):
            raise OutputError(
                f"tables have no equivalent for the type of the column {field.name}",
                where=where,
                got=str(field.type),
                remedy="cast it before the sink, to string for example",
            )


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, all of which may be null, at every depth: what a table is created with."""
    return pa.schema([_nullable(field) for field in schema])


def same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types hold the same values, whatever Arrow calls their parts."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        ours, theirs = list(one), list(other)
        return [field.name for field in ours] == [field.name for field in theirs] and all(
            same(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
        )
    if pa.types.is_map(one) and pa.types.is_map(other):
        return same(one.key_type, other.key_type) and same(one.item_type, other.item_type)
    if _is_list(one) and _is_list(other):
        return same(one.value_type, other.value_type)
    return one.equals(other) or (_is_text(one) and _is_text(other)) or (_is_bytes(one) and _is_bytes(other))


def _fitted(field: pa.Field, wanted: pa.Field, where: str) -> pa.Field:
    if same(field.type, wanted.type):
        if _is_strict(wanted.type):
            raise OutputError(
                f"the table accepts no null within the column {field.name}, and the batch may have some",
                where=where,
                expected=str(wanted.type),
                got=str(field.type),
                remedy="write to a table whose nested values may be null",
            )
        return field
    if _widens(field.type, wanted.type):
        return field.with_type(wanted.type)
    raise OutputError(
        f"the column {field.name} has another type in the table",
        where=where,
        expected=str(wanted.type),
        got=str(field.type),
        remedy="cast it before the sink, or write to another table",
    )


def _is_strict(kind: pa.DataType) -> bool:
    """Whether a nested type has a part that accepts no null."""
    if pa.types.is_map(kind):
        parts = [kind.item_field]
    elif pa.types.is_struct(kind):
        parts = list(kind)
    elif _is_list(kind):
        parts = [kind.value_field]
    else:
        return False
    return any(not part.nullable or _is_strict(part.type) for part in parts)


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return bool(whole and wide.scale >= narrow.scale)
    return bool(pa.types.is_float32(narrow) and pa.types.is_float64(wide))


def _is_known(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_known(part.type) for part in kind)
    if pa.types.is_map(kind):
        return _is_known(kind.key_type) and _is_known(kind.item_type)
    if _is_list(kind):
        return _is_known(kind.value_type)
    is_moment = pa.types.is_timestamp(kind) and kind.unit == "us"
    return bool(kind in _OTHERS or is_moment or pa.types.is_decimal(kind))


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(part) for part in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    elif _is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
