"""Read a channel as a Spark stream.

Problem: a subscriber must get each entry's messages exactly once and in batches of bounded size, must stop at
a checkpoint's barrier, and must learn the producer's clock even when no messages come.

Design: the offset is a position in the log, with the clock there: `{"entry": n, "clock": ms, "life": k}`.
Spark's driver asks one of Drivetrain's processes how far the next batch may go; tasks then map segment
files and pass Arrow batches to Spark. Each batch ends in one punctuation row that carries the clock of its
last entry.

After a restart Spark knows the watermark of the query but not the clock of each input. An input that stays
silent, because it is idle or has ended, would hold the others back for good. So a reader that finds nothing
new when it starts repeats its clock once. The offset must change for Spark to run a batch for that: `life`
counts such starts.

Invariants:

1. The rows of a batch depend on its two offsets only, so a replay delivers the same rows.
2. A batch holds exactly one punctuation row: data columns null, `__punct` true, and `__ts` and `__wm`
   the clock of the last entry at its end, `__wm` on the scale of `watermark_of`. In data `__wm` is 1970 and
   `__punct` false.
3. A batch that is planned while a barrier is not released ends before that barrier.
4. A batch never ends with a barrier: even an empty batch of a stateful fragment takes time, and the next
   batch can carry the barrier's clock.
5. A position is recorded only for entries whose batch Spark has finished.

Called by: Spark; the engine loads it and hands it to `with_channel_clock`.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from drivetrain.core.channel.channel_log import Entry, Segment, TrimmedError
from drivetrain.core.channel.pace import Pace, Waiting
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.runtime.channel.columns import PUNCT, TS, WM
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.outside_reader import OutsideReader
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clock_source import read_clock
from drivetrain.spark.channel.segment_rows import MessageRows, ReducedRows, SegmentRows
from drivetrain.spark.connector.planner_process import end_with_connection
from drivetrain.spark.connector.reduction import Reduction
from drivetrain.spark.measure.batch_limit import limited
from drivetrain.spark.session.spark_errors import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES = 256 << 10
"""A batch is read with one task per this many bytes, up to the option `tasks`."""


@dataclass
class ChannelPartition(InputPartition):
    """The input of one task: some segments, and in one of the tasks the batch's punctuation."""

    segments: tuple[Segment, ...]
    clock_ms: int | None


@contextmanager
def packing_losses() -> Iterator[None]:
    """Pack a message loss so that Spark's error can be unpacked to it."""
    try:
        yield
    except MessageLossError as error:
        raise embedded(error) from error


class ChannelSource(DataSource):
    """`spark.readStream.format("drivetrain_channel").schema(…).option("uri", …).load()`.

    The schema is the data columns, then `__ts timestamp, __wm timestamp, __punct boolean`.

    Options: `uri`; `subscriber` (records its position in the channel; needed for trimming and
    back-pressure); `maxRows` and `maxBytes` per batch (an entry is never split); `tasks`, the most
    tasks per batch (default 2); `released`, a file with the round of the last released barrier: with it a
    batch ends before a barrier that is not released yet; `limit`, a file with the share of
    `maxBytes` that the next batch may take; `start`, the position of a new query (default: the oldest entry);
    `intervalMs` with `windowBatches`, `windowRows` and `windowBytes`, how often a batch begins (`Pace`);
    `outside`, for a channel of another application: its producer learns what is planned; `reduction` and
    `columns` (both as JSON): rows are then partial results of messages with these columns.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "drivetrain_channel"

    def streamReader(self, schema: Any) -> ChannelReader:  # noqa: N802 - the name is Spark's
        """The reader; planned on Spark's driver, read in tasks."""
        end_with_connection()
        return ChannelReader(dict(self.options), schema)


class ChannelReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches of one channel."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        # Spark's options ignore case; a plain dict of them has lower-case keys.
        options = {key.lower(): value for key, value in options.items()}
        self._uri = options["uri"]
        self._subscriber = options.get("subscriber")
        self._max_rows = int(options.get("maxrows", 0))
        self._max_bytes = int(options.get("maxbytes", 0))
        self._tasks = int(options.get("tasks", 2))
        self._limit_path = options.get("limit")
        self._released_path = options.get("released")
        self._first = int(options["start"]) if "start" in options else None
        self._is_outside = options.get("outside") == "true"
        self._pace = _pace(options)
        self._planned_ms: int | None = None
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._reduction = (options["reduction"], options["columns"]) if "reduction" in options else None
        self._store: ChannelStore | None = None
        self._recorded = -1
        self._stop_at: int | None = None
        self._has_repeated = False

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy of the reader; they need no log.
        return {**self.__dict__, "_store": None}

    # -- on the driver -------------------------------------------------------------------------

    @packing_losses()
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - the name is Spark's
        """Where a new query starts."""
        first = self._log().start() if self._first is None else self._first
        return {"entry": first, "clock": NO_CLOCK_MS, "life": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - the name is Spark's
        """The limits from the options; Spark passes one of them back, and `latestOffset` keeps both."""
        if self._max_bytes:
            return ReadMaxBytes(self._max_bytes)
        if self._max_rows:
            return ReadMaxRows(self._max_rows)
        return ReadAllAvailable()

    @packing_losses()
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the next batch may go. Spark has finished `start`, so it is the position."""
        position = start["entry"]
        self._record(position)
        end = self._log().length()
        if self._stop_at is not None:
            end = min(end, max(self._stop_at, position))
        reached = self._batch_end(position, end, is_limited=not isinstance(limit, ReadAllAvailable))
        has_repeated, self._has_repeated = self._has_repeated, True
        if reached > position and not self._is_due(position, reached, end):
            return start
        if reached > position:
            if self._is_outside:
                OutsideReader(self._log()).plan(reached)
                self._log().forget(before=reached)  # entries may have been dropped before they were planned
            return {"entry": reached, "clock": self._log().entry(reached - 1).clock_ms, "life": start["life"]}
        if has_repeated or start["clock"] == NO_CLOCK_MS:
            return start
        return {**start, "life": start["life"] + 1}

    @packing_losses()
    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - the name is Spark's
        """The end of the log, for Spark's progress reports."""
        return {"entry": self._log().length(), "clock": NO_CLOCK_MS, "life": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - the name is Spark's
        """Stop at the current end of the log."""
        self._stop_at = self._log().length()

    @packing_losses()
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Spread the segments of the entries over at most `tasks` partitions of similar size."""
        entries = self._log().entries(start["entry"], end["entry"])
        if len(entries) != end["entry"] - start["entry"]:
            # They existed when the batch was planned; their producer may be about to append them again.
            raise MessageLossError(
                "the channel does not contain the entries that a batch was planned to take",
                where=self._uri,
                expected=f"entries {start['entry']} to {end['entry'] - 1}",
                got=f"{len(entries)} of them",
                remedy="run it again, which repairs them if possible; --fresh starts over",
            )
        if start == end:
            return []
        self._log().forget(before=start["entry"])
        shares = _shares([s for entry in entries for s in entry.segments], self._tasks)
        last = len(shares) - 1
        return [
            ChannelPartition(tuple(share), end["clock"] if index == last else None)
            for index, share in enumerate(shares)
        ]

    def commit(self, end: dict[str, int]) -> None:
        """Spark will not ask for anything below `end` again."""
        self._record(end["entry"])

    def stop(self) -> None:
        """Does nothing: the reader holds nothing open."""

    def _batch_end(self, position: int, end: int, *, is_limited: bool) -> int:
        released = self._released()
        rows = size = 0
        max_bytes = limited(self._max_bytes, self._limit_path)
        reached = position
        for number in range(position, end):
            entry = self._unread(number)
            if entry.barrier is not None:
                if released is not None and entry.barrier.round > released:
                    break
                continue
            rows += entry.rows
            size += entry.bytes
            if is_limited and reached > position and self._too_much(rows, size, max_bytes):
                break
            reached = number + 1
        return reached

    def _unread(self, number: int) -> Entry:
        """An entry that the log has listed, from the position of this subscriber on."""
        try:
            return self._log().entry(number)
        except TrimmedError as error:
            if self._is_outside:
                raise  # its producer may drop what it does not read
            # The position keeps it from being trimmed, so it is lost, and its producer can make it again.
            raise MessageLossError(
                f"entry {number} of the channel is gone before it was read",
                where=self._uri,
                expected="an entry from the position of its subscriber on",
                remedy="run it again, which repairs it if possible; --fresh starts over",
            ) from error

    def _is_due(self, position: int, reached: int, end: int) -> bool:
        """Whether a batch up to `reached` begins now, of the entries up to `end`."""
        if self._pace is None or self._stop_at is not None:
            return True
        entries, now_ms = self._log().entries(position, reached), int(time.time() * 1000)
        rows, size = sum(entry.rows for entry in entries), sum(entry.bytes for entry in entries)
        clock_ms = self._log().entry(reached - 1).clock_ms
        waiting = Waiting(reached - position, rows, size, clock_ms, is_all=reached == end)
        if not self._pace.is_due(waiting, now_ms, self._planned_ms):
            return False
        self._planned_ms = now_ms
        return True

    def _too_much(self, rows: int, size: int, max_bytes: int) -> bool:
        return bool((self._max_rows and rows > self._max_rows) or (max_bytes and size > max_bytes))

    def _released(self) -> int | None:
        if self._released_path is None:
            return None
        released = read_clock(self._released_path)
        return -1 if released is None else released

    def _record(self, position: int) -> None:
        if self._subscriber is not None and position > self._recorded:
            self._log().record_position(self._subscriber, position)
            self._recorded = position

    def _log(self) -> ChannelStore:
        if self._store is None:
            self._store = ChannelStore(self._uri)
        return self._store

    # -- in tasks ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The verified rows of one partition; raises a message loss, packed for Spark."""
        assert isinstance(partition, ChannelPartition)
        of = self._rows()
        with packing_losses():
            yield from of.rows(ChannelFiles(self._uri), partition.segments)
        if partition.clock_ms is not None:
            yield of.punctuation(partition.clock_ms)

    def _rows(self) -> SegmentRows:
        if self._reduction is None:
            return MessageRows(self._schema)
        reduction, columns = self._reduction
        return ReducedRows(Reduction.from_json(reduction), StructType.fromJson(json.loads(columns)))


def _pace(options: Mapping[str, str]) -> Pace | None:
    if "intervalms" not in options:
        return None
    limits = (int(options.get(f"window{what}", 0)) for what in ("batches", "rows", "bytes"))
    return Pace(int(options["intervalms"]), *limits)


def _shares(segments: Sequence[Segment], tasks: int) -> list[list[Segment]]:
    """Give the largest segment to the smallest share: 1 to `tasks` shares, none empty if there are
    segments.

    A Python task costs some 20 ms before it reads a byte, so one task reads a small batch.
    """
    worth = -(-sum(segment.bytes for segment in segments) // TASK_BYTES)
    shares: list[list[Segment]] = [[] for _ in range(max(1, min(tasks, len(segments), worth)))]
    loads = [0] * len(shares)
    for segment in sorted(segments, key=lambda s: s.bytes, reverse=True):
        lightest = loads.index(min(loads))
        shares[lightest].append(segment)
        loads[lightest] += segment.bytes
    return shares


def channel_schema(data: StructType) -> StructType:
    """The schema of a channel's stream: the data columns (with or without `__ts`), then Drivetrain's own."""
    kept = [StructField(field.name, field.dataType) for field in data if field.name != TS]
    own = [
        StructField(TS, TimestampType()),
        StructField(WM, TimestampType()),
        StructField(PUNCT, BooleanType()),
    ]
    return StructType(kept + own)


def read_channel(spark: SparkSession, uri: str, data: StructType, **options: str | int) -> DataFrame:
    """The stream of a channel; `options` are those of `ChannelSource`. Give it to `with_channel_clock`."""
    return _read(spark, channel_schema(data), uri=uri, **options)


def read_partial_results(
    spark: SparkSession, uri: str, data: StructType, reduction: Reduction, **options: str | int
) -> DataFrame:
    """The stream of a channel as partial results of its messages; for `with_clock_of_partial_results`."""
    by = {"reduction": reduction.to_json(), "columns": data.json()}
    return _read(spark, reduction.columns(data), uri=uri, **by, **options)


def _read(spark: SparkSession, schema: StructType, **options: str | int) -> DataFrame:
    spark.dataSource.register(ChannelSource)
    return spark.readStream.format(ChannelSource.name()).schema(schema).options(**options).load()
