"""The interface between the engine and connectors: implement these to read and write another system."""

from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import BAD_COLUMN, OpenedSource, Position, SourceContext

__all__ = [
    "BAD_COLUMN",
    "Connector",
    "OpenedSource",
    "Position",
    "SinkContext",
    "SinkWriter",
    "SourceContext",
]
