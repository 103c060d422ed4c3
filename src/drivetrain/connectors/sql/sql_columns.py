"""The columns of a batch for a database: a few kinds of values.

The problem: Spark has types that databases lack, and each database has its own names. Whether a table
fits must be known when the first batch comes, not when its transaction is to be committed.

The design: every column is of one of a dozen kinds. Arrays, maps and structs become JSON in Spark; everything
else is unchanged until it is written. Each database has its own names for kinds (`sqlite`, `postgresql`,
`mysql`).

Called by the SQL sinks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812 - PySpark's convention

from drivetrain.connectors.files.file_formats import json_of
from drivetrain.errors import OutputError
from drivetrain.spark.session.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Kind: TypeAlias = Literal[
    "int16", "int32", "int64", "float32", "float64", "decimal", "string", "binary", "bool", "timestamp",
    "local timestamp", "date", "time", "json",
]  # fmt: skip

INTEGERS: frozenset[str] = frozenset({"int16", "int32", "int64"})
NUMBERS = INTEGERS | {"float32", "float64", "decimal"}
INSTANTS: frozenset[str] = frozenset({"timestamp", "local timestamp", "date"})
"""Kinds that the columns of a server accept together."""

_KINDS: dict[str, Kind] = {
    "byte": "int16",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "decimal": "decimal",
    "string": "string",
    "char": "string",
    "varchar": "string",
    "binary": "binary",
    "boolean": "bool",
    "timestamp": "timestamp",
    "timestamp_ntz": "local timestamp",
    "date": "date",
    "time": "time",
    "array": "json",
    "map": "json",
    "struct": "json",
}


@dataclass(frozen=True)
class BatchColumn:
    """A column of a batch; `precision` and `scale` are a decimal's."""

    name: str
    kind: Kind
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its type by the database's name, and whether a row must have a value for it.

    `digits` is the number of digits of a second that a column of times keeps; None: all.
    """

    name: str
    type: str
    required: bool
    digits: int | None = None


@dataclass(frozen=True)
class SqlTable:
    """An existing table: its columns, and the sets of columns that are unique in it.

    `replaces_by` are the unique keys by which the database replaces rows whatever key the sink names, for
    databases that do so; `numbered` is the column that numbers rows which have no value for it.
    """

    columns: dict[str, TableColumn]
    unique: list[frozenset[str]]
    replaces_by: tuple[frozenset[str], ...] = ()
    numbered: str | None = None


def batch_columns(schema: T.StructType, where: str) -> tuple[BatchColumn, ...]:
    """The columns of a batch; raises `OutputError` for a type that no database supports."""
    found = []
    for field in schema.fields:
        kind = _KINDS.get(field.dataType.typeName())
        if kind is None:
            raise OutputError(
                f"the type of the column {field.name} has no equivalent in databases",
                where=where,
                got=field.dataType.simpleString(),
                remedy="cast it before the sink, to string for example",
            )
        if isinstance(field.dataType, T.DecimalType):
            found.append(BatchColumn(field.name, kind, field.dataType.precision, field.dataType.scale))
        else:
            found.append(BatchColumn(field.name, kind))
    return tuple(found)


def flattened(df: DataFrame, columns: tuple[BatchColumn, ...]) -> DataFrame:
    """The batch with JSON in place of arrays, maps and structs."""
    if all(column.kind != "json" for column in columns):
        return df
    names = [quoted(column.name) for column in columns]
    return df.selectExpr(
        *(
            f"{json_of(name)} AS {name}" if column.kind == "json" else name
            for name, column in zip(names, columns, strict=True)
        )
    )


def require_fit(table: SqlTable, columns: tuple[BatchColumn, ...], key: tuple[str, ...], where: str) -> None:
    """Raise `OutputError` unless rows with these columns fit into the table, by `key` if there is one."""
    given = {column.name for column in columns}
    missing = [column.name for column in columns if column.name not in table.columns]
    if missing:
        raise OutputError(
            f"the table has no column {', '.join(missing)}",
            where=where,
            expected=f"the columns {', '.join(sorted(given))}",
            got=f"{', '.join(table.columns)}",
            remedy="add what is missing to the table, or select other columns before the sink",
        )
    unfed = [c.name for c in table.columns.values() if c.required and c.name not in given]
    if unfed:
        raise OutputError(
            f"the table requires a value for {', '.join(unfed)}, and the sink has none",
            where=where,
            expected=f"{', '.join(unfed)} among the columns {', '.join(sorted(given))}",
            remedy="select such a column before the sink, or give it a default value in the table",
        )
    require_key(table, key, where, given)


def require_key(
    table: SqlTable, key: tuple[str, ...], where: str, given: Collection[str] | None = None
) -> None:
    """Raise `OutputError` unless rows can be replaced by `key`, and by nothing else; an empty one passes.

    `given` are the columns of the sink, if they are known.
    """
    if key and frozenset(key) not in table.unique:
        known = ["(" + ", ".join(sorted(columns)) + ")" for columns in table.unique]
        raise OutputError(
            f"rows cannot be replaced by ({', '.join(key)}): it is not a unique key of the table",
            where=where,
            expected="a primary key or a unique constraint of just these columns",
            got=" and ".join(known) or "none",
            remedy="add such a constraint to the table, or pass one of its keys as key=",
        )
    ours = set(key) if given is None else set(given)
    for other in table.replaces_by if key else ():
        # A key that contains ours finds the same row, and numbers that the database draws are new.
        if other >= frozenset(key) or (table.numbered in other and table.numbered not in ours):
            continue
        raise OutputError(
            f"rows would be replaced by another unique key of the table, too: ({', '.join(sorted(other))})",
            where=where,
            expected=f"no unique key besides ({', '.join(key)})",
            remedy="make that key an ordinary index, or use another table",
        )


def require_keys(messages: pa.RecordBatch, key: tuple[str, ...], where: str) -> None:
    """Raise `OutputError` unless every row has a value in each column of the key."""
    for name in key:
        if messages.column(name).null_count:
            raise OutputError(
                "rows are replaced by key, but some rows have no key",
                where=where,
                expected=f"a value in each of {', '.join(key)}",
                got=f"{messages.column(name).null_count} of {messages.num_rows} rows have null in {name}",
                remedy="filter such rows out before the sink, or choose another key",
            )


def require_years(name: str, column: pa.Array, where: str, last: int | None = None) -> None:
    """Raise `OutputError` for times before the year 1, or after `last`; neither server has them."""
    first, newest = pc.min_max(pc.year(column)).as_py().values()
    if first is None or (first >= 1 and (last is None or newest <= last)):
        return
    raise OutputError(
        f"there are times in the column {name} that the server cannot read",
        where=where,
        expected="years from 1 on" if last is None else f"years from 1 to {last}",
        got=f"the year {first}" if first == newest else f"years from {first} to {newest}",
        remedy="filter such rows out before the sink, or select the column as text",
    )
