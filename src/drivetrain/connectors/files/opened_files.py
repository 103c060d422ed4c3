"""Opens files: from their declaration to a streaming DataFrame, by Spark's own reader or by ours.

Called by `files.connector`, once per source and start.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyspark.sql.types import StructType

from drivetrain.api.sources import FileSource, ParquetFiles, TextFiles
from drivetrain.connectors.files.file_checks import validate_schema, validate_source
from drivetrain.connectors.files.file_log import FileLog
from drivetrain.connectors.files.file_reader import (
    FORMAT_NAME,
    FileDataSource,
    ReadPlan,
    log_new_files,
    open_log,
)
from drivetrain.connectors.files.native_files import open_native
from drivetrain.connectors.files.parquet_groups import read_schema
from drivetrain.connectors.files.partition_folders import PartitionFolders, declared_folders
from drivetrain.connectors.schema import from_arrow, to_arrow, to_struct
from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import PUNCT
from drivetrain.runtime.file_locations import FoundFile, list_files, locate
from drivetrain.spark.connector.source import (
    BAD_COLUMN,
    BAD_COLUMN_TYPE,
    OpenedSource,
    Position,
    SourceContext,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from drivetrain.spark.connector.reduction import Reduction


class ArrowFiles(OpenedSource):
    """Files that our own reader passes to Spark as Arrow batches."""

    reader = "arrow"
    how_read = "read by Arrow, in Spark's Python workers"
    limited_by = "bytes"
    unit = "bytes"

    def __init__(
        self, df: DataFrame, source: FileSource, log: FileLog, plan: ReadPlan, *, has_end_row: bool
    ) -> None:
        self._plan = plan
        self.df = df
        self.bounded = source.bounded
        self.total = None if source.watch else log.total_bytes
        self.bad_column = BAD_COLUMN if _has_bad_column(source) else None
        self.has_end_row = has_end_row

    def position(self, offset: str | None) -> Position:
        """The bytes taken; the source has ended after the last one, or after the row that marks the end."""
        at = json.loads(offset) if offset else {"bytes": 0, "end": 0}
        is_over = at["end"] > 0 if self.has_end_row else self.total is not None and at["bytes"] >= self.total
        return Position(at["bytes"], self.total, finished=is_over)

    def reduced(self, reduction: Reduction) -> DataFrame | None:
        """Groups of messages, made by the reader."""
        names = [name for name in self.df.columns if name != PUNCT]
        columns = StructType([self.df.schema[name] for name in names])
        if not self.has_end_row or self.bad_column is not None or not reduction.fits(columns):
            return None
        if isinstance(self._plan.source, ParquetFiles) and not self._plan.folders:
            columns = reduction.needed(columns)  # they can be read one by one
        plan = dataclasses.replace(self._plan, reduction=reduction.to_json(), columns=columns.json())
        return _stream(self.df.sparkSession, reduction.columns(columns), plan)

    def history_start(self, from_ms: int, end: str) -> str | None:
        """Before the first file: it is unknown which of them have messages of that time."""
        return json.dumps({"bytes": 0, "end": 0})

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        """Some bytes of the file log, as far as it was read."""
        at, most = json.loads(start or '{"bytes": 0}')["bytes"], int(self._plan.max_batch_bytes * fraction)
        cut = open_log(self._plan).cut(at, max(1, most))  # opened again: files may have come since
        return end if cut >= json.loads(end)["bytes"] else json.dumps({"bytes": cut, "end": 0})


def open_files(source: FileSource, context: SourceContext, *, has_end_row: bool = False) -> OpenedSource:
    """Check `source` and open it; raises `InputError`, before anything runs, when it cannot be read.

    With `has_end_row` the rows of bounded files have one more column, `__punct`: false, and true in one
    row of nulls in the batch that reaches the end.
    """
    plan, struct, log, new = plan_files(source, context)
    native = open_native(plan.source, struct, log, context, has_end_row=has_end_row, new=new)
    if native is not None:
        return native
    plan = dataclasses.replace(plan, has_end_row=has_end_row)
    if _has_bad_column(source):
        bad = StructType.fromDDL(BAD_COLUMN_TYPE[len("struct<") : -1])
        struct = StructType(list(struct.fields)).add(BAD_COLUMN, bad)
    if has_end_row:
        struct = StructType(list(struct.fields)).add(PUNCT, "boolean")
    context.spark.dataSource.register(FileDataSource)
    return ArrowFiles(_stream(context.spark, struct, plan), source, log, plan, has_end_row=has_end_row)


def _stream(spark: SparkSession, struct: StructType, plan: ReadPlan) -> DataFrame:
    return spark.readStream.format(FORMAT_NAME).schema(struct).option("plan", plan.to_json()).load()


def read_files_whole(source: FileSource, context: SourceContext) -> DataFrame:
    """The rows of bounded files; a record that cannot be read is an error, as a table has no dead letters.

    The files are those that existed when the application first started, as for a stream.
    """
    plan, struct, _, _ = plan_files(dataclasses.replace(source, on_bad_record="fail"), context)
    context.spark.dataSource.register(FileDataSource)
    reader = context.spark.read.format(FORMAT_NAME).schema(struct)
    return reader.option("plan", plan.to_json()).load()


def _has_bad_column(source: FileSource) -> bool:
    return source.on_bad_record == "dead_letter" and not isinstance(source, ParquetFiles)


def plan_files(source: FileSource, context: SourceContext) -> tuple[ReadPlan, StructType, FileLog, bool]:
    """Check and durably list a file source; returns how it is read, its schema, its log, and if that is new.

    Raises InputError. A source whose files are logged already was checked when it first started.
    """
    source = dataclasses.replace(source, path=_absolute(source.path))
    plan = ReadPlan(
        source=source,
        state_dir=_absolute(context.state_dir),
        max_batch_bytes=context.max_batch_bytes,
        limit_path=context.limit_path,
        stores=context.stores,
        parallelism=context.spark.sparkContext.defaultParallelism,
    )
    log = open_log(plan)
    new = not log.exists
    if new:
        validate_source(source, context.stores)
    filesystem, root = locate(source.path, context.stores)
    found = list_files(filesystem, root, source.glob)
    in_files, folders = _struct_of(source, found, filesystem), declared_folders(source)
    if both := sorted({*folders.names} & {*in_files.names}):
        raise InputError(
            "a column is in the files and in the names of their directories",
            where=source.path,
            got=", ".join(both),
            remedy="leave it out of the schema, or out of partition_columns",
        )
    struct = StructType(in_files.fields + folders.fields)
    if BAD_COLUMN in struct.names:
        raise InputError(f"the column name {BAD_COLUMN} is reserved", where=source.path)
    if new:
        validate_schema(source, found, to_arrow(in_files), filesystem)
        partitions = PartitionFolders(to_arrow(folders), root)
        for file in found:
            partitions.values(file.path)
        log_new_files(source, log, context.stores)
    if not isinstance(source, TextFiles):
        # Spark's workers get plain values: they may not be able to import the declared class.
        source = dataclasses.replace(source, schema=None)  # type: ignore[call-arg]
    plan = dataclasses.replace(plan, source=source, folders=tuple(folders.names))
    return plan, struct, log, new


def _struct_of(source: FileSource, found: list[FoundFile], filesystem: pafs.FileSystem) -> StructType:
    if isinstance(source, TextFiles):
        return StructType().add("value", "string")
    schema = getattr(source, "schema", None)
    if schema is not None:
        return to_struct(schema, source.path)
    if not found:
        raise InputError(
            "the schema is not known: there is no Parquet file yet to take it from",
            where=source.path,
            remedy='declare it: sources.parquet(path, schema="carrier string, delay double", watch=True)',
        )
    return from_arrow(read_schema(filesystem, found[0].path), found[0].path)


def _absolute(path_or_uri: str) -> str:
    """An absolute path: workers run in other directories than the driver."""
    return path_or_uri if "://" in path_or_uri else os.path.abspath(os.path.expanduser(path_or_uri))
