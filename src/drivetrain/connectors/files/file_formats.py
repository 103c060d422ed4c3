"""Renders batches in the format of a file.

The problem: a batch may be written by the driver or by several workers, and both must produce the same
bytes. So everything that depends on the format is decided once, before that choice: text formats become one
column of finished lines, rendered by Spark's own generated code (which was measured to be faster than
Arrow's CSV writer, and Arrow has no JSON writer); Parquet keeps its columns.

CSV follows RFC 4180: quotes are doubled, null is an empty field and the empty string is `""`. With a
single column null is `""` too, because readers do not take an empty line for a record.
Timestamps are ISO 8601 in UTC with microseconds. JSON includes nulls. Binary columns are base64.

Called by the file sink.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from drivetrain.api.sinks import FileSink
from drivetrain.errors import OutputError
from drivetrain.spark.session.dataframe_calls import selected
from drivetrain.spark.session.spark_text import options, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
}
_JSON = options({**_TIMES, "ignoreNullFields": "false"})
_CSV = options(
    {
        **_TIMES,
        "escape": '"',
        "emptyValue": '""',
        "nullValue": "",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    }
)
LINES = "lines with the header "
"""With partitions, the name of the column of lines begins so; the header follows."""
_PARTITIONS = (StringType, IntegralType, BooleanType, DateType)
EXTENSIONS = {"parquet": "parquet", "csv": "csv", "json": "json", "text": "txt"}


def render(df: DataFrame, sink: FileSink) -> DataFrame:
    """The batch as lines in one column, or, for Parquet, unchanged; raises OutputError if it does not fit.

    With partitions, their columns come first, and the name of the column of lines has the header.
    """
    require_columns(df.schema, sink)
    if sink.format == "parquet":
        return df
    fields = [field for field in df.schema.fields if field.name not in sink.partition_by]
    name = "line" if not sink.partition_by else f"{LINES}{header_of(df, sink).decode()}"
    partitions = [quoted(column) for column in sink.partition_by]
    return selected(df, *partitions, f"{_line(fields, sink)} AS {quoted(name)}")


def require_columns(schema: StructType, sink: FileSink) -> None:
    """Raise `OutputError` unless the sink can write these columns, and divide them into partitions."""
    partitions = [field for field in schema.fields if field.name in sink.partition_by]
    missing = sorted(set(sink.partition_by) - {field.name for field in partitions})
    if missing:
        raise OutputError(
            f"there is no column {missing[0]} to partition by",
            where=sink.path,
            expected=", ".join(sink.partition_by),
            got=schema.simpleString(),
            remedy="correct partition_by, or add the column before the sink",
        )
    for field in partitions:
        if not isinstance(field.dataType, _PARTITIONS):
            raise OutputError(
                f"the column {field.name} cannot divide files into partitions",
                where=sink.path,
                expected="text, an integer, a boolean or a date",
                got=field.dataType.simpleString(),
                remedy="partition by another column, for example a date made of a timestamp",
            )
    rest = [field for field in schema.fields if field.name not in sink.partition_by]
    if not rest:
        raise OutputError(
            "no column is left beside the partitions",
            where=sink.path,
            expected="a column that partition_by does not name",
            got=schema.simpleString(),
            remedy="leave a column out of partition_by",
        )
    if sink.format == "text" and (len(rest) != 1 or not isinstance(rest[0].dataType, StringType)):
        raise OutputError(
            "text files hold one string per message",
            where=sink.path,
            expected="one string column" + (" beside the partitions" if partitions else ""),
            got=schema.simpleString(),
            remedy="select one string column before the sink, or write csv or json",
        )


def _line(fields: Sequence[StructField], sink: FileSink) -> str:
    """A message as one line of text, as Spark's SQL."""
    if sink.format == "text":
        return f"coalesce({quoted(fields[0].name)}, '')"
    flat = sink.format == "csv"
    values = [_renderable(quoted(field.name), field.dataType, flat=flat) for field in fields]
    named = [f"{value} AS {quoted(field.name)}" for value, field in zip(values, fields, strict=True)]
    record = f"struct({', '.join(named)})"
    if sink.format == "json":
        return json_of(record)
    line = f"to_csv({record}, {_CSV})"
    if len(values) == 1:
        # Most readers skip an empty line, and Spark fails to write one: null is written as "".
        line = f"""if({values[0]} IS NULL, '""', {line})"""
    return line


def compression_of(sink: FileSink) -> str | None:
    """The compression of a sink's files; None if they have none."""
    chosen = sink.compression or ("snappy" if sink.format == "parquet" else None)
    return None if chosen == "none" else chosen


def schema_checksum(df: DataFrame, rendered: DataFrame) -> str:
    """A checksum of the schema that the files of joined batches must have in common."""
    columns = rendered.schema.json()
    return f"{zlib.crc32(f'{df.columns} {columns}'.encode()):08x}"


def header_of(df: DataFrame, sink: FileSink) -> bytes:
    """The bytes before the first line of every file."""
    if sink.format != "csv" or not sink.header:
        return b""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        [name for name in df.columns if name not in sink.partition_by]
    )
    return text.getvalue().encode("utf-8")


def lines_of(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """The bytes of a batch of lines in its last column, each ended by a line feed.

    There is no work per line in Python.
    """
    if batch.num_rows:
        closed = pc.binary_join_element_wise(batch.column(batch.num_columns - 1), "", "\n")
        large = pa.types.is_large_string(closed.type)
        _, offsets, data = closed.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64 if large else np.int32)
        low, high = int(ends[closed.offset]), int(ends[closed.offset + len(closed)])
        yield memoryview(data)[low:high]


def json_of(value: str) -> str:
    """A value as JSON text; `value` and the result are Spark's SQL."""
    return f"to_json({value}, {_JSON})"


def _renderable(value: str, kind: DataType, *, flat: bool) -> str:
    """A value as formats of text take it, as SQL."""
    if isinstance(kind, BinaryType):
        return f"base64({value})"
    if flat and isinstance(kind, StructType | ArrayType | MapType):
        return json_of(value)
    return value
