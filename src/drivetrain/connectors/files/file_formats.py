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
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from drivetrain.api.sinks import FileSink
from drivetrain.errors import OutputError
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
EXTENSIONS = {"parquet": "parquet", "csv": "csv", "json": "json", "text": "txt"}


def render(df: DataFrame, sink: FileSink) -> DataFrame:
    """The batch as lines in one column, or, for Parquet, unchanged; raises OutputError if it does not fit."""
    if sink.format == "parquet":
        return df
    if sink.format == "text":
        if len(df.columns) != 1 or not isinstance(df.schema.fields[0].dataType, StringType):
            raise OutputError(
                "text files hold one string per message",
                where=sink.path,
                expected="one string column",
                got=df.schema.simpleString(),
                remedy="select one string column before the sink, or write csv or json",
            )
        return df.selectExpr(f"coalesce({quoted(df.columns[0])}, '') AS line")
    flat = sink.format == "csv"
    values = [_renderable(quoted(field.name), field.dataType, flat=flat) for field in df.schema.fields]
    fields = [f"{value} AS {quoted(name)}" for value, name in zip(values, df.columns, strict=True)]
    record = f"struct({', '.join(fields)})"
    if sink.format == "json":
        return df.selectExpr(f"{json_of(record)} AS line")
    line = f"to_csv({record}, {_CSV})"
    if len(values) == 1:
        # Most readers skip an empty line, and Spark fails to write one: null is written as "".
        line = f"""if({values[0]} IS NULL, '""', {line})"""
    return df.selectExpr(f"{line} AS line")


def header_of(df: DataFrame, sink: FileSink) -> bytes:
    """The bytes before the first line of every file."""
    if sink.format != "csv" or not sink.header:
        return b""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(df.columns)
    return text.getvalue().encode("utf-8")


def lines_of(batch: pa.RecordBatch) -> Iterator[memoryview]:
    """The bytes of a batch of lines, each ended by a line feed; without work per line in Python."""
    if batch.num_rows:
        closed = pc.binary_join_element_wise(batch.column(0), "", "\n")
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
