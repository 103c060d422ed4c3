"""The values of partitions: how they are declared, runs of rows that have the same ones, and their text.

The problem: a file of a partitioned table has rows of one partition only, and its partition's values are in
the table's log.

The design: a partition is a column, or a unit of time of one, such as `day(at)`. Rows come sorted by the
partitions, so rows of one partition follow each other. A run ends where a value changes; null is a value of
its own.

In Delta Lake, an empty string in a partition column becomes null.

Called by `data_files`, by the connectors of tables, by the reader of Delta tables and by `partitioned_files`.
Source: "Partition Value Serialization" in Delta's protocol; "Partition Transforms" in Iceberg's
specification.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.api.connectors.partition_names import PartitionName, field_name, partition_name
from drivetrain.errors import OutputError
from drivetrain.spark.session.spark_text import quoted

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""The value of null in the name of a partition's directory."""
_INSTANT = "%Y-%m-%d %H:%M:%S.%f"
_UNIX_YEAR = 1970
_MICROS_PER_HOUR = 3_600_000_000


def require_partitions(schema: pa.Schema, partition_by: Sequence[str], where: str) -> None:
    """Raise `OutputError` unless the columns can divide a table into partitions."""
    for declared in partition_by:
        partition = partition_name(declared)
        name, kind = partition.column, schema.field(partition.column).type
        if partition.unit is not None:
            _require_time(partition, kind, where)
        elif pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise OutputError(
                f"the column {name} cannot divide a table into partitions",
                where=where,
                expected="text, an integer, a boolean, a date, a timestamp or a decimal",
                got=str(kind),
                remedy="partition by another column, or by a date made of this one",
            )


def partitioned(columns: pa.RecordBatch | pa.Table, declared: str) -> pa.Array | pa.ChunkedArray:
    """The values of a partition: those of its column, or numbers of units since 1970."""
    partition = partition_name(declared)
    values = columns[partition.column]
    match partition.unit:
        case None:
            return values
        case "year":
            return pc.subtract(pc.cast(pc.year(values), pa.int32()), _UNIX_YEAR)
        case "month":
            years = pc.subtract(pc.cast(pc.year(values), pa.int32()), _UNIX_YEAR)
            return pc.add(pc.multiply(years, 12), pc.subtract(pc.cast(pc.month(values), pa.int32()), 1))
        case "day":
            return pc.cast(pc.cast(pc.floor_temporal(values, unit="day"), pa.date32()), pa.int32())
        case _:
            micros = pc.cast(pc.floor_temporal(values, unit="hour"), pa.int64())
            return pc.cast(pc.divide(micros, _MICROS_PER_HOUR), pa.int32())


def sorted_table(table: pa.Table, partition_by: Sequence[str]) -> pa.Table:
    """The rows in the order of their partitions."""
    if not partition_by:
        return table
    values = pa.table({str(n): partitioned(table, name) for n, name in enumerate(partition_by)})
    return table.take(pc.sort_indices(values, [(name, "ascending") for name in values.column_names]))


def spark_order(partition_by: Sequence[str]) -> list[Any]:
    """The columns by which Spark sorts rows, so that those of a partition follow each other."""
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

    names = [partition_name(one) for one in partition_by]
    return [
        F.col(quoted(one.column)) if one.unit is None else F.date_trunc(one.unit, F.col(quoted(one.column)))
        for one in names
    ]


def runs(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.RecordBatch]]:
    """Successive rows with the same partition, with the partition's values as text, by column."""
    if not batch.num_rows:
        return
    values = {name: partitioned(batch, name) for name in partition_by}
    changes = np.zeros(batch.num_rows - 1, dtype=bool)
    for name in partition_by:
        changes |= _changes(values[name])
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(changes))]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield (
            {name: text_of(values[name][start].as_py()) for name in partition_by},
            batch.slice(start, end - start),
        )


def text_of(value: Any) -> str | None:
    """A partition's value as Delta's log has it; None for null."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return (value.astimezone(dt.UTC) if value.tzinfo else value).strftime(_INSTANT)
        case dt.date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def folder_of(partition: Mapping[str, str | None]) -> str:
    """The directory of a partition's files, relative to the table's; empty for a table without partitions.

    Some readers take the values from it, not from the log.
    """
    return "/".join(
        f"{quote(field_name(declared), safe='')}={NULL_FOLDER if not text else quote(text, safe='')}"
        for declared, text in partition.items()
    )


def value_of(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition from its text in the log."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        moment = dt.datetime.fromisoformat(text)
        return pa.scalar(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC), kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(dt.datetime.fromisoformat(text).replace(tzinfo=None), kind)
    return pa.scalar(text).cast(kind)


def _require_time(partition: PartitionName, kind: pa.DataType, where: str) -> None:
    if pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and partition.unit != "hour"):
        return
    raise OutputError(
        f"the column {partition.column} has no {partition.unit}",
        where=where,
        expected="a timestamp, or a date for years, months and days",
        got=str(kind),
        remedy="partition by another column",
    )


def _changes(column: pa.Array) -> np.ndarray[Any, Any]:
    """For each row but the first: whether its value differs from that of the row before."""
    one, other = column.slice(0, len(column) - 1), column.slice(1)
    differ = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return np.asarray(pc.or_(differ, pc.xor(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False))
