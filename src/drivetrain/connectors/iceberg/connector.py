"""The connector of Iceberg tables."""

from __future__ import annotations

from drivetrain.api.iceberg_sink import IcebergSink
from drivetrain.config import Config
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.tables.table_writer import TableSinkWriter
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class IcebergConnector(Connector):
    """Tables of Iceberg, written."""

    sinks = (IcebergSink,)

    def open_sink(self, sink: IcebergSink, context: SinkContext) -> SinkWriter:
        """The writer to a table."""
        stores = StoreSettings.of(context.config or Config())
        return TableSinkWriter(sink, context, IcebergTarget(sink, stores))
