"""Writes one staged file: by the driver alone, by the workers in parts that are joined, or from files.

Small batches, which is most of them, come to the driver as Arrow and are written there: no task starts
Python, no commit protocol runs. Large ones are written by the workers where they are computed, so
neither the driver's memory nor its single core limits them, and the parts are joined: lines by copying
bytes, Parquet by copying row groups.

Invariants:

1. Both ways write the same rows, in the order of Spark's partitions, in the same encoding.
2. Parts of failed or repeated task attempts are never joined: only parts that a task's result names are.

Called by the file sink.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext

from drivetrain.connectors.files.file_formats import lines_of
from drivetrain.connectors.files.output_ownership import refusals_named
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.whole_files import staging_files
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.session.spark_errors import embedded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COPY_BYTES = 8 * 1024 * 1024
_ROW_GROUP_ROWS = 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_PART_SCHEMA = "partition int, path string, rows long, bytes long"


@dataclass(frozen=True)
class Target:
    """The file's place and format: `header` comes first; `compression` is gzip, a Parquet codec or none.

    `stores` determines how a place in an object store is reached.
    """

    uri: str
    format: str
    header: bytes
    compression: str | None
    stores: StoreSettings = field(default_factory=StoreSettings)

    @property
    def files(self) -> pafs.FileSystem:
        """The file system of the place."""
        return locate(self.uri, self.stores)[0]


@dataclass(frozen=True)
class Staged:
    """A staged file."""

    path: str
    rows: int
    size_bytes: int


def stage_table(table: pa.Table, target: Target, path: str) -> Staged:
    """Write a batch that is in the driver to the hidden file `path`."""
    rows = _write(iter(table.to_batches()), table.schema, target, path, staging_files(target.files))
    return Staged(path, rows, table.nbytes)


def stage_parts(df: DataFrame, target: Target, directory: str) -> list[Staged]:
    """Let Spark's workers write a batch as parts in the hidden `directory`, in the order of partitions."""
    with computing():
        written = df.mapInArrow(_part_writer(target, directory), _PART_SCHEMA).collect()
    return [Staged(row.path, row.rows, row.bytes) for row in sorted(written, key=lambda row: row.partition)]


def join_parts(parts: list[Staged], target: Target, path: str) -> None:
    """Join the parts of one batch into the hidden file `path`."""
    filesystem, staging = target.files, staging_files(target.files)
    paths = [part.path for part in parts]
    with refusals_named(path):
        if target.format == "parquet":
            _join_groups(filesystem, paths, target, path)
            return
        with staging.open_output_stream(path, compression=target.compression) as out:
            out.write(target.header)
            for part in paths:
                _copy(filesystem, part, None, out)


def join_files(paths: list[str], header_bytes: int, target: Target, path: str) -> None:
    """Join complete files with the same columns, and with headers of so many bytes, into the file `path`."""
    filesystem, staging = target.files, staging_files(target.files)
    with refusals_named(path):
        if target.format == "parquet":
            _join_groups(filesystem, paths, target, path)
            return
        with staging.open_output_stream(path, compression=target.compression) as out:
            for number, one in enumerate(paths):
                _copy(filesystem, one, target.compression, out, skip=header_bytes if number else 0)


def _copy(
    filesystem: pafs.FileSystem, path: str, compression: str | None, out: pa.NativeFile, skip: int = 0
) -> None:
    with filesystem.open_input_stream(path, compression=compression) as read:
        read.read(skip)
        while chunk := read.read(_COPY_BYTES):
            out.write(chunk)


def _join_groups(filesystem: pafs.FileSystem, paths: list[str], target: Target, path: str) -> None:
    """Join Parquet files; small row groups become larger ones."""
    with pq.ParquetFile(filesystem.open_input_file(paths[0])) as first:
        schema = first.schema_arrow
    with (
        staging_files(filesystem).open_output_stream(path) as out,
        pq.ParquetWriter(out, schema, compression=_codec(target)) as writer,
    ):
        held: list[pa.Table] = []
        for one in paths:
            with pq.ParquetFile(filesystem.open_input_file(one)) as file:
                for group in range(file.num_row_groups):
                    held.append(file.read_row_group(group).cast(schema))
                    if _is_full(held):
                        writer.write_table(pa.concat_tables(held), row_group_size=_ROW_GROUP_ROWS)
                        held = []
        if held:
            writer.write_table(pa.concat_tables(held), row_group_size=_ROW_GROUP_ROWS)


def _is_full(held: list[pa.Table]) -> bool:
    return (
        sum(table.num_rows for table in held) >= _ROW_GROUP_ROWS
        or sum(table.nbytes for table in held) >= _ROW_GROUP_BYTES
    )


def _part_writer(
    target: Target, directory: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # A part has no header and, for lines, no compression: the joined file has them.
    packed = target.compression if target.format == "parquet" else None
    bare = Target(target.uri, target.format, b"", packed, target.stores)

    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        path = f"{directory}/{partition:05d}-{uuid.uuid4().hex}"
        size_bytes = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal size_bytes
            size_bytes += first.nbytes
            yield first
            for batch in batches:
                size_bytes += batch.nbytes
                yield batch

        try:
            rows = _write(counted(), first.schema, bare, path, bare.files)
        except DrivetrainError as error:
            raise embedded(error) from error
        if rows:
            columns = [[partition], [path], [rows], [size_bytes]]
            types = [pa.int32(), pa.string(), pa.int64(), pa.int64()]
            arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=["partition", "path", "rows", "bytes"])

    return write_part


def _write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    target: Target,
    path: str,
    filesystem: pafs.FileSystem,
) -> int:
    """Write batches to `path` of a file system and return the number of rows."""
    rows = 0
    with refusals_named(path):
        if target.format != "parquet":
            with filesystem.open_output_stream(path, compression=target.compression) as out:
                out.write(target.header)
                for batch in batches:
                    rows += batch.num_rows
                    for piece in lines_of(batch):
                        out.write(piece)
            return rows
        schema = _utc(schema)
        with (
            filesystem.open_output_stream(path) as out,
            pq.ParquetWriter(out, schema, compression=_codec(target)) as writer,
        ):
            held: list[pa.RecordBatch] = []
            for batch in batches:
                rows += batch.num_rows
                held.append(batch)
                if sum(one.num_rows for one in held) >= _ROW_GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(held).cast(schema))
                    held = []
            if held:
                writer.write_table(pa.Table.from_batches(held).cast(schema))
    return rows


def _utc(schema: pa.Schema) -> pa.Schema:
    """The schema with instants in UTC: in Spark's Arrow they have the session's zone."""
    fields = [
        field.with_type(pa.timestamp("us", tz="UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in schema
    ]
    return pa.schema(fields)


def _codec(target: Target) -> str:
    return target.compression or "none"
