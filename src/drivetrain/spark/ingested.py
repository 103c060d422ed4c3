"""Sources that cannot replay: stored in a channel first, and read from there.

A Python iterable or a socket says everything once. `channel.ingest` stores what it says; the fragment
reads the store like a channel. If the application takes the event time from a column, the store is
read as a plain source (the clock then follows that column); otherwise a message's timestamp is when
it was stored, and the store's own clock rules.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from drivetrain.api.sources import Items, Socket
from drivetrain.api.types import schema_of
from drivetrain.spark.channel.clocked import with_channel_clock
from drivetrain.spark.channel.columns import PUNCT, TS, WM, read_channel
from drivetrain.spark.channel.feeds import Feed, IterableFeed, SocketFeed
from drivetrain.spark.channel.ingest import Ingest
from drivetrain.spark.channel.store import ChannelStore
from drivetrain.spark.sources import OpenedSource, Position


@dataclass(frozen=True)
class Ingested:
    """A source behind a source-end store: start `ingest` before the query that reads `opened`."""

    opened: OpenedSource
    ingest: Ingest
    store: ChannelStore


def is_ingested(source: object) -> TypeGuard[Items | Socket]:
    """Whether a source must be stored before it can be read."""
    return isinstance(source, Items | Socket)


def ingested(
    spark: SparkSession, source: Items | Socket, uri: str, *, by_arrival: bool, **options: str | int
) -> Ingested:
    """The store of `source` at `uri`, and its stream.

    With `by_arrival` the DataFrame has `__ts` (when a message was stored) and the store's clock as its
    watermark; else the data columns alone. `options` are those of the channel's reader.
    """
    ddl = "value string" if isinstance(source, Socket) else schema_of(source.schema)
    data = StructType.fromDDL(ddl)
    store = ChannelStore(uri, fragment="ingest")
    ingest = Ingest(store, to_arrow_schema(data, timezone="UTC"), _feed(source))
    df = read_channel(spark, uri, data, **options)
    df = with_channel_clock(df) if by_arrival else df.where(~F.col(PUNCT)).drop(WM, PUNCT, TS)
    reader = ChannelStore(uri)
    opened = OpenedSource(
        df, source.bounded, "rows", None, _position(ingest, reader), None, "stored at the source's end"
    )
    return Ingested(opened, ingest, reader)


def _position(ingest: Ingest, store: ChannelStore) -> Callable[[str | None], Position]:
    def position(offset: str | None) -> Position:
        ingest.raise_error()
        entry = json.loads(offset)["entry"] if offset else store.start()
        finished = ingest.finished and entry >= store.length()
        return Position(ingest.stored, ingest.stored if finished else None, finished)

    return position


def _feed(source: Items | Socket) -> Feed:
    if isinstance(source, Socket):
        return SocketFeed(source.host, source.port)
    return IterableFeed(_rows(source.iterable))


def _rows(iterable: Iterable[object]) -> Iterable[Any]:
    for row in iterable:
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            yield tuple(getattr(row, f.name) for f in dataclasses.fields(row))
        else:
            yield row
