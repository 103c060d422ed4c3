"""The reader of Delta tables: their rows as a streaming source that delivers Arrow batches to Spark.

The problem: Spark 4.3 has no connector that reads such tables.

The design: a Python data source. Its planning half (one process per query) follows the table's log; its
reading half (Spark's Python workers) reads Parquet, adds the values of partition columns, and nulls for
columns that a file does not have. Files are divided between tasks by row groups.

Invariants:

1. An offset is a `LogPosition` of the table's log; equal ranges read equal rows, always.

Registered and configured by `opened_delta`. Source: Spark's Python data source API.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict, dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from drivetrain.connectors.delta.table_log import Beginning, LogPosition, TableFile, TableLog
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.connectors.files.parquet_groups import opened_parquet, row_groups
from drivetrain.connectors.partition_values import value_of
from drivetrain.connectors.schema import to_arrow
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.planner_process import end_with_connection
from drivetrain.spark.measure.batch_limit import limited
from drivetrain.spark.session.spark_errors import embedded

FORMAT_NAME = "drivetrain_delta"
MIN_SPLIT_BYTES = 1024 * 1024
_LOOK_S = 0.05
_STORE_LOOK_S = 1.0
"""The shortest times between two looks for a new version; those at an object store cost money."""


@dataclass(frozen=True)
class DeltaPlan:
    """The reader's parameters; `beginning` is the file with a `Beginning`."""

    directory: str
    beginning: str
    skip_changes: bool
    max_batch_bytes: int
    parallelism: int
    limit_path: str | None = None
    stores: StoreSettings = field(default_factory=StoreSettings)

    def to_json(self) -> str:
        """The plan as text; secrets in it are references."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> DeltaPlan:
        """The plan from the text of `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "stores": StoreSettings(**fields["stores"])})

    @property
    def look_s(self) -> float:
        """How long after a look for a new version another one is due."""
        return _STORE_LOOK_S if is_in_object_store(self.directory) else _LOOK_S

    def open(self) -> tuple[Beginning, TableLog]:
        """Where the source begins, and the table's log."""
        with open(self.beginning, "rb") as file:
            begun = msgspec.json.decode(file.read(), type=Beginning)
        return begun, TableLog(self.directory, begun, skip_changes=self.skip_changes, stores=self.stores)


class Pieces(InputPartition):
    """The work of one Spark task: byte ranges of files, in order."""

    def __init__(self, pieces: list[tuple[TableFile, int, int]]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class DeltaDataSource(DataSource):
    """Spark's entry point; the option `plan` is a `DeltaPlan`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._plan = DeltaPlan.from_json(options["plan"])

    @classmethod
    def name(cls) -> str:
        """The format's name in `spark.readStream.format`."""
        return FORMAT_NAME

    def reader(self, schema: StructType) -> DeltaBatchReader:
        """The reader of a bounded source as one batch."""
        return DeltaBatchReader(self._plan, schema)

    def streamReader(self, schema: StructType) -> DeltaStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream."""
        end_with_connection()
        return DeltaStreamReader(self._plan, schema)


class DeltaBatchReader(DataSourceReader):
    """Reads a bounded source in one batch, as a table."""

    def __init__(self, plan: DeltaPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """All files of the source."""
        begun, log = self._plan.open()
        start = LogPosition(begun.first)
        files: list[TableFile] = []
        while (end := log.advanced(start, None, begun.last)) != start:
            files += log.between(start, end)
            start = end
        return [*divided(files, self._plan.parallelism)] or [Pieces([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's pieces."""
        return read_pieces(self._plan, partition, self._schema)


class DeltaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches (in the planning process) and reads files (in the workers)."""

    def __init__(self, plan: DeltaPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema
        self._opened: tuple[Beginning, TableLog] | None = None
        self._last: int | None = None
        self._look_due_s = 0.0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The beginning."""
        return _offset(LogPosition(self._open()[0].first))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of one batch in bytes."""
        return ReadMaxBytes(self._plan.max_batch_bytes)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch."""
        begun, log = self._open()
        last = begun.last if self._last is None else self._last
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._plan.max_batch_bytes
        if last is None and time.monotonic() < self._look_due_s:
            return start
        try:
            end = log.advanced(_place(start), limited(most, self._plan.limit_path), last)
        except DrivetrainError as error:
            raise embedded(error) from error
        if _offset(end) == start:
            self._look_due_s = time.monotonic() + self._plan.look_s  # Spark asks every few milliseconds
        return _offset(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Treat the newest version as the last."""
        begun, log = self._open()
        self._last = log.newest(begun.first) if begun.last is None else begun.last

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Pieces]:
        """The work of one batch."""
        try:
            files = self._open()[1].between(_place(start), _place(end))
        except DrivetrainError as error:
            raise embedded(error) from error
        return divided(files, self._plan.parallelism)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's pieces."""
        return read_pieces(self._plan, partition, self._schema)

    def _open(self) -> tuple[Beginning, TableLog]:
        if self._opened is None:
            self._opened = self._plan.open()
        return self._opened


def divided(files: list[TableFile], parallelism: int) -> list[Pieces]:
    """The files as at most `parallelism` groups of similar size, in order; small ones stay in one task."""
    total = sum(file.size_bytes for file in files)
    share = max(MIN_SPLIT_BYTES, -(-total // parallelism))
    groups: list[Pieces] = []
    room = 0
    for file in files:
        at = 0
        while at < file.size_bytes:
            if room <= 0:
                groups.append(Pieces([]))
                room = share
            size = min(room, file.size_bytes - at)
            groups[-1].pieces.append((file, at, at + size))
            at, room = at + size, room - size
    return groups


def read_pieces(plan: DeltaPlan, partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of one Spark task; errors are packed so that they reach the driver."""
    assert isinstance(partition, Pieces)
    target = to_arrow(schema)
    filesystem, root = locate(plan.directory, plan.stores)
    try:
        for file, start, end in partition.pieces:
            split = FileSplit(f"{root}/{file.name}", start, end, file.size_bytes, whole=False)
            try:
                yield from _read(filesystem, file, split, target)
            except InputError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise _file_gone(file, plan.directory) from error
                raise
    except DrivetrainError as error:
        raise embedded(error) from error


def _file_gone(file: TableFile, where: str) -> InputError:
    return InputError(
        "the table no longer has a file whose rows come next",
        where=where,
        got=f"no file {file.name}",
        remedy="let VACUUM keep files for longer than the application needs to read them "
        "(delta.deletedFileRetentionDuration); start over with --fresh, from the rows that the table has now",
    )


def _read(
    filesystem: pafs.FileSystem, file: TableFile, split: FileSplit, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    with opened_parquet(filesystem, split.path) as opened:
        given = opened.schema_arrow
        stored = [f for f in target if f.name in given.names and f.name not in file.partition]
        for rows in row_groups(opened, split, pa.schema(stored or [given.field(0)])):
            yield _with_all_columns(rows, file, given.names, target)


def _with_all_columns(
    rows: pa.RecordBatch, file: TableFile, given: list[str], target: pa.Schema
) -> pa.RecordBatch:
    columns = []
    for column in target:
        if column.name in file.partition:
            value = value_of(file.partition[column.name], column.type)
            columns.append(pa.repeat(value, rows.num_rows))
        elif column.name in given:
            columns.append(rows.column(column.name))
        else:
            columns.append(pa.nulls(rows.num_rows, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _place(offset: dict[str, int]) -> LogPosition:
    return LogPosition(**offset)


def _offset(place: LogPosition) -> dict[str, int]:
    return msgspec.structs.asdict(place)
