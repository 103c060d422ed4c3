"""The Iceberg sink: the declaration that a user writes.

The problem: an Iceberg table is found through a catalog, which decides what its newest version is, and its
readers (Spark, DuckDB, Trino, Polars) find everything else from there. So the declaration names the catalog
and the table, and states how rows get into it (`table_declaration`).

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from drivetrain.api.connectors.partition_names import partition_name
from drivetrain.api.connectors.table_declaration import TableMode, TableOnFresh, TableSink
from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of
from drivetrain.config.references import HOW, is_literal_secret


@dataclass(frozen=True, kw_only=True)
class IcebergSink(TableSink):
    """Writes rows to the Iceberg table `table` ("namespace.name"); needs the package's extra `iceberg`.

    `catalog` is the name of a catalog of pyiceberg, and `options` are its properties (`uri`, `warehouse`, …),
    in which secrets are references; properties that are not given come from pyiceberg's own configuration
    (`.pyiceberg.yaml`, environment variables). Partitions in `partition_by` are columns, or units of time of
    a column: `year(at)`, `month(at)`, `day(at)`, `hour(at)`. The other fields are those of `TableSink`.
    """

    kind: ClassVar[str] = "iceberg"
    table: str
    catalog: str = "default"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if len(parts := self.table.split(".")) < 2 or not all(parts):
            raise self._wrong("not a table of a catalog", "namespace.name", repr(self.table))
        if not self.catalog:
            raise self._wrong("a catalog needs a name", 'catalog="lake", for example')
        for name, text in self.options:
            if is_literal_secret(name, text):
                raise self._wrong(f"{name} has a secret in it: {HOW}", "a reference")
        for declared in self.partition_by:
            try:
                partition_name(declared)
            except ValueError as error:
                raise self._wrong(
                    "unknown partition", "a column, or year, month, day or hour of one", str(error)
                ) from None
        super().__post_init__()

    @property
    def name(self) -> str:
        """The table, as plans and errors show it."""
        return f"{self.catalog}: {self.table}"


def iceberg(
    table: str,
    *,
    catalog: str = "default",
    options: Mapping[str, str] | None = None,
    mode: TableMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    partition_by: Sequence[str] = (),
    evolve: bool = False,
    on_fresh: TableOnFresh | None = None,
    timeout: str = "60 s",
) -> IcebergSink:
    """Write rows to an Iceberg table, exactly once; see `IcebergSink`.

    Raises `GraphError` for invalid arguments.

    >>> iceberg("shop.sales", catalog="lake", partition_by="day(at)").name
    'lake: shop.sales'
    >>> iceberg("shop.balances", mode="upsert", key=["account"]).guarantee
    'exactly once'
    """
    return IcebergSink(
        table=table,
        catalog=catalog,
        options=tuple((name, str(given)) for name, given in (options or {}).items()),
        mode=mode,
        key=names_of(key),
        newest=newest,
        partition_by=names_of(partition_by),
        evolve=evolve,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
