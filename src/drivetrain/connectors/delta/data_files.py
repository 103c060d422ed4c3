"""The data files of a table: Parquet, written by Spark's tasks or by the driver, that no table names yet.

The problem: a batch may have ten rows or ten million, tasks may run twice, and a table shows the files that
its log names, whatever else lies in its directory.

The design: a small batch comes to the driver as Arrow and is written there; a large one is written by
Spark's tasks where it is computed. Files get names of their own in every attempt, and a description of each
comes back as a task's result. Spark takes one attempt's result of each partition; files of other attempts
are in no description, and so in no commit. A name begins with its sink's and its batch's (`stem_of`), so
files that no commit named can be found and deleted when the batch is in the table.

    <table>/drivetrain-<sink id>-<token>-<batch>-<unique>.parquet
    <table>/<column>=<value>/drivetrain-…                          in a table with partitions

Rows of a partitioned table are sorted by its partition columns within each task, and each partition of
them is a file.

Invariants:

1. A described file is complete, synced, and has the columns and types of its `Layout`.
2. A task without rows writes no file.

Called by the sinks of tables.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drivetrain.connectors.delta.column_statistics import Statistics
from drivetrain.connectors.delta.partition_values import folder_of, runs
from drivetrain.connectors.files.output_ownership import refusals_named
from drivetrain.durable import sync
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import SmallBatches
from drivetrain.spark.session.spark_errors import embedded, recovered
from drivetrain.spark.session.spark_text import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_ROWS = 1024 * 1024
ROW_GROUP_BYTES = 64 * 1024 * 1024
_DESCRIPTION = "content binary"
_ARROW_DESCRIPTION = pa.schema([("content", pa.binary())])


class DataFile(msgspec.Struct, frozen=True):
    """A written file: its name, relative to the table's directory, and what a table's log says of it.

    `partition` has the values of the partition columns as text, by column.
    """

    name: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None]
    statistics: str
    modified_ms: int
    arrow_bytes: int


@dataclass(frozen=True)
class Layout:
    """How files are written: where, their names' beginning, and the columns in the types that files have.

    In the columns of `required` no value may be null. Files do not contain those of `partition_by`.
    """

    directory: str
    stem: str
    columns: pa.Schema
    partition_by: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


def stem_of(sink_id: str, token: str, batch_id: int) -> str:
    """The beginning of the names of a batch's files."""
    return f"drivetrain-{sink_id}-{token[:8]}-{batch_id:08d}-"


def write_batch(df: DataFrame, layout: Layout, small: SmallBatches) -> list[DataFile]:
    """Write the rows of a batch, with the columns of the layout in any order; returns the described files."""
    table = small.table(df)
    if table is not None:
        if layout.partition_by:
            table = table.sort_by([(name, "ascending") for name in layout.partition_by])
        files = list(_written(iter(table.combine_chunks().to_batches()), layout))
    else:
        if layout.partition_by:
            df = df.sortWithinPartitions(*[quoted(name) for name in layout.partition_by])
        try:
            with computing():
                described = df.mapInArrow(_task(layout), _DESCRIPTION).collect()
        except Exception as error:
            ours = recovered(str(error))
            if isinstance(ours, DrivetrainError):
                raise ours from error
            raise
        files = [msgspec.msgpack.decode(bytes(row.content), type=DataFile) for row in described]
    small.wrote(sum(file.arrow_bytes for file in files))
    return files


def _task(layout: Layout) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for file in _written(batches, layout):
                content = [pa.array([msgspec.msgpack.encode(file)], pa.binary())]
                yield pa.RecordBatch.from_arrays(content, schema=_ARROW_DESCRIPTION)
        except DrivetrainError as error:
            raise embedded(error) from error

    return write


def _written(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[DataFile]:
    """Write rows, which are sorted by partition; each file as soon as it is complete."""
    stored = [field for field in layout.columns if field.name not in layout.partition_by]
    open_file: _OpenFile | None = None
    for batch in batches:
        fitted = _fitted(batch, layout)
        for partition, rows in runs(fitted, layout.partition_by):
            if open_file is not None and open_file.partition != partition:
                yield open_file.closed()
                open_file = None
            if open_file is None:
                open_file = _OpenFile(layout, pa.schema(stored), partition)
            open_file.add(rows)
    if open_file is not None:
        yield open_file.closed()


class _OpenFile:
    """A file that is being written."""

    def __init__(self, layout: Layout, schema: pa.Schema, partition: dict[str, str | None]) -> None:
        self.partition = partition
        self._name = os.path.join(folder_of(partition), f"{layout.stem}{uuid.uuid4().hex}.parquet")
        self._path = os.path.join(layout.directory, self._name)
        self._schema = schema
        self._statistics = Statistics(schema)
        self._rows = self._arrow_bytes = 0
        self._held: list[pa.RecordBatch] = []
        with refusals_named(self._path):
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, schema, compression="snappy")

    def add(self, rows: pa.RecordBatch) -> None:
        stored = rows.select(self._schema.names)
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
            sync(self._path)
        info = os.stat(self._path)
        return DataFile(
            name=self._name,
            size_bytes=info.st_size,
            modified_ms=info.st_mtime_ns // 1_000_000,
            rows=self._rows,
            partition=self.partition,
            statistics=self._statistics.to_json(),
            arrow_bytes=self._arrow_bytes,
        )

    def _write(self) -> None:
        if self._held:
            with refusals_named(self._path):
                self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=ROW_GROUP_ROWS)
            self._held = []


def _fitted(batch: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
    """The rows in the types of the files; raises `OutputError` for a null where the table accepts none."""
    columns: list[Any] = []
    for field in layout.columns:
        column = batch.column(field.name)
        if field.name in layout.required and column.null_count:
            raise OutputError(
                f"the table accepts no null in the column {field.name}",
                where=layout.directory,
                got=f"{column.null_count} of {batch.num_rows} rows have null in it",
                remedy="filter such rows out before the sink, or give the column a value",
            )
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.columns)
