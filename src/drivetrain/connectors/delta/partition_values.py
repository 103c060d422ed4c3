"""The values of partition columns: runs of rows that have the same ones, and their text in a table's log.

The problem: a file of a partitioned table has rows of one partition only, and its partition's values are in
the table's log as text, not in the file.

The design: rows come sorted by the partition columns, so rows of one partition follow each other. A run ends
where a value changes; null is a value of its own.

As everywhere in Delta Lake, an empty string in a partition column becomes null.

Called by `data_files` and by the reader of a table. Source: "Partition Value Serialization" in Delta's
protocol.
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

from drivetrain.errors import OutputError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INSTANT = "%Y-%m-%d %H:%M:%S.%f"


def require_partitions(schema: pa.Schema, partition_by: Sequence[str], where: str) -> None:
    """Raise `OutputError` unless the columns can divide a table into partitions."""
    for name in partition_by:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            raise OutputError(
                f"the column {name} cannot divide a table into partitions",
                where=where,
                expected="text, an integer, a boolean, a date, a timestamp or a decimal",
                got=str(kind),
                remedy="partition by another column, or by a date made of this one",
            )
    if partition_by and len(partition_by) == len(schema):
        raise OutputError(
            "every column is a partition column",
            where=where,
            expected="at least one other column, which the files hold",
            remedy="leave a column out of partition_by",
        )


def runs(
    batch: pa.RecordBatch, partition_by: Sequence[str]
) -> Iterator[tuple[dict[str, str | None], pa.RecordBatch]]:
    """Successive rows with the same partition, with the partition's values as text, by column."""
    if not batch.num_rows:
        return
    changes = np.zeros(batch.num_rows - 1, dtype=bool)
    for name in partition_by:
        changes |= _changes(batch.column(name))
    starts = [0, *(int(at) + 1 for at in np.flatnonzero(changes))]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        values = {name: text_of(batch.column(name)[start].as_py()) for name in partition_by}
        yield values, batch.slice(start, end - start)


def text_of(value: Any) -> str | None:
    """A partition's value as the log has it; None for null and for the empty string."""
    match value:
        case None | "":
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
    values = {name: _NULL if text is None else quote(text, safe="") for name, text in partition.items()}
    return "/".join(f"{quote(name, safe='')}={text}" for name, text in values.items())


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


def _changes(column: pa.Array) -> np.ndarray[Any, Any]:
    """For each row but the first: whether its value differs from that of the row before."""
    one, other = column.slice(0, len(column) - 1), column.slice(1)
    differ = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return np.asarray(pc.or_(differ, pc.xor(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False))
