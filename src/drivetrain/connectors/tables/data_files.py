"""The data files of a table: Parquet, written by Spark's tasks or by the driver, that no table names yet.

The problem: a batch may have ten rows or ten million, tasks may run twice, and a table shows the files that
its log names, whatever else lies in its directory.

The design: a small batch comes to the driver as Arrow and is written there; a large one is written by
Spark's tasks where it is computed. Files get names of their own in every attempt, and a description of each
comes back as a task's result. Spark takes one attempt's result of each partition; files of other attempts
are in no description, and so in no commit. A name begins with its sink's and its batch's (`stem_of`), so
files that no commit named can be found and deleted when the batch is in the table.

    <place>/drivetrain-<sink id>-<token>-<batch>-<unique>.parquet
    <place>/<column>=<value>/drivetrain-…                          in a table with partitions

Rows of a partitioned table are sorted by its partitions within each task, and each partition of them is a
file. A file that becomes too large for one object is followed by another.

Invariants:

1. A described file is complete, synced if it is on a disk, and has the columns and types of its `Layout`.
2. A task without rows writes no file.

Called by the sinks of tables, and by compactions.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drivetrain.connectors.files.output_ownership import refusals_named
from drivetrain.connectors.partition_values import folder_of, runs, sorted_table, spark_order
from drivetrain.connectors.tables.column_statistics import Statistics
from drivetrain.durable import sync
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import SmallBatches
from drivetrain.spark.session.spark_errors import embedded, own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_ROWS = 1024 * 1024
ROW_GROUP_BYTES = 64 * 1024 * 1024
MOST_FILE_BYTES = 512 * 1024 * 1024
"""A file is closed when it has so many bytes: whole files are in memory while they become objects."""
_DESCRIPTION = "content binary"
_ARROW_DESCRIPTION = pa.schema([("content", pa.binary())])


class FilePlace(Protocol):
    """The directory of a table's files, and how a process reaches it; it travels to Spark's workers."""

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system, and the directory in it."""
        ...


@dataclass(frozen=True)
class LocatedPlace:
    """A directory on a disk, or in an object store that the section `[s3]` configures."""

    path_or_uri: str
    stores: StoreSettings | None = None

    def open(self) -> tuple[pafs.FileSystem, str]:
        """The file system, and the directory in it."""
        return locate(self.path_or_uri, self.stores)


class DataFile(msgspec.Struct, frozen=True):
    """A written file: its name, relative to the table's place, and its description for the table's log.

    `partition` has the values of the partitions as text, by their declaration. `statistics` are those of
    Delta's log; `footer` is that of a self-contained file.
    """

    name: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None]
    statistics: str
    modified_ms: int
    arrow_bytes: int
    footer: bytes = b""


@dataclass(frozen=True)
class Layout:
    """How files are written: where, their names' beginning, and the columns of the rows.

    `required` are the columns in which the table accepts no null. Files have all columns and are described by
    their footers if they are `self_contained`; else partitions are not in the files.
    """

    place: FilePlace
    stem: str
    columns: pa.Schema
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    self_contained: bool = False
    where: str = field(default="the table", compare=False)


def stem_of(sink_id: str, token: str, batch_id: int) -> str:
    """The beginning of the names of a batch's files."""
    return f"drivetrain-{sink_id}-{token[:8]}-{batch_id:08d}-"


def write_batch(df: DataFrame, layout: Layout, small: SmallBatches) -> list[DataFile]:
    """Write the rows of a batch, with the columns of the layout in any order; returns the described files."""
    table = small.table(df)
    if table is not None:
        files = write_table(table, layout)
    else:
        if layout.partition_by:
            df = df.sortWithinPartitions(*spark_order(layout.partition_by))
        with own_errors(), computing():
            described = df.mapInArrow(_task(layout), _DESCRIPTION).collect()
        files = [msgspec.msgpack.decode(bytes(row.content), type=DataFile) for row in described]
    small.record_output(sum(file.arrow_bytes for file in files))
    return files


def write_table(table: pa.Table, layout: Layout) -> list[DataFile]:
    """Write rows that are in memory; returns the described files."""
    ordered = sorted_table(table, layout.partition_by)
    return list(write_batches(iter(ordered.combine_chunks().to_batches()), layout))


