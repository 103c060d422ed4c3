"""Has Java write the parts of a Parquet file, and join them, where our classes are on Java's class path.

Problem: handing a large batch to Python's workers costs more than writing it, and starts these workers if no
other step of the query needs them. Joined in Python, all rows are decoded and encoded once more, by one core.

Design: Spark's tasks write one file each with Spark's own writer of Parquet, under the names and at the place
that the workers' parts would have, and the files are joined by copying bytes. The classes come with
`drivetrain warm-up` (`session.local_files`) and write local files. Whatever they cannot write is left to
Python: the caller writes the batch again, and reports what is wrong.

Invariants:

1. Readers see the same columns, with the same types and values, whoever wrote a file.
2. Only files of those attempts of tasks that Spark took are joined.
3. Groups of rows that are too small to be read well are not copied, but joined by the caller.

Called by `staging`.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.session.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_SINK: Final = "drivetrain.BatchFiles"
_WRITER: Final = "drivetrain.PartWriter"
_REFUSED: Final = "drivetrain: parts are not written by Java"
"""What the class says of rows, and files, that it cannot write."""
_PLAIN: Final = (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
_CODECS: Final = {"snappy": "SNAPPY", "zstd": "ZSTD", "gzip": "GZIP"}
_LEAST_BYTES: Final = 1 << 20
"""Parts with fewer bytes of rows, on average, are too small to be groups of rows."""


class Part(NamedTuple):
    """A file: its absolute path, its rows, and their size in memory."""

    path: str
    rows: int
    size_bytes: int


def java_parts(df: DataFrame, folder: str, stem: str, compression: str | None) -> list[Part] | None:
    """The rows of `df` as new Parquet files in a local folder, in the order of partitions; None if they are
    left to Python. Raises the error of the job."""
    if not isinstance(df, ClassicDataFrame) or not _has_plain_types(df.schema):
        return None
    sink = java_class(df.sparkSession._jvm, _SINK)
    if not isinstance(sink, JavaClass):
        return None
    token = uuid.uuid4().hex
    write = df.write.format(_SINK).mode("append").option("token", token).option("stem", stem)
    write = write.option("folder", folder).option("codec", _CODECS.get(compression or "", "UNCOMPRESSED"))
    try:
        with computing():
            write.save()
    except Exception as error:
        if _REFUSED not in str(error):
            raise
        log.info("Python writes the batch %s: %s", stem, error)
        return None
    return [_described(line, folder) for line in sink.take(token).splitlines()]


def joined_by_java(df: DataFrame, parts: list[Part], path: str) -> bool:
    """Join parts of this batch to the local file `path`; False, and nothing is there, if Python has to."""
    if len(parts) > 1 and sum(part.size_bytes for part in parts) < len(parts) * _LEAST_BYTES:
        return False
    context = df.sparkSession.sparkContext
    jvm = df.sparkSession._jvm
    assert context._gateway is not None
    paths = context._gateway.new_array(jvm.java.lang.String, len(parts))
    for index, part in enumerate(parts):
        paths[index] = part.path
    try:
        java_class(jvm, _WRITER).join(paths, path)
    except Py4JJavaError as error:
        log.info("Python joins the parts of %s: %s", path, error)
        return False
    return True


def _has_plain_types(of: DataType) -> bool:
    """Whether Spark and Arrow write values of this type alike."""
    match of:
        case StructType():
            return all(_has_plain_types(field.dataType) for field in of.fields)
        case ArrayType():
            return _has_plain_types(of.elementType)
        case MapType():
            return _has_plain_types(of.keyType) and _has_plain_types(of.valueType)
        case _:
            return isinstance(of, _PLAIN)


def _described(line: str, folder: str) -> Part:
    name, rows, size_bytes = line.split(" ")
    return Part(f"{folder}/{name}", int(rows), int(size_bytes))
