"""The connector of Delta tables."""

from __future__ import annotations

from drivetrain.api.delta_sink import DeltaSink
from drivetrain.connectors.delta.delta_sink import DeltaSinkWriter
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class DeltaConnector(Connector):
    """Tables of Delta Lake, written."""

    sinks = (DeltaSink,)

    def open_sink(self, sink: DeltaSink, context: SinkContext) -> SinkWriter:
        """The writer to a table."""
        return DeltaSinkWriter(sink, context)
