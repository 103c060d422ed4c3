"""The SQL sinks: the declarations a user writes.

The problem: rows in a database can be added once or replaced by key, belong to a table that is there or is to
be made, and several sinks of an application in one database must never be seen one ahead of the other. And a
database wants a password, which must not end up in a plan, a log or the state directory.

Two modes to choose from:

- `append`: every row is inserted once. The rows and the number of the last batch are one transaction of the
  database, so that neither is there without the other, whatever is killed.
- `upsert`: a row replaces the one with the same `key`. Of several rows of a batch with one key the last one
  counts, in the order in which Spark gives them; or, with `newest`, the one with the largest value there.

All sinks of an application on one database are published in one transaction at each of its checkpoints.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.
2. A declaration holds no password: one in an address is refused, and `${NAME}` is looked up when connecting.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from drivetrain.api.durations import milliseconds
from drivetrain.errors import GraphError

SqlMode: TypeAlias = Literal["append", "upsert"]
SqlOnFresh: TypeAlias = Literal["refuse", "keep", "empty"]

MARKS = "drivetrain_published"
"""The table, in each database, that says how far each sink has published."""
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""An environment variable in an address."""
_PASSWORD = re.compile(r"(?i)\b(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")


@dataclass(frozen=True, kw_only=True)
class SqlSink:
    """What all SQL sinks have in common.

    Rows go to `table`, whose name is taken as it is written (`schema.table` is two names). With `create` it
    is made from the types of the first batch if it is missing; otherwise, and if it is there, its columns
    must fit. `key` are the columns that tell rows apart in mode `upsert`; `newest` is the column whose
    largest value wins where a batch has several rows of a key. `on_fresh` says what a run with
    `--fresh` does about rows that are there already: `refuse`, `keep` them, or `empty` the table, whoever
    wrote what is in it. It is `refuse` for `append` and `keep` for `upsert` unless given. `timeout_ms` is how
    long a database that does not answer, or is locked by others, is waited for before the batch fails.
    """

    table: str
    mode: SqlMode = "append"
    key: tuple[str, ...] = ()
    newest: str | None = None
    create: bool = True
    on_fresh: SqlOnFresh | None = None
    timeout_ms: int = 30_000
    guarantee: ClassVar[Literal["exactly once"]] = "exactly once"
    where: ClassVar[str] = "sinks"

    def __post_init__(self) -> None:
        if not self.table or not all(self.table.split(".")) or self.table.count(".") > 1:
            raise self._wrong("not the name of a table", "table, or schema.table", repr(self.table))
        if self.table.split(".")[-1] == MARKS:
            raise self._wrong("Drivetrain keeps its own marks in that table", "another table", self.table)
        if self.mode not in ("append", "upsert"):
            raise self._wrong("unknown mode", "append or upsert", repr(self.mode))
        if self.on_fresh not in (None, "refuse", "keep", "empty"):
            raise self._wrong("unknown on_fresh", "refuse, keep or empty", repr(self.on_fresh))
        if self.mode == "upsert" and not self.key:
            raise self._wrong("upsert needs a key", 'key=["id"] beside mode="upsert"')
        if self.mode == "append" and (self.key or self.newest):
            raise self._wrong("key and newest are for replacing rows", 'mode="upsert" beside them')
        if len(set(self.key)) < len(self.key):
            raise self._wrong("a key has each column once", "different columns", ", ".join(self.key))

    @property
    def database(self) -> str:
        """The database, as plans and errors say it."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Where rows go, as plans and errors say it."""
        return f"{self.table} in {self.database}"

    @property
    def why(self) -> str:
        """The reason for the guarantee."""
        if self.mode == "upsert":
            return f"exactly once by key ({', '.join(self.key)}): a row that comes again replaces itself"
        return "published with each checkpoint: rows and the last batch's number are one database transaction"

    def _wrong(
        self, what: str, expected: str, got: str | None = None, remedy: str | None = None
    ) -> GraphError:
        return GraphError(what, where=self.where, expected=expected, got=got, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class SqliteSink(SqlSink):
    """Rows to a table of the SQLite database in the file `path`, which is made if it is missing.

    A database that is made is set to write-ahead logging, so that readers do not wait for the sink.
    Timestamps are text in ISO 8601 and UTC, dates likewise, decimals exact text, booleans 0 and 1; arrays,
    maps and structs are JSON.
    """

    path: str
    where: ClassVar[str] = "sinks.sqlite"

    def __post_init__(self) -> None:
        super().__post_init__()
        if "." in self.table:
            raise self._wrong("not the name of a table", "one name: a file has one schema", repr(self.table))
        if not self.path or self.path == ":memory:" or "://" in self.path:
            raise self._wrong("not a file for a database", "a path on this machine", repr(self.path))

    @property
    def database(self) -> str:
        """The file."""
        return self.path


@dataclass(frozen=True, kw_only=True)
class PostgresqlSink(SqlSink):
    """Rows to a table of the PostgreSQL database at `url`; needs the package's extra `postgresql`.

    `url` is `postgresql://user@host:port/database`, or libpq's `host=… dbname=…`. A password comes from the
    environment (`PGPASSWORD`), from libpq's password file, or by a reference:
    `postgresql://user:${NAME}@host/db` takes it from the environment variable `NAME` whenever a connection is
    made, in every process that makes one; `${NAME}` may also be the whole url.
    """

    url: str
    where: ClassVar[str] = "sinks.postgresql"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url:
            raise self._wrong("a PostgreSQL sink needs an address", "postgresql://user@host:5432/database")
        if any(not REFERENCE.fullmatch(password) for password in _passwords(self.url)):
            raise self._wrong(
                "there is a password in the address",
                "an address without one, or with a reference such as ${DB_PASSWORD} in its place",
                remedy="set PGPASSWORD, or put it into an environment variable and write ${ITS_NAME}: an "
                "application file is no place for secrets",
            )

    @property
    def database(self) -> str:
        """The address, without user and options."""
        if "://" not in self.url:
            return self.url
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _passwords(url: str) -> list[str]:
    """The passwords in an address, of either form."""
    if "://" not in url:
        return [found.strip("'") for found in _PASSWORD.findall(url)]
    try:
        parts = urlsplit(url)
        found = [parts.password] if parts.password else []
    except ValueError:
        return []  # what is wrong with it, the database's client says
    return found + [value for name, value in parse_qsl(parts.query) if name in ("password", "sslpassword")]


def sqlite(
    path: str | PathLike[str],
    table: str,
    *,
    mode: SqlMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    create: bool = True,
    on_fresh: SqlOnFresh | None = None,
    timeout: str = "30 s",
) -> SqliteSink:
    """Rows to a table of a SQLite database, exactly once; see `SqlSink` and `SqliteSink`.

    Raises `GraphError` for arguments that cannot be meant.

    >>> sqlite("results.db", "counts", mode="upsert", key=["word"]).name
    'counts in results.db'
    """
    return SqliteSink(
        path=fspath(path),
        table=table,
        mode=mode,
        key=(key,) if isinstance(key, str) else tuple(key),
        newest=newest,
        create=create,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )


def postgresql(
    url: str,
    table: str,
    *,
    mode: SqlMode = "append",
    key: Sequence[str] = (),
    newest: str | None = None,
    create: bool = True,
    on_fresh: SqlOnFresh | None = None,
    timeout: str = "30 s",
) -> PostgresqlSink:
    """Rows to a table of a PostgreSQL database, exactly once; see `SqlSink` and `PostgresqlSink`.

    Raises `GraphError` for arguments that cannot be meant, and for a password that is written out.

    >>> postgresql("postgresql://app:${DB_PASSWORD}@db:5432/bank", "ledger").name
    'ledger in postgresql://db:5432/bank'
    """
    return PostgresqlSink(
        url=url,
        table=table,
        mode=mode,
        key=(key,) if isinstance(key, str) else tuple(key),
        newest=newest,
        create=create,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
