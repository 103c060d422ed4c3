"""The connectors of sources and sinks within the process.

`Items` and `Socket` are stored before they are read as streams (`spark.prepare.stored_sources`), which opens
their feeds; items can be read as a table, too. Streams of other applications are read by
`spark.prepare.outside_stream`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.sinks import BatchesSink, ConsoleSink, MemorySink, NullSink
from drivetrain.api.sources import Generator, Items, Socket
from drivetrain.connectors.in_process.generator import generate_rows
from drivetrain.connectors.in_process.memory_sink import MemorySinkWriter
from drivetrain.connectors.in_process.opened_generator import open_rows, validate_generator
from drivetrain.connectors.in_process.plain_sinks import BatchesSinkWriter, ConsoleSinkWriter, NullSinkWriter
from drivetrain.connectors.schema import to_struct
from drivetrain.spark.channel.feeds import IterableFeed, SocketFeed
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.feed import Feed
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import OpenedSource, SourceContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class GeneratorConnector(Connector):
    """Rows that Spark generates."""

    sources = (Generator,)

    def open_source(self, source: Generator, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """Open a generator."""
        return open_rows(source, context)

    def read_whole(self, source: Generator, context: SourceContext) -> DataFrame:
        """All rows of a generator."""
        validate_generator(source, context.source_id)
        return generate_rows(context.spark.range(source.rows or 0), source, context.source_id)


class ItemsConnector(Connector):
    """Python iterables."""

    sources = (Items,)

    def open_feed(self, source: Items, context: SourceContext) -> Feed:
        """The elements, as rows."""
        return IterableFeed(_rows(source.rows))

    def read_whole(self, source: Items, context: SourceContext) -> DataFrame:
        """All elements of an iterable."""
        rows = [
            dataclasses.astuple(row) if dataclasses.is_dataclass(row) and not isinstance(row, type) else row
            for row in source.rows
        ]
        return context.spark.createDataFrame(rows, to_struct(source.schema, context.source_id))


def _rows(iterable: Iterable[object]) -> Iterable[Any]:
    for row in iterable:
        if dataclasses.is_dataclass(row) and not isinstance(row, type):
            yield tuple(getattr(row, f.name) for f in dataclasses.fields(row))
        else:
            yield row


class SocketConnector(Connector):
    """Lines from a TCP server, which are stored as they come."""

    sources = (Socket,)

    def open_feed(self, source: Socket, context: SourceContext) -> Feed:
        """The lines."""
        return SocketFeed(source.host, source.port, sets_aside=source.on_bad_record == "dead_letter")


class ApplicationConnector(Connector):
    """Streams of other applications, whose channels are read where those keep them."""

    sources = (ApplicationStream,)


class ConsoleConnector(Connector):
    """Tables on standard output."""

    sinks = (ConsoleSink,)

    def open_sink(self, sink: ConsoleSink, context: SinkContext) -> SinkWriter:
        """The writer to standard output."""
        return ConsoleSinkWriter(sink, context)


class FunctionConnector(Connector):
    """Python functions that are called with each batch."""

    sinks = (BatchesSink,)

    def open_sink(self, sink: BatchesSink, context: SinkContext) -> SinkWriter:
        """The caller of a function."""
        return BatchesSinkWriter(sink, context)


class MemoryConnector(Connector):
    """Lists in this process."""

    sinks = (MemorySink,)

    def open_sink(self, sink: MemorySink, context: SinkContext) -> SinkWriter:
        """The writer to a list."""
        return MemorySinkWriter(sink, context)


class NullConnector(Connector):
    """Discards messages."""

    sinks = (NullSink,)

    def open_sink(self, sink: NullSink, context: SinkContext) -> SinkWriter:
        """The writer that drops every message."""
        return NullSinkWriter()
