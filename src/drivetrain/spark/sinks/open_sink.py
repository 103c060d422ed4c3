"""Opening a sink: from its declaration to what writes it."""

from __future__ import annotations

from drivetrain.api.sinks import BatchesSink, ConsoleSink, FileSink, MemorySink, NullSink, Sink
from drivetrain.spark.sinks.context import SinkContext, SinkWriter
from drivetrain.spark.sinks.files import FileSinkWriter
from drivetrain.spark.sinks.others import (
    BatchesSinkWriter,
    ConsoleSinkWriter,
    MemorySinkWriter,
    NullSinkWriter,
)
from drivetrain.spark.sinks.target import Target


def open_sink(sink: Sink, context: SinkContext) -> SinkWriter:
    """The writer of a sink; touches nothing before `validate`."""
    match sink:
        case FileSink():
            return FileSinkWriter(sink, context)
        case ConsoleSink():
            return ConsoleSinkWriter(sink, context)
        case BatchesSink():
            return BatchesSinkWriter(sink, context)
        case MemorySink():
            return MemorySinkWriter(sink, context)
        case NullSink():
            return NullSinkWriter()


def sink_path(sink: Sink) -> str | None:
    """The place a sink writes to, normalized, so that two on one place are found; None for no place."""
    return Target(sink.path).uri.rstrip("/") if isinstance(sink, FileSink) else None
