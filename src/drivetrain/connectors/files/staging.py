"""Writes one staged file: by the driver alone, by the workers in parts that are joined, or from files.

Small batches, which is most of them, come to the driver as Arrow and are written there: no task starts
Python, no commit protocol runs. Large ones are written by the workers where they are computed, so
neither the driver's memory nor its single core limits them, and the parts are joined: lines by copying
bytes, Parquet by copying row groups. Java writes and joins Parquet where it can (see `java_parts`), Python
everything else.

Invariants:

1. All ways write the same rows, in the order of Spark's partitions, in the same encoding.
2. Parts of failed or repeated task attempts are never joined: only parts that a task's result names are.

Called by the file sink.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark import TaskContext

from drivetrain.connectors.files.file_formats import lines_of
from drivetrain.connectors.files.java_parts import Part, java_parts, joined_by_java
from drivetrain.connectors.files.output_ownership import OutputDirectory, refusals_named
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.whole_files import delete_if_there, is_local, staging_files, staging_folder
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import SmallBatches
from drivetrain.spark.session.spark_errors import embedded, own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COPY_BYTES = 8 * 1024 * 1024
_ROW_GROUP_ROWS = 1024 * 1024
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_LEFT_S = 3600
"""How old an unfinished file is at least that no running process has."""
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


class BatchStaging:
    """Where one sink writes the file of a batch before it is published.

    The names of its files begin with that of their writer. With `is_contended` several processes may believe
    that they are the sink's: then those of others are deleted only when they are old.
    """

    def __init__(self, directory: OutputDirectory, sink_id: str, *, is_contended: bool) -> None:
        self._directory = directory
        self._is_contended = is_contended
        self._parts_in = f"{directory.staging}/{sink_id}"
        """Where workers write the parts of a large batch."""
        self._whole_in = staging_folder(directory.filesystem, self._parts_in)
        self.files = staging_files(directory.filesystem)
        """The file system of `whole`."""
        self.whole = f"{self._whole_in}/{directory.writer}-whole"
        """The file of the batch."""
        self._small = SmallBatches()

    @property
    def is_elsewhere(self) -> bool:
        """Whether the file is on another file system than the sink's directory."""
        return self._whole_in != self._parts_in

    def begin(self, *, is_first: bool) -> None:
        """Prepare for a batch; for the `first` delete unfinished files of a killed run."""
        if is_first:
            if self._directory.require_own is not None:
                self._directory.require_own()
            before_ns = time.time_ns() - _LEFT_S * 10**9 if self._is_contended else None
            for folder in (self._parts_in, self._directory.joining):
                _delete_files(self._directory.filesystem, folder, before_ns=before_ns)
        self.files.create_dir(self._whole_in, recursive=True)

    def stage(self, rendered: DataFrame, target: Target) -> int:
        """Write the file of a batch, if it has rows, and return their number."""
        table = self._small.table(rendered)
        if table is not None:
            self._small.record_output(table.nbytes)
            return stage_table(table, target, self.whole).rows if table.num_rows else 0
        with own_errors():
            by_java = self._parts_by_java(rendered, target)
            by_workers = f"{self._parts_in}/{self._directory.writer}"
            parts = stage_parts(rendered, target, by_workers) if by_java is None else by_java
        self._small.record_output(sum(part.size_bytes for part in parts))
        if by_java is not None:
            self._join_by_java(rendered, parts, target)
        else:
            if parts:
                join_parts(parts, target, self.whole)
            if self.is_elsewhere:
                _delete_files(self._directory.filesystem, self._parts_in, self._directory.writer)
        return sum(part.rows for part in parts)

    def _parts_by_java(self, rendered: DataFrame, target: Target) -> list[Part] | None:
        """The parts where the whole file will be, without Python; None if Java cannot."""
        if target.format != "parquet" or not is_local(self.files):
            return None
        return java_parts(rendered, self._whole_in, self._directory.writer, target.compression)

    def _join_by_java(self, rendered: DataFrame, parts: list[Part], target: Target) -> None:
        with refusals_named(self.whole):
            if len(parts) == 1:
                self.files.move(parts[0].path, self.whole)
            elif parts and not joined_by_java(rendered, parts, self.whole):
                _join_groups(self.files, [part.path for part in parts], target, self.whole)

    def empty(self) -> None:
        """Delete what is staged. Beside the output its directory stays.

        Readers that list the output with everything below it fail if a directory disappears meanwhile.
        """
        if self.is_elsewhere:
            self.files.delete_dir(self._whole_in)
        else:
            _delete_files(self.files, self._parts_in, self._directory.writer)


def stage_table(table: pa.Table, target: Target, path: str) -> Part:
    """Write a batch that is in the driver to the hidden file `path`."""
    rows = _write(iter(table.to_batches()), table.schema, target, path, staging_files(target.files))
    return Part(path, rows, table.nbytes)


def stage_parts(df: DataFrame, target: Target, stem: str) -> list[Part]:
    """Let Spark's workers write a batch as parts, in the order of partitions.

    `stem` is a hidden directory, and the beginning of the names of the parts in it.
    """
    with computing():
        written = df.mapInArrow(_part_writer(target, stem), _PART_SCHEMA).collect()
    return [Part(row.path, row.rows, row.bytes) for row in sorted(written, key=lambda row: row.partition)]


def join_parts(parts: list[Part], target: Target, path: str) -> None:
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


def _delete_files(
    filesystem: pafs.FileSystem, folder: str, stem: str = "", *, before_ns: int | None = None
) -> None:
    """Delete the files below a hidden folder whose names begin with `stem`, if they are old."""
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
    for info in filesystem.get_file_info(selector):
        is_old = before_ns is None or (info.mtime_ns is not None and info.mtime_ns < before_ns)
        if info.type == pafs.FileType.File and info.base_name.startswith(stem) and is_old:
            delete_if_there(filesystem, info.path)


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


def _part_writer(target: Target, stem: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # A part has no header and, for lines, no compression: the joined file has them.
    packed = target.compression if target.format == "parquet" else None
    bare = Target(target.uri, target.format, b"", packed, target.stores)

    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        path = f"{stem}-{partition:05d}-{uuid.uuid4().hex}"
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
