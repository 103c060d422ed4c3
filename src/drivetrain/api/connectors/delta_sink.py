"""The Delta sink: the declaration that a user writes.

The problem: a table in Delta Lake's format has a schema, partitions and other writers, and its readers
(Spark, DuckDB, Polars, Trino) find in its log which files count. So the declaration states how rows get into
the table (`table_declaration`), and nothing about files.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar

from drivetrain.api.connectors.table_declaration import TableMode, TableOnFresh, TableSink
from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of


@dataclass(frozen=True, kw_only=True)
class DeltaSink(TableSink):
    """Writes rows to the Delta table `path`; needs the package's extra `delta`.

    `path` is a directory, or a place in an object store (`s3://bucket/name`), which section `[s3]` of the
    configuration describes, or in HDFS (`hdfs://host:port/name`). The other fields are those of `TableSink`.
    """

    kind: ClassVar[str] = "delta"
    path: str

    def __post_init__(self) -> None:
        if not self.path or ("://" in self.path and not self.path.startswith(("s3://", "hdfs://"))):
            raise self._wrong(
                "not a place for a Delta table",
                "a path, s3://BUCKET/NAME or hdfs://HOST:PORT/NAME",
                repr(self.path),
            )
        if any("(" in name for name in self.partition_by):
            raise self._wrong("Delta tables are divided by columns", "names of columns in partition_by")
        super().__post_init__()

    @property
    def name(self) -> str:
        """The table, as plans and errors show it."""
        return self.path


def delta(
    path: str | PathLike[str],
    *,
    mode: TableMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    partition_by: Sequence[str] = (),
    evolve: bool = False,
    on_fresh: TableOnFresh | None = None,
    timeout: str = "60 s",
) -> DeltaSink:
    """Write rows to a Delta table, exactly once; see `DeltaSink`.

    Raises `GraphError` for invalid arguments.

    >>> delta("tables/sales", partition_by="country").partition_by
    ('country',)
    >>> delta("tables/balances", mode="upsert", key=["account"]).guarantee
    'exactly once'
    """
    return DeltaSink(
        path=fspath(path),
        mode=mode,
        key=names_of(key),
        newest=newest,
        partition_by=names_of(partition_by),
        evolve=evolve,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
