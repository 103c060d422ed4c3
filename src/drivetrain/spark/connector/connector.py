"""A connector: the declarations of one system, and the code that opens and checks them.

The problem: the engine must read from and write to systems that it does not know. The design: a connector
names the classes of declarations (frozen dataclasses that an application passes to `read` and `sink`) and
opens them. `connectors.registry` finds the connector of a declaration by its class.

A connector that only reads leaves `sinks` empty and does not override `open_sink`; one that only writes does
the opposite. Creating a connector opens nothing: each process creates it once.

Called by `connectors.registry` and the connectors, which implement it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from drivetrain.errors import GraphError, InternalError, UserError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.config import Config
    from drivetrain.spark.connector.feed import Feed
    from drivetrain.spark.connector.sink import SinkContext, SinkWriter
    from drivetrain.spark.connector.source import OpenedSource, SourceContext


class Connector:
    """Opens the sources and sinks of one system; a subclass overrides what the system can do."""

    sources: ClassVar[tuple[type, ...]] = ()
    """The classes of declarations that it reads, subclasses included."""
    sinks: ClassVar[tuple[type, ...]] = ()
    """The classes of declarations that it writes, subclasses included."""

    def check_source(self, source: Any, config: Config) -> None:
        """Raise an error for a source that cannot be read; called before Spark starts, and needs no Spark."""

    def open_source(self, source: Any, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """Check a source and open it as a stream; raises `InputError` when it cannot be read.

        `has_end_row` is true only for declarations whose `can_have_end_row` is: then the rows have one more
        column, `__punct`, which is true in one row of nulls in the batch that reaches the end, and false
        elsewhere.
        """
        raise InternalError(f"{type(self).__name__} does not open {type(source).__name__}")

    def open_feed(self, source: Any, context: SourceContext) -> Feed:
        """The feed of a push source (`sources.PushSource`), which connects when it is opened itself."""
        raise InternalError(f"{type(self).__name__} does not receive from {type(source).__name__}")

    def read_whole(self, source: Any, context: SourceContext) -> DataFrame:
        """A bounded source as a batch DataFrame with the user's columns, for joins with streams.

        A record that cannot be read is an error: a table has no dead letters.
        """
        raise GraphError(
            "this source cannot be read as a table",
            where=context.source_id,
            got=type(source).__name__,
            remedy="read it as a stream, and join the two streams within a time range",
        )

    def open_sink(self, sink: Any, context: SinkContext) -> SinkWriter:
        """The writer of a sink; touches nothing before `validate`."""
        raise InternalError(f"{type(self).__name__} does not open {type(sink).__name__}")

    def compact(self, sink: Any, config: Config, target_bytes: int, *, dry_run: bool) -> Any:
        """Join the small files of the table that a sink writes to; returns a `Compaction`.

        Safe beside running sinks, and needs no Spark. Raises `UserError` for a sink without a table of files.
        """
        raise UserError(
            "this sink writes to no table whose files can be compacted",
            where=getattr(sink, "name", None),
            expected="sinks.delta(…) or sinks.iceberg(…)",
            got=type(sink).__name__,
            remedy="sinks of files join their files before readers see them: give them roll=",
        )
