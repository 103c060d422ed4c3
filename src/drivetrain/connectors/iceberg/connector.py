"""The connector of Iceberg tables."""

from __future__ import annotations

from drivetrain.api.connectors.iceberg_sink import IcebergSink
from drivetrain.config import Config
from drivetrain.connectors.iceberg.iceberg_compaction import compact_iceberg
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.tables.compaction import Compaction
from drivetrain.connectors.tables.table_writer import TableSinkWriter
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter


class IcebergConnector(Connector):
    """Tables of Iceberg, written and compacted."""

    sinks = (IcebergSink,)

    def open_sink(self, sink: IcebergSink, context: SinkContext) -> SinkWriter:
        """The writer to a table."""
        stores = StoreSettings.of(context.config or Config())
        return TableSinkWriter(sink, context, IcebergTarget(sink, stores))

    def compact(self, sink: IcebergSink, config: Config, target_bytes: int, *, dry_run: bool) -> Compaction:
        """Join the small files of the table of `sink`."""
        target = IcebergTarget(sink, StoreSettings.of(config))
        return compact_iceberg(target, target_bytes, sink.timeout_ms, dry_run=dry_run)
