"""Opening a sink: from its declaration to what writes it."""

from __future__ import annotations

import os

from drivetrain.api.sinks import (
    BatchesSink,
    ConsoleSink,
    FileSink,
    KafkaSink,
    MemorySink,
    NullSink,
    PostgresqlSink,
    Sink,
    SqliteSink,
)
from drivetrain.spark.sinks.context import SinkContext, SinkWriter
from drivetrain.spark.sinks.files import FileSinkWriter
from drivetrain.spark.sinks.kafka import open_kafka
from drivetrain.spark.sinks.memory import MemorySinkWriter
from drivetrain.spark.sinks.others import BatchesSinkWriter, ConsoleSinkWriter, NullSinkWriter
from drivetrain.spark.sinks.sql import open_sql
from drivetrain.spark.sources.durable import is_local
from drivetrain.spark.sources.location import locate


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
        case KafkaSink():
            return open_kafka(sink, context)
        case SqliteSink() | PostgresqlSink():
            return open_sql(sink, context)


def sink_path(sink: Sink) -> str | None:
    """The place a sink writes to, normalized, so that two on one place are found; None for no place."""
    if isinstance(sink, MemorySink):
        return f"memory:{sink.name}"
    if not isinstance(sink, FileSink):
        return None
    filesystem, path = locate(sink.path)
    return os.path.realpath(path) if is_local(filesystem) else f"{filesystem.type_name}:{path.rstrip('/')}"
