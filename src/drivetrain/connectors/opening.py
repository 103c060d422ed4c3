"""Opens the sources and sinks that an application declares, by the connector of each declaration's class.

Called by the engine, once per source or sink and start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from drivetrain.api.sinks import Sink
from drivetrain.api.sources import Source
from drivetrain.config import Config
from drivetrain.connectors.registry import connector_of
from drivetrain.errors import GraphError
from drivetrain.spark.connector.feed import Feed
from drivetrain.spark.connector.sink import SinkContext, SinkWriter
from drivetrain.spark.connector.source import OpenedSource, SourceContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.connectors.tables.compaction import Compaction


def check_source(source: Source, config: Config) -> None:
    """Raise an error for a source that cannot be read, as far as that is visible without Spark."""
    connector_of(source, "source").check_source(source, config)


def open_source(source: Source, context: SourceContext, *, has_end_row: bool = False) -> OpenedSource:
    """Check a source and open it as a stream; see `Connector.open_source`."""
    return connector_of(source, "source").open_source(source, context, has_end_row=has_end_row)


def open_feed(source: Source, context: SourceContext) -> Feed:
    """The feed of a source whose messages are stored first; see `Connector.open_feed`."""
    return connector_of(source, "source").open_feed(source, context)


def read_whole(source: Source, context: SourceContext) -> DataFrame:
    """A bounded source as a batch DataFrame with the user's columns.

    A record that cannot be read always fails: a table has no dead letters. Raises GraphError for a source
    without end, and InputError as `open_source` does.
    """
    if not source.bounded:
        raise GraphError(
            "a source without end cannot be a table",
            where=context.source_id,
            expected="files without watch=True, a generator with rows, or items",
            got=type(source).__name__,
            remedy="join the two streams within a time range instead",
        )
    return connector_of(source, "source").read_whole(source, context)


def open_sink(sink: Sink, context: SinkContext) -> SinkWriter:
    """The writer of a sink; touches nothing before `validate`."""
    return connector_of(sink, "sink").open_sink(sink, context)


def compact_table(sink: Sink, config: Config, target_bytes: int, *, dry_run: bool) -> Compaction:
    """Join the small files of the table that a sink writes to; see `Connector.compact`."""
    return cast("Compaction", connector_of(sink, "sink").compact(sink, config, target_bytes, dry_run=dry_run))
