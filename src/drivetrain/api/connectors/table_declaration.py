"""The common part of the declarations of sinks that write to tables, whatever the tables' format.

There are two modes:

- `append`: every row is added once. The rows and the number of the last batch are one commit of the table.
- `upsert`: a row replaces the one with the same `key`. If several rows of a batch have the same key, the last
  one counts, in Spark's order; or, with `newest`, the one with the largest value in that column.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.

Called by `delta_sink` and `iceberg_sink`; read by the planner and by the adapters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from drivetrain.errors import GraphError

TableMode: TypeAlias = Literal["append", "upsert"]
TableOnFresh: TypeAlias = Literal["refuse", "keep", "empty"]


@dataclass(frozen=True, kw_only=True)
class TableSink:
    """Writes rows to a table, each batch or checkpoint in one commit.

    A missing table is created from the columns of the first batch, partitioned by `partition_by`. The columns
    of an existing table must fit; with `evolve`, columns that it lacks are added to it.

    `key` names the columns that identify a row in mode `upsert`; none of them may be null. If a batch has
    several rows with the same key, the one with the largest value in the column `newest` counts. `on_fresh`
    decides what a run with `--fresh` does if the application has written rows: `refuse` to run, `keep` them,
    or `empty` the table, whoever wrote the rows. By default it is `refuse` for `append` and `keep` for
    `upsert`. `timeout` ("60 s", kept in milliseconds) is how long the sink tries to commit while other
    writers change the table, before the batch fails.
    """

    kind: ClassVar[str]
    """The name of the function that declares it."""
    mode: TableMode = "append"
    key: tuple[str, ...] = ()
    newest: str | None = None
    partition_by: tuple[str, ...] = ()
    evolve: bool = False
    on_fresh: TableOnFresh | None = None
    timeout_ms: int = 60_000
    guarantee: ClassVar[Literal["exactly once"]] = "exactly once"

    def __post_init__(self) -> None:
        if self.mode not in ("append", "upsert"):
            raise self._wrong("unknown mode", "append or upsert", repr(self.mode))
        if self.on_fresh not in (None, "refuse", "keep", "empty"):
            raise self._wrong("unknown on_fresh", "refuse, keep or empty", repr(self.on_fresh))
        if self.mode == "upsert" and not self.key:
            raise self._wrong("upsert needs a key", 'key=["id"] beside mode="upsert"')
        if self.mode == "append" and (self.key or self.newest):
            raise self._wrong("key and newest are for replacing rows", 'mode="upsert" beside them')
        for columns, what in ((self.key, "a key"), (self.partition_by, "partition_by")):
            if len(set(columns)) < len(columns):
                raise self._wrong(f"{what} has each column once", "different columns", ", ".join(columns))

    @property
    def name(self) -> str:
        """The table, as plans and errors show it."""
        raise NotImplementedError

    @property
    def why(self) -> str:
        """The reason for the guarantee."""
        if self.mode == "upsert":
            return f"exactly once by key ({', '.join(self.key)}): rows and batch are one commit of the table"
        return "rows and the last batch's number are one commit of the table"

    def _wrong(self, what: str, expected: str, got: str | None = None) -> GraphError:
        return GraphError(what, where=f"sinks.{self.kind}", expected=expected, got=got)
