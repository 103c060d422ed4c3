"""Reading files the way a Spark worker does, without Spark."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from drivetrain.api.sources import FileSource
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.connectors.files.file_reader import must_be_whole, read_splits
from drivetrain.connectors.schema import to_arrow
from drivetrain.spark.connector.source import BAD_COLUMN


def with_bad_column(struct: StructType) -> StructType:
    bad = (
        StructType()
        .add("raw", StringType())
        .add("file", StringType())
        .add("line", LongType())
        .add("error", StringType())
    )
    return StructType(list(struct.fields)).add(BAD_COLUMN, bad)


def read(source: FileSource, struct: StructType, cuts: list[int] | None = None) -> list[dict[str, Any]]:
    """The rows of the file `source.path`, read in splits that end at `cuts`."""
    path = Path(source.path)
    size = path.stat().st_size
    whole = must_be_whole(source, source.path)
    borders = [0, size] if whole else sorted({0, size, *(cut % (size + 1) for cut in cuts or [])})
    splits = [FileSplit(str(path), a, b, size, whole) for a, b in itertools.pairwise(borders)]
    if source.on_bad_record == "dead_letter":
        struct = with_bad_column(struct)
    if hasattr(source, "schema"):
        source = dataclasses.replace(source, schema=None)  # type: ignore[call-arg]
    rows: list[dict[str, Any]] = []
    for batch in read_splits(source, splits, struct):
        batch.validate(full=True)
        assert batch.schema == to_arrow(struct)
        rows += pa.Table.from_batches([batch]).to_pylist()
    return rows
