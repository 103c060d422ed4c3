"""Opening a source: from its declaration to a streaming DataFrame.

Called by the engine, once per source and start. See `context` for what it gets and gives.
"""

from __future__ import annotations

import dataclasses
import json
import os

from pyspark.sql.types import StructType

from drivetrain.api.kafka import Kafka
from drivetrain.api.sources import FileSource, Generator, ParquetFiles, TextFiles
from drivetrain.errors import InputError
from drivetrain.spark.channel.columns import PUNCT
from drivetrain.spark.sources.context import (
    BAD_COLUMN,
    BAD_COLUMN_TYPE,
    OpenedSource,
    Position,
    SourceContext,
)
from drivetrain.spark.sources.file_log import FileLog
from drivetrain.spark.sources.file_reader import (
    FORMAT_NAME,
    FileDataSource,
    ReadPlan,
    log_new_files,
    open_log,
)
from drivetrain.spark.sources.generator import first_row_of, open_generator
from drivetrain.spark.sources.kafka_source import open_kafka
from drivetrain.spark.sources.location import FoundFile, list_files, locate
from drivetrain.spark.sources.native_files import open_native
from drivetrain.spark.sources.parquet_groups import read_schema
from drivetrain.spark.sources.schema import from_arrow, to_arrow, to_struct
from drivetrain.spark.sources.validation import validate_generator, validate_schema, validate_source


def open_source(
    source: FileSource | Generator | Kafka, context: SourceContext, *, says_end: bool = False
) -> OpenedSource:
    """Check `source` and open it; raises InputError, before anything runs, when it cannot be read.

    With `says_end` the rows of bounded files have one more column, `__punct`: false, and true in one
    row of nulls in the batch that reaches the end.
    """
    if isinstance(source, Generator):
        return _open_generator(source, context)
    if isinstance(source, Kafka):
        return open_kafka(source, context)
    return _open_files(source, context, says_end=says_end)


def _open_generator(source: Generator, context: SourceContext) -> OpenedSource:
    validate_generator(source, context.source_id)
    first = first_row_of(source, context.replay_from_ms, context.source_id)
    df = open_generator(
        context.spark, source, context.max_batch_rows, context.source_id, first, context.limit_path
    )

    def position(offset: str | None) -> Position:
        done = json.loads(offset)["rows"] if offset else first
        return Position(done, source.rows, finished=source.rows is not None and done >= source.rows)

    return OpenedSource(
        df,
        bounded=source.bounded,
        unit="rows",
        total=source.rows,
        position=position,
        bad_column=None,
        reader="generator",
    )


def _open_files(source: FileSource, context: SourceContext, *, says_end: bool) -> OpenedSource:
    plan, struct, log, new = plan_files(source, context)
    native = open_native(plan.source, struct, log, context, says_end=says_end, new=new)
    if native is not None:
        return native
    plan = dataclasses.replace(plan, says_end=says_end)
    sets_aside = source.on_bad_record == "dead_letter" and not isinstance(source, ParquetFiles)
    if sets_aside:
        bad = StructType.fromDDL(BAD_COLUMN_TYPE[len("struct<") : -1])
        struct = StructType(list(struct.fields)).add(BAD_COLUMN, bad)
    if says_end:
        struct = StructType(list(struct.fields)).add(PUNCT, "boolean")
    context.spark.dataSource.register(FileDataSource)
    reader = context.spark.readStream.format(FORMAT_NAME).schema(struct)
    total = None if source.watch else log.total_bytes

    def position(offset: str | None) -> Position:
        done = json.loads(offset)["bytes"] if offset else 0
        return Position(done, total, finished=total is not None and done >= total)

    return OpenedSource(
        reader.option("plan", plan.to_json()).load(),
        bounded=source.bounded,
        unit="bytes",
        total=total,
        position=position,
        bad_column=BAD_COLUMN if sets_aside else None,
        reader="arrow",
        says_end=says_end,
    )


def plan_files(source: FileSource, context: SourceContext) -> tuple[ReadPlan, StructType, FileLog, bool]:
    """Check a file source, list it durably, and say how it is read, its schema, its log, and if that is new.

    Raises InputError. A source whose files are logged already was checked when it first started.
    """
    source = dataclasses.replace(source, path=_absolute(source.path))
    plan = ReadPlan(
        source=source,
        state_dir=_absolute(context.state_dir),
        max_batch_bytes=context.max_batch_bytes,
        limit_path=context.limit_path,
        parallelism=context.spark.sparkContext.defaultParallelism,
    )
    log = open_log(plan)
    new = not log.exists
    if new:
        validate_source(source)
    filesystem, root = locate(source.path)
    found = list_files(filesystem, root, source.glob)
    struct = _struct_of(source, found)
    if BAD_COLUMN in struct.names:
        raise InputError(f"the column name {BAD_COLUMN} is reserved", where=source.path)
    if new:
        validate_schema(source, found, to_arrow(struct))
        log_new_files(source, log)
    if not isinstance(source, TextFiles):
        # Spark's workers get plain values: the declared class may not be importable there.
        source = dataclasses.replace(source, schema=None)  # type: ignore[call-arg]
    return dataclasses.replace(plan, source=source), struct, log, new


def _struct_of(source: FileSource, found: list[FoundFile]) -> StructType:
    if isinstance(source, TextFiles):
        return StructType().add("value", "string")
    schema = getattr(source, "schema", None)
    if schema is not None:
        return to_struct(schema, source.path)
    filesystem, _ = locate(source.path)
    if not found:
        raise InputError(
            "the schema is not known: there is no Parquet file yet to take it from",
            where=source.path,
            remedy='declare it: sources.parquet(path, schema="carrier string, delay double", watch=True)',
        )
    return from_arrow(read_schema(filesystem, found[0].path), found[0].path)


def _absolute(path_or_uri: str) -> str:
    """Workers run in other directories than the driver."""
    return path_or_uri if "://" in path_or_uri else os.path.abspath(os.path.expanduser(path_or_uri))
