"""Sources that cannot replay: stored in a channel first, and read from there.

A Python iterable, a socket or a broker delivers everything once. `channel.ingest` stores its messages; the
fragment reads the store like a channel. If the application takes the event time from a column, the store is
read as a plain source (the clock then follows that column); otherwise a message's timestamp is the time
of storing, and the store's own clock applies.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructType, TimestampType

from drivetrain.api.sources import Items, PushSource, Socket
from drivetrain.connectors.opening import open_feed
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.replay.replay import SourceTime
from drivetrain.runtime.channel.columns import PUNCT, TS, WM
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clocked import with_channel_clock
from drivetrain.spark.channel.ingest import Ingest, IngestLimits
from drivetrain.spark.channel.ingest_threads import IngestThreads
from drivetrain.spark.channel.source import read_channel
from drivetrain.spark.connector.source import (
    BAD_COLUMN,
    BAD_COLUMN_TYPE,
    DEFAULT_MAX_BATCH_BYTES,
    OpenedSource,
    Position,
    SourceContext,
)
from drivetrain.spark.prepare.source_store import Retention, first_entry, note_index


class StoredSource(OpenedSource):
    """The stream of a source's store, up to its newest entry."""

    reader = "store"
    how_read = "stored at the source's end"
    limited_by = "bytes"

    def __init__(
        self,
        df: DataFrame,
        source: Items | Socket | PushSource,
        ingest: IngestThreads,
        store: ChannelStore,
        column: str | None,
        max_bytes: int,
    ) -> None:
        self._column = column
        self._max_bytes = max_bytes
        self.df = df
        self.bounded = source.bounded
        self._ingest = ingest
        self._store = store

    def position(self, offset: str | None) -> Position:
        """How many messages were stored; raises the error of the ingestion."""
        self._ingest.raise_error()
        known = json.loads(offset) if offset else {"entry": self._store.start(), "clock": NO_CLOCK_MS}
        # The store's last entry has the final clock, and may be read before `ingest` is finished.
        finished = known["clock"] >= FINAL_CLOCK_MS
        finished = finished or (self._ingest.finished and known["entry"] >= self._store.length())
        return Position(self._ingest.stored, self._ingest.stored if finished else None, finished)

    def history_start(self, from_ms: int, end: str) -> str | None:
        """The offset before the first entry that can have a message of that time; raises `ReplayError` if
        it is gone."""
        store = ChannelStore(self._store.uri)  # listed again: it has been trimmed meanwhile
        first = first_entry(store, from_ms, self._column, store.uri)
        return self._before(store, min(first, json.loads(end)["entry"]))

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        """The end offset of a part: some of the entries after `start`."""
        store, last = ChannelStore(self._store.uri), json.loads(end)["entry"]
        number = json.loads(start)["entry"] if start else store.start()
        most, size = int(self._max_bytes * fraction), 0
        while number < last and (not size or size < most):
            size += max(1, store.entry(number).bytes)
            number += 1
        return end if number >= last else self._before(store, number)

    @staticmethod
    def _before(store: ChannelStore, number: int) -> str:
        """The offset before an entry."""
        clock_ms = store.entry(number - 1).clock_ms if number > store.start() else NO_CLOCK_MS
        return json.dumps({"entry": number, "clock": clock_ms, "life": 0})


class StoreThreads(Protocol):
    """Stores the messages of a source."""

    def start(self) -> None:
        """Begin; returns at once."""

    def stop(self) -> None:
        """Stop, and wait for that."""


class StoreRetention(Protocol):
    """Deletes messages from the store of a source."""

    def trim(self, store: ChannelStore) -> None:
        """Delete messages that were read and need not be kept."""


@dataclass(frozen=True)
class StoredInput:
    """A source with its store: start `ingest` before the query that reads `opened`."""

    opened: OpenedSource
    ingest: StoreThreads
    store: ChannelStore
    kept: StoreRetention


@dataclass(frozen=True)
class StoreStart:
    """Where a new query begins in a store: at the first entry that may have a message of a replay."""

    from_ms: int
    where: str


def open_stored(
    context: SourceContext,
    source: Items | Socket | PushSource,
    uri: str,
    *,
    time: SourceTime | None,
    by_arrival: bool,
    kept: Retention,
    window_bytes: int,
    begin: StoreStart | None = None,
    **options: str | int,
) -> StoredInput:
    """The store of `source` at `uri`, and its stream.

    With `by_arrival` the DataFrame has `__ts` (the time of storing) and the store's clock as its watermark;
    else only the data columns. `time` is where the messages get their event time; `begin` where a query
    without a checkpoint begins (None: at the oldest message), `kept` the retention for replays. `options` are
    those of the channel's reader. Raises `ReplayError` when the first messages to read are gone.
    """
    data = StructType.fromDDL(source.columns)
    store = ChannelStore(uri, fragment="ingest")
    reader = ChannelStore(uri)
    column = _indexed_column(data, time)
    if begin is not None:
        first = options["start"] = first_entry(reader, begin.from_ms, column, begin.where)
        if "subscriber" in options:
            for subscriber in reader.positions():
                store.forget_subscriber(subscriber)  # fragments of a changed graph have other names
            store.record_position(str(options["subscriber"]), first)
    if "subscriber" in options:
        note_index(store, column)
    index = None if column in (None, TS) else column
    feed = open_feed(source, context)
    limits = IngestLimits(unread_bytes=window_bytes, wait_ms=feed.wait_ms)
    if most := int(options.get("maxRows", 0)):  # an entry is never divided between batches
        limits = dataclasses.replace(limits, rows=min(most, limits.rows))
    bad_column = BAD_COLUMN if source.on_bad_record == "dead_letter" else None
    if bad_column is not None:
        data = StructType([*data.fields, *StructType.fromDDL(f"{bad_column} {BAD_COLUMN_TYPE}").fields])
    rows = Ingest(store, to_arrow_schema(data, timezone="UTC"), limits=limits, index=index)
    ingest = IngestThreads(rows, feed)
    most_bytes = int(options.get("maxBytes", 0)) or DEFAULT_MAX_BATCH_BYTES
    df = read_channel(context.spark, uri, data, **options)
    df = with_channel_clock(df) if by_arrival else df.where(~F.col(PUNCT)).drop(WM, PUNCT, TS)
    opened = StoredSource(df, source, ingest, reader, column, most_bytes)
    opened.bad_column = bad_column
    return StoredInput(opened, ingest, reader, kept)


def _indexed_column(data: StructType, time: SourceTime | None) -> str | None:
    """The column that the store's index is of; None when no stored column is the event time."""
    if time is None or not time.places:
        return TS
    kinds = {field.name: field.dataType for field in data}
    return time.column if isinstance(kinds.get(str(time.column)), TimestampType | LongType) else None