def _task(layout: Layout) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for file in write_batches(batches, layout):
                content = [pa.array([msgspec.msgpack.encode(file)], pa.binary())]
                yield pa.RecordBatch.from_arrays(content, schema=_ARROW_DESCRIPTION)
        except DrivetrainError as error:
            raise embedded(error) from error

    return write


def write_batches(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[DataFile]:
    """Write rows, which are sorted by partition; yields each file as soon as it is complete."""
    filesystem, directory = layout.place.open()
    left_out = () if layout.self_contained else layout.partition_by
    stored = pa.schema([column for column in layout.columns if column.name not in left_out])
    open_file: _OpenFile | None = None
    for batch in batches:
        fitted = _fitted(batch, layout)
        for partition, rows in runs(fitted, layout.partition_by):
            if open_file is not None and (open_file.partition != partition or open_file.is_full):
                yield open_file.closed()
                open_file = None
            if open_file is None:
                open_file = _OpenFile(layout, filesystem, directory, stored, partition)
            open_file.add(rows)
    if open_file is not None:
        yield open_file.closed()


class _OpenFile:
    """A file that is being written."""

    def __init__(
        self,
        layout: Layout,
        filesystem: pafs.FileSystem,
        directory: str,
        schema: pa.Schema,
        partition: dict[str, str | None],
    ) -> None:
        self.partition = partition
        self._name = os.path.join(folder_of(partition), f"{layout.stem}{uuid.uuid4().hex}.parquet")
        self._path = os.path.join(directory, self._name)
        self._is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._schema = schema
        self._with_footer = layout.self_contained
        self._statistics = None if layout.self_contained else Statistics(schema)
        self._footers: list[pq.FileMetaData] = []
        self._rows = self._arrow_bytes = 0
        self._held: list[pa.RecordBatch] = []
        with refusals_named(self._path):
            filesystem.create_dir(os.path.dirname(self._path), recursive=True)
            self._stream = filesystem.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(
                self._stream,
                schema,
                compression="snappy",
                store_decimal_as_integer=layout.self_contained,
                metadata_collector=self._footers,
            )

    @property
    def is_full(self) -> bool:
        return bool(self._stream.tell() >= MOST_FILE_BYTES)

    def add(self, rows: pa.RecordBatch) -> None:
        stored = rows.select(self._schema.names)
        if self._statistics is not None:
            self._statistics.add(stored)
        self._rows += stored.num_rows
        self._arrow_bytes += stored.nbytes
        self._held.append(stored)
        held_rows = sum(batch.num_rows for batch in self._held)
        if held_rows >= ROW_GROUP_ROWS or sum(batch.nbytes for batch in self._held) >= ROW_GROUP_BYTES:
            self._write()

    def closed(self) -> DataFile:
        self._write()
        with refusals_named(self._path):
            self._writer.close()
            size_bytes = self._stream.tell()
            self._stream.close()
            if self._is_local:
                sync(self._path)
        footer = io.BytesIO()
        if self._with_footer:
            self._footers[0].write_metadata_file(footer)
        return DataFile(
            name=self._name,
            size_bytes=size_bytes,
            modified_ms=time.time_ns() // 1_000_000,
            rows=self._rows,
            partition=self.partition,
            statistics="" if self._statistics is None else self._statistics.to_json(),
            arrow_bytes=self._arrow_bytes,
            footer=footer.getvalue(),
        )

    def _write(self) -> None:
        if self._held:
            with refusals_named(self._path):
                self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=ROW_GROUP_ROWS)
            self._held = []


def _fitted(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The rows in the types of the files; raises `OutputError` for a null where the table accepts none."""
    columns: list[Any] = []
    for wanted in layout.columns:
        column = batch.column(wanted.name)
        if wanted.name in layout.required and column.null_count:
            raise OutputError(
                f"the table accepts no null in the column {wanted.name}",
                where=layout.where,
                got=f"{column.null_count} of {batch.num_rows} rows have null in it",
                remedy="filter such rows out before the sink, or give the column a value",
            )
        columns.append(column if column.type.equals(wanted.type) else column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.columns)
