"""Adapters that write the sinks which applications declare."""

from drivetrain.spark.sinks.context import SinkContext, SinkWriter
from drivetrain.spark.sinks.open_sink import open_sink, sink_path
from drivetrain.spark.sinks.others import collected

__all__ = ["SinkContext", "SinkWriter", "collected", "open_sink", "sink_path"]
