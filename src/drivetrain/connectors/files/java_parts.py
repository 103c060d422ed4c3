"""Has Java write the parts of a Parquet file (see `measure.java_files`), and join them.

Problem: large batches written by Python's workers are slow, and joined in Python, all rows are decoded and
encoded once more, by one core.

Design: Spark's tasks write one file each with Spark's own writer of Parquet, under the names and at the place
that the workers' parts would have, and the files are joined by copying bytes.

Invariants:

1. Readers see the same columns, with the same types and values, whoever wrote a file.
2. Groups of rows that are too small to be read well are not copied, but joined by the caller.

Called by `staging`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from py4j.protocol import Py4JJavaError
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

from drivetrain.spark.measure.java_files import java_files
from drivetrain.spark.session.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_WRITER: Final = "drivetrain.PartWriter"
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
    """A staged file: its path, its rows, and their size in memory."""

    path: str
    rows: int
    size_bytes: int


def java_parts(df: DataFrame, folder: str, stem: str, compression: str | None) -> list[Part] | None:
    """The rows of `df` as new Parquet files in a local folder, in the order of partitions; None if they are
    left to Python. Raises the error of the job."""
    if not _has_plain_types(df.schema):
        return None
    written = java_files(df, folder, stem, codec=_CODECS.get(compression or "", "UNCOMPRESSED"))
    if written is None:
        return None
    return [Part(f"{folder}/{name}", int(rows), int(size_bytes)) for name, rows, size_bytes in written]


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
