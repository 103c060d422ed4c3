"""The connector of Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.connectors.delta_sink import DeltaSink
from drivetrain.api.connectors.delta_source import DeltaRows
from drivetrain.config import Config
from drivetrain.connectors.delta.delta_compaction import compact_delta
from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.connectors.delta.opened_delta import open_delta, read_delta_whole, require_table
from drivetrain.connectors.tables.compaction import Compaction
from drivetrain.connectors.tables.table_writer import TableSinkWriter
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import OpenedSource, SourceContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaConnector(Connector):
    """Tables of Delta Lake, read and written."""

    sources = (DeltaRows,)
    sinks = (DeltaSink,)

    def check_source(self, source: DeltaRows, config: Config) -> None:
        """Raise `InputError` unless the table can be read."""
        require_table(source, StoreSettings.of(config))

    def open_source(self, source: DeltaRows, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """Open the table of `source`."""
        return open_delta(source, context)

    def read_whole(self, source: DeltaRows, context: SourceContext) -> DataFrame:
        """The rows of the table when the application first started."""
        return read_delta_whole(source, context)

    def open_sink(self, sink: DeltaSink, context: SinkContext) -> SinkWriter:
        """The writer to a table."""
        stores = StoreSettings.of(context.config or Config())
        return TableSinkWriter(sink, context, DeltaTarget(sink.path, sink.name, stores))

    def compact(self, sink: DeltaSink, config: Config, target_bytes: int, *, dry_run: bool) -> Compaction:
        """Join the small files of the table of `sink`."""
        target = DeltaTarget(sink.path, sink.name, StoreSettings.of(config))
        return compact_delta(target, target_bytes, sink.timeout_ms, dry_run=dry_run)
