"""The Delta sink: the declaration that a user writes.

The problem: a table in Delta Lake's format has a schema, partitions and other writers, and its readers
(Spark, DuckDB, Polars, Trino) find in its log which files count. So the declaration says how rows get into
the table, and nothing about files.

There are two modes:

- `append`: every row is added once. The rows and the number of the last batch are one commit of the table.
- `upsert`: a row replaces the one with the same `key`. If several rows of a batch have the same key, the last
  one counts, in Spark's order; or, with `newest`, the one with the largest value in that column.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar, Literal, TypeAlias

from drivetrain.api.durations import milliseconds
from drivetrain.api.names import names_of
from drivetrain.errors import GraphError

DeltaMode: TypeAlias = Literal["append", "upsert"]
DeltaOnFresh: TypeAlias = Literal["refuse", "keep", "empty"]


@dataclass(frozen=True, kw_only=True)
class DeltaSink:
    """Writes rows to the Delta table in the directory `path`; needs the package's extra `delta`.

    A missing table is created from the columns of the first batch, partitioned by `partition_by`. The columns
    of an existing table must fit; with `evolve`, columns that it lacks are added to it.

    `key` names the columns that identify a row in mode `upsert`; none of them may be null. If a batch has
    several rows with the same key, the one with the largest value in the column `newest` counts. `on_fresh`
    decides what a run with `--fresh` does if the application has written rows: `refuse` to run, `keep` them,
    or `empty` the table, whoever wrote the rows. By default it is `refuse` for `append` and `keep` for
    `upsert`. `timeout` ("60 s", kept in milliseconds) is how long the sink tries to commit while other
    writers change the table, before the batch fails.
    """

    path: str
    mode: DeltaMode = "append"
    key: tuple[str, ...] = ()
    newest: str | None = None
    partition_by: tuple[str, ...] = ()
    evolve: bool = False
    on_fresh: DeltaOnFresh | None = None
    timeout_ms: int = 60_000
    guarantee: ClassVar[Literal["exactly once"]] = "exactly once"

    def __post_init__(self) -> None:
        if not self.path or "://" in self.path:
            raise _wrong("not a directory for a Delta table", "a path", repr(self.path))
        if self.mode not in ("append", "upsert"):
            raise _wrong("unknown mode", "append or upsert", repr(self.mode))
        if self.on_fresh not in (None, "refuse", "keep", "empty"):
            raise _wrong("unknown on_fresh", "refuse, keep or empty", repr(self.on_fresh))
        if self.mode == "upsert" and not self.key:
            raise _wrong("upsert needs a key", 'key=["id"] beside mode="upsert"')
        if self.mode == "append" and (self.key or self.newest):
            raise _wrong("key and newest are for replacing rows", 'mode="upsert" beside them')
        for columns, what in ((self.key, "a key"), (self.partition_by, "partition_by")):
            if len(set(columns)) < len(columns):
                raise _wrong(f"{what} has each column once", "different columns", ", ".join(columns))

    @property
    def name(self) -> str:
        """The table, as plans and errors show it."""
        return self.path

    @property
    def why(self) -> str:
        """The reason for the guarantee."""
        if self.mode == "upsert":
            return f"exactly once by key ({', '.join(self.key)}): rows and batch are one commit of the table"
        return "rows and the last batch's number are one commit of the table"


def _wrong(what: str, expected: str, got: str | None = None) -> GraphError:
    return GraphError(what, where="sinks.delta", expected=expected, got=got)


def delta(
    path: str | PathLike[str],
    *,
    mode: DeltaMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    partition_by: Sequence[str] = (),
    evolve: bool = False,
    on_fresh: DeltaOnFresh | None = None,
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
