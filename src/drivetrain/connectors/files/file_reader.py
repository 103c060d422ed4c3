"""The file reader: files as a streaming source that delivers Arrow batches to Spark.

The problem: Spark's own parsers of JSON and CSV are the bottleneck of jobs that read them; its file
source takes only whole files, has no end, and does not report which line was bad.

The design: a Python data source. Its planning half (one process per query, next to the driver) turns
the file log into offsets and splits; its reading half (Spark's Python workers) turns splits into blocks
and blocks into Arrow batches. Python does no work per row unless a record is bad.

Invariants:

1. An offset is `{"bytes": n}`, a position in the file log; equal ranges read equal rows, always.
2. Without `watch` the log is complete before the query starts and is never added to.
3. With `watch` a file is logged, durably, before an offset covers it.

Registered and configured by `opened_files`. Source: Spark's Python data source API.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from drivetrain.api.sources import CsvFiles, FileSource, JsonLines, ParquetFiles, TextFiles
from drivetrain.connectors.files.blocks import Block, LineNumbers, first_line, read_blocks
from drivetrain.connectors.files.csv_decoder import CsvDecoder, column_names
from drivetrain.connectors.files.file_log import FileLog, FileSplit
from drivetrain.connectors.files.json_decoder import JsonDecoder
from drivetrain.connectors.files.parquet_groups import ROWS_PER_BATCH, read_row_groups
from drivetrain.connectors.files.partition_folders import PartitionFolders
from drivetrain.connectors.files.text_decoder import TextDecoder
from drivetrain.connectors.files.text_records import BadRecord, Decoder, bad_record_error, parse_records
from drivetrain.connectors.schema import ddl_types, to_arrow
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.columns import PUNCT
from drivetrain.runtime.file_locations import FoundFile, compression_of, list_files, locate
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.channel.reduced_batches import Reducer
from drivetrain.spark.connector.planner_process import end_with_connection
from drivetrain.spark.connector.reduction import Reduction
from drivetrain.spark.connector.source import BAD_COLUMN
from drivetrain.spark.measure.batch_limit import limited
from drivetrain.spark.session.spark_errors import embedded

FORMAT_NAME = "drivetrain_files"
MIN_SPLIT_BYTES = 1024 * 1024
PARTS_PER_CORE = 4
MIN_PART_BYTES = 128 * 1024 * 1024
"""The minimum size of a part if there are more parts than cores.

A task costs 60 to 200 ms of CPU, and parsing so much takes seconds. Spark's own readers make such parts."""
STORE_LISTING_S = 1.0
"""The shortest time between two listings of a place in an object store."""
MAX_LINE_SCAN_BYTES = 256 * 1024 * 1024
_SOURCES = {kind.format: kind for kind in (TextFiles, CsvFiles, JsonLines, ParquetFiles)}


@dataclass(frozen=True)
class ReadPlan:
    """The reader's parameters, as plain values that fit in an option of a Spark source."""

    source: FileSource
    state_dir: str
    max_batch_bytes: int
    parallelism: int
    limit_path: str | None = None
    stores: StoreSettings = field(default_factory=StoreSettings)
    has_end_row: bool = False
    """Whether the batch that reaches the end of a bounded source has one row that marks the end."""
    folders: tuple[str, ...] = ()
    """The columns whose values are in the names of directories."""
    reduction: str | None = None
    """What is delivered in place of messages (a `Reduction` as JSON); their columns are then `columns`."""
    columns: str = ""

    def to_json(self) -> str:
        """The plan as text; a declared schema must be a DDL string by now."""
        fields = dataclasses.asdict(self)
        fields["format"] = self.source.format
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str) -> ReadPlan:
        """The plan from the text of `to_json`."""
        fields = json.loads(text)
        source, stores = fields.pop("source"), StoreSettings(**fields.pop("stores"))
        if "nulls" in source:
            source["nulls"] = tuple(source["nulls"])
        fields["folders"] = tuple(fields["folders"])
        return cls(source=_SOURCES[fields.pop("format")](**source), stores=stores, **fields)


def must_be_whole(source: FileSource, path: str) -> bool:
    """Whether a file cannot be divided: it is compressed, or has line breaks inside quotes."""
    if isinstance(source, ParquetFiles):
        return False
    return compression_of(path) is not None or (isinstance(source, CsvFiles) and source.multiline)


def open_log(plan: ReadPlan) -> FileLog:
    """The source's file log on disk."""
    filesystem, directory = locate(plan.state_dir)
    return FileLog(filesystem, directory)


def log_new_files(source: FileSource, log: FileLog, stores: StoreSettings) -> float:
    """List the source's path and log new files; returns the seconds that listing took.

    The first listing is in the order of paths; later ones are in the order of modification times.
    """
    began_s = time.monotonic()
    filesystem, root = locate(source.path, stores)
    found = list_files(filesystem, root, source.glob)
    took_s = time.monotonic() - began_s
    if log.exists:
        found.sort(key=_by_arrival)
    log.append((file, must_be_whole(source, file.path)) for file in found)
    return took_s


