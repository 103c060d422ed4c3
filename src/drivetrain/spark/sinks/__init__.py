"""Adapters that write the sinks which applications declare."""

from drivetrain.spark.sinks.context import SinkContext, SinkWriter, TransactionalSinkWriter
from drivetrain.spark.sinks.manifest import published_files
from drivetrain.spark.sinks.memory import collected, collected_together
from drivetrain.spark.sinks.open_sink import open_sink, sink_path
from drivetrain.spark.sinks.publishing import abort_after, is_transactional, publish_transaction

__all__ = [
    "SinkContext",
    "SinkWriter",
    "TransactionalSinkWriter",
    "abort_after",
    "collected",
    "collected_together",
    "is_transactional",
    "open_sink",
    "publish_transaction",
    "published_files",
    "sink_path",
]
