"""The connector of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.api.sinks import FileSink
from drivetrain.api.sources import FileSource
from drivetrain.config import Config
from drivetrain.connectors.files.file_checks import validate_source
from drivetrain.connectors.files.file_sink import FileSinkWriter
from drivetrain.connectors.files.opened_files import open_files, read_files_whole
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import OpenedSource, SourceContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class FilesConnector(Connector):
    """Directories of text, CSV, JSON lines and Parquet, read and written."""

    sources = (FileSource,)
    sinks = (FileSink,)

    def check_source(self, source: FileSource, config: Config) -> None:
        """Raise `InputError` unless there are files to read."""
        validate_source(source, StoreSettings.of(config))

    def open_source(self, source: FileSource, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """Open the files of `source`."""
        return open_files(source, context, has_end_row=has_end_row)

    def read_whole(self, source: FileSource, context: SourceContext) -> DataFrame:
        """The files that existed when the application first started."""
        return read_files_whole(source, context)

    def open_sink(self, sink: FileSink, context: SinkContext) -> SinkWriter:
        """The writer of files."""
        return FileSinkWriter(sink, context)