def _by_arrival(file: FoundFile) -> tuple[int, str]:
    return file.mtime_ms, file.path


class FileSplits(InputPartition):
    """The work of one Spark task: splits, in order; with `ends` the input ends after them."""

    def __init__(self, splits: list[FileSplit], *, ends: bool = False) -> None:
        super().__init__(splits)
        self.splits = splits
        self.ends = ends


class FileDataSource(DataSource):
    """Spark's entry point; the option `plan` is a `ReadPlan`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._plan = ReadPlan.from_json(options["plan"])

    @classmethod
    def name(cls) -> str:
        """The format's name in `spark.readStream.format`."""
        return FORMAT_NAME

    def reader(self, schema: StructType) -> FileBatchReader:
        """The reader of the complete file log as one batch."""
        return FileBatchReader(self._plan, schema)

    def streamReader(self, schema: StructType) -> FileStreamReader:  # noqa: N802 - Spark's name
        """The reader for rows of `schema`, which may end with the column of bad records."""
        end_with_connection()
        return FileStreamReader(self._plan, schema)


def plan_splits(plan: ReadPlan, log: FileLog, low: int, high: int) -> list[FileSplits]:
    """The bytes [low, high) of the log, divided evenly; a small range stays in one task.

    A large range is divided into more parts than there are cores: Spark gives the next one to a free core,
    so a slow part does not keep the others waiting.
    """
    size = high - low
    at_once = min(plan.parallelism, size // MIN_SPLIT_BYTES)
    handed_out = min(PARTS_PER_CORE * plan.parallelism, size // MIN_PART_BYTES)
    parts = max(1, at_once, handed_out)
    return [FileSplits(splits) for splits in log.splits(low, high, parts)]


class FileBatchReader(DataSourceReader):
    """Reads a bounded source in one batch, as a table."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The complete file log."""
        log = open_log(self._plan)
        return [*plan_splits(self._plan, log, 0, log.total_bytes)] or [FileSplits([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's splits."""
        return read_partition(self._plan, partition, self._schema)


class FileStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches (in the planning process) and reads splits (in the workers).

    The offset is `{"bytes": n, "end": k}`. `k` counts how often a source with an end row has delivered it:
    with its last bytes, which may be none, and again when a query restarts after them. Spark does not keep
    watermarks of single inputs, and does not rerun a batch without data that a crash prevented.
    """

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = schema
        self._log: FileLog | None = None
        self._frozen = False
        self._listing_due_s = 0.0
        self._has_planned = False

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The beginning of the file log."""
        return {"bytes": 0, "end": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of one batch in bytes."""
        return ReadMaxBytes(self._plan.max_batch_bytes)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The end of the next batch; lists files only when all logged ones are taken."""
        log = self._file_log()
        if start["bytes"] >= log.total_bytes:
            try:
                self._look_for_files(log)
            except DrivetrainError as error:
                raise embedded(error) from error
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if limit_bytes is not None:
            limit_bytes = limited(limit_bytes, self._plan.limit_path)
        reached = log.cut(start["bytes"], limit_bytes)
        has_planned, self._has_planned = self._has_planned, True
        has_end_row = (
            self._plan.has_end_row and reached >= log.total_bytes and not (start["end"] and has_planned)
        )
        return {"bytes": reached, "end": start["end"] + has_end_row}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The end of the file log."""
        return {"bytes": self._file_log().total_bytes, "end": int(self._plan.has_end_row)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Treat the files that exist now as the whole input."""
        self._listing_due_s = 0.0
        self._look_for_files(self._file_log())
        self._frozen = True

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FileSplits]:
        """The work of one batch."""
        log = self._file_log()
        low, high = start["bytes"], end["bytes"]
        work = plan_splits(self._plan, log, low, high)
        if end["end"] > start["end"]:
            work = work or [FileSplits([])]
            work[-1].ends = True
        return work

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's splits."""
        return read_partition(self._plan, partition, self._schema)

    def _file_log(self) -> FileLog:
        if self._log is None:
            self._log = open_log(self._plan)
        return self._log

    def _look_for_files(self, log: FileLog) -> None:
        if not self._plan.source.watch or self._frozen or time.monotonic() < self._listing_due_s:
            return
        took_s = log_new_files(self._plan.source, log, self._plan.stores)
        # Spark asks every few milliseconds; a directory that is slow to list is listed less often, and so is
        # one whose listings cost money.
        least_s = STORE_LISTING_S if is_in_object_store(self._plan.source.path) else 0.02
        self._listing_due_s = time.monotonic() + max(least_s, 2 * took_s)


def read_partition(plan: ReadPlan, partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of one Spark task; errors are packed so that they reach the driver."""
    assert isinstance(partition, FileSplits)
    try:
        if plan.reduction is not None:
            yield from _reduced(plan, partition, plan.reduction)
            return
        if not plan.has_end_row:
            yield from read_splits(plan.source, partition.splits, schema, plan.stores, plan.folders)
            return
        data = StructType([field for field in schema.fields if field.name != PUNCT])
        for batch in read_splits(plan.source, partition.splits, data, plan.stores, plan.folders):
            no = pa.nulls(batch.num_rows, pa.bool_()).fill_null(False)
            yield batch.append_column(PUNCT, no)
        if partition.ends:
            yield end_row(schema)
    except DrivetrainError as error:
        raise embedded(error) from error


def _reduced(plan: ReadPlan, partition: FileSplits, reduction: str) -> Iterator[pa.RecordBatch]:
    columns = StructType.fromJson(json.loads(plan.columns))
    whole = _read_blocks(plan.source, partition.splits, columns, plan.stores, plan.folders)
    yield from Reducer(Reduction.from_json(reduction), columns).reduced(whole, ends=partition.ends)


def end_row(schema: StructType) -> pa.RecordBatch:
    """The row that marks the end of the input: all columns null except `__punct`."""
    target = to_arrow(schema)
    columns = [pa.array([True]) if f.name == PUNCT else pa.nulls(1, f.type) for f in target]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def read_splits(
    source: FileSource,
    splits: list[FileSplit],
    schema: StructType,
    stores: StoreSettings | None = None,
    folders: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of `splits` as Arrow batches of `schema`; raises InputError (see the policy of `source`).

    The values of the columns `folders` are in the names of directories.
    """
    for whole in _read_blocks(source, splits, schema, stores, folders):
        for at in range(0, whole.num_rows, ROWS_PER_BATCH):
            yield whole.slice(at, ROWS_PER_BATCH)


def _read_blocks(
    source: FileSource,
    splits: list[FileSplit],
    schema: StructType,
    stores: StoreSettings | None,
    folders: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of `splits`, block by block."""
    target = to_arrow(schema)
    types = ddl_types(schema)
    filesystem, root = locate(source.path, stores)
    partitions = PartitionFolders(pa.schema([target.field(name) for name in folders]), root)
    in_files = pa.schema([field for field in target if field.name not in folders])
    data_target = pa.schema([field for field in in_files if field.name != BAD_COLUMN])
    for split in splits:
        values = partitions.values(split.path)
        for batch in _read_split(filesystem, source, split, data_target, in_files, types):
            yield partitions.added(batch, values, target) if values else batch


def _read_split(
    filesystem: pafs.FileSystem,
    source: FileSource,
    split: FileSplit,
    data_target: pa.Schema,
    target: pa.Schema,
    types: dict[str, str],
) -> Iterator[pa.RecordBatch]:
    if isinstance(source, ParquetFiles):
        yield from read_row_groups(filesystem, split, target)
        return
    decoder: Decoder
    skip_header = False
    if isinstance(source, CsvFiles):
        names = column_names(source, data_target, first_line(filesystem, split.path), split.path)
        decoder = CsvDecoder(data_target, types, source, names)
        skip_header = source.header and split.start == 0
    elif isinstance(source, JsonLines):
        decoder = JsonDecoder(data_target, types, source.timestamp_format)
    else:
        decoder = TextDecoder(data_target)
    fails = source.on_bad_record == "fail"
    lines = LineNumbers(filesystem, split, None if fails else MAX_LINE_SCAN_BYTES)
    quote = source.quote if isinstance(source, CsvFiles) and source.multiline else None
    for block in read_blocks(filesystem, split, quote):
        base = int(block.ends[0]) + 1 if skip_header else 0
        data, ends = (block.data[base:], block.ends[1:] - base) if base else (block.data, block.ends)
        skip_header = False
        pieces = []
        for piece in parse_records(decoder, data, ends):
            if isinstance(piece, pa.RecordBatch):
                pieces.append(piece if fails else _with_bad_column(piece, target))
            elif fails:
                raise bad_record_error(split.path, lines.of(block, base + piece.start), block, piece)
            else:
                pieces.append(_bad_row(piece, split.path, lines.of(block, base + piece.start), block, target))
        if pieces:
            yield pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def _with_bad_column(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    nothing = pa.nulls(batch.num_rows, target.field(BAD_COLUMN).type)
    return pa.RecordBatch.from_arrays([*batch.columns, nothing], schema=target)


def _bad_row(bad: BadRecord, path: str, line: int | None, block: Block, target: pa.Schema) -> pa.RecordBatch:
    error = str(bad.explanation)
    if line is None:
        error += f" (at byte {block.offset + bad.start})"
    raw = bad.raw.decode("utf-8", errors="backslashreplace")
    row = {BAD_COLUMN: {"raw": raw, "file": path, "line": line, "error": error}}
    return pa.RecordBatch.from_pylist([row], schema=target)
