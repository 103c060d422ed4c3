"""Adapters that write the sinks which applications declare."""

from drivetrain.spark.sinks.context import SinkContext, SinkWriter

__all__ = ["SinkContext", "SinkWriter"]
