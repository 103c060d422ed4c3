"""The interface between the engine and connectors: implement these to read and write another system."""

from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.feed import Feed
from drivetrain.spark.connector.sink import (
    CommittingSinkWriter,
    PreparingSinkWriter,
    RollingSinkWriter,
    SinkContext,
    SinkWriter,
    TransactionalSinkWriter,
)
from drivetrain.spark.connector.source import BAD_COLUMN, OpenedSource, Position, SourceContext

__all__ = [
    "BAD_COLUMN",
    "CommittingSinkWriter",
    "Connector",
    "Feed",
    "OpenedSource",
    "Position",
    "PreparingSinkWriter",
    "RollingSinkWriter",
    "SinkContext",
    "SinkWriter",
    "SourceContext",
    "TransactionalSinkWriter",
]
