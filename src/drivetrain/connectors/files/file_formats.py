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
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from drivetrain.api.sinks import FileSink
from drivetrain.errors import OutputError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
}
JSON_OPTIONS = {**_TIMES, "ignoreNullFields": "false"}
_CSV = {
    **_TIMES,
    "escape": '"',
    "emptyValue": '""',
    "nullValue": "",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
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
        return df.select(F.coalesce(F.col(quoted(df.columns[0])), F.lit("")).alias("line"))
    columns = [
        _renderable(name, df.schema[name].dataType, flat=sink.format == "csv").alias(name)
        for name in df.columns
    ]
    record = F.struct(*columns)
    if sink.format == "json":
        return df.select(F.to_json(record, JSON_OPTIONS).alias("line"))
    line = F.to_csv(record, _CSV)
    if len(columns) == 1:
        # Most readers skip an empty line, and Spark fails to write one: null is written as "".
        line = F.when(columns[0].isNull(), F.lit('""')).otherwise(line)
    return df.select(line.alias("line"))


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


def _renderable(name: str, kind: DataType, *, flat: bool) -> Column:
    column = F.col(quoted(name))
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if flat and isinstance(kind, StructType | ArrayType | MapType):
        return F.to_json(column, JSON_OPTIONS)
    return column


def quoted(name: str) -> str:
    """A column's name, quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"
