"""The SQL sinks: the declarations that a user writes.

The problem: rows of a database are inserted once or replaced by key; their table exists already or must be
created; and if several sinks of an application write to one database, readers must never see one ahead of
another. Also, a database needs a password, which must not appear in a plan, a log or the state directory.

There are two modes:

- `append`: every row is inserted once. The rows and the number of the last batch are written in one
  transaction of the database, so neither exists without the other, even after a crash.
- `upsert`: a row replaces the one with the same `key`. If several rows of a batch have the same key, the last
  one counts, in Spark's order; or, with `newest`, the one with the largest value in that column.

All sinks of an application on one database are published in one transaction with each checkpoint.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.
2. A declaration contains no password: one in an address is refused; `${NAME}` is resolved when connecting.

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
from drivetrain.api.names import names_of
from drivetrain.config.references import HOW, set_apart
from drivetrain.errors import GraphError

SqlMode: TypeAlias = Literal["append", "upsert"]
SqlOnFresh: TypeAlias = Literal["refuse", "keep", "empty"]

MARKS = "drivetrain_published"
"""The table, in each database, that records the last batch that each sink has published."""
_PASSWORD = re.compile(r"(?i)\b(?:ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|\S+)")


@dataclass(frozen=True, kw_only=True)
class SqlSink:
    """The settings that all SQL sinks have in common.

    Rows go to `table`, whose name is used exactly as written (`schema.table` is two names). With `create`, a
    missing table is created from the types of the first batch; the columns of an existing table must fit.

    `key` names the columns that identify a row in mode `upsert`. If a batch has several rows with the same
    key, the one with the largest value in the column `newest` counts. `on_fresh` decides what a run with
    `--fresh` does if the table has rows: `refuse` to run, `keep` them, or `empty` the table, whoever wrote
    the rows. By default it is `refuse` for `append` and `keep` for `upsert`. `timeout` ("30 s", kept
    in milliseconds) is how long the sink waits for a database that does not answer or is locked, before the
    batch fails.
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
        """The database, as plans and errors show it."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The table and its database, as plans and errors show them."""
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
    """Writes rows to a table of the SQLite database in the file `path`, which is created if it is missing.

    A new database uses write-ahead logging, so readers do not wait for the sink. Timestamps (in UTC) and
    dates are written as ISO 8601 text, decimals as exact text, booleans as 0 and 1; arrays, maps and structs
    as JSON.
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
    """Writes rows to a table of the PostgreSQL database at `url`; needs the package's extra `postgresql`.

    `url` is `postgresql://user@host:port/database`, or libpq's `host=… dbname=…`. The password comes from the
    environment variable `PGPASSWORD`, from libpq's password file, or from a reference in the address:
    `postgresql://user:${NAME}@host/db` reads the environment variable `NAME`, and
    `postgresql://user:${file:/run/secrets/db}@host/db` reads a file. Every process that connects resolves the
    reference for each connection. The whole `url` may be a reference, too.
    """

    url: str
    where: ClassVar[str] = "sinks.postgresql"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url:
            raise self._wrong("a PostgreSQL sink needs an address", "postgresql://user@host:5432/database")
        url, references = set_apart(self.url)
        if any(password not in references for password in _passwords(url)):
            raise self._wrong(
                "there is a password in the address",
                "an address without one, or with a reference such as ${DB_PASSWORD} in its place",
                remedy=f"set PGPASSWORD, or {HOW}: an application file is no place for secrets",
            )

    @property
    def database(self) -> str:
        """The address, without user and options."""
        if "://" not in self.url:
            return self.url
        parts = urlsplit(set_apart(self.url)[0])
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _passwords(url: str) -> list[str]:
    """The passwords in an address, whichever of the two forms it has."""
    if "://" not in url:
        return [found.strip("'") for found in _PASSWORD.findall(url)]
    try:
        parts = urlsplit(url)
        found = [parts.password] if parts.password else []
    except ValueError:
        return []  # the database's client reports what is wrong
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
    """Write rows to a table of a SQLite database, exactly once; see `SqlSink` and `SqliteSink`.

    Raises `GraphError` for invalid arguments.

    >>> sqlite("results.db", "counts", mode="upsert", key=["word"]).name
    'counts in results.db'
    """
    return SqliteSink(
        path=fspath(path),
        table=table,
        mode=mode,
        key=names_of(key),
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
    """Write rows to a table of a PostgreSQL database, exactly once; see `SqlSink` and `PostgresqlSink`.

    Raises `GraphError` for invalid arguments, and for a literal password in `url`.

    >>> postgresql("postgresql://app:${DB_PASSWORD}@db:5432/bank", "ledger").name
    'ledger in postgresql://db:5432/bank'
    """
    return PostgresqlSink(
        url=url,
        table=table,
        mode=mode,
        key=names_of(key),
        newest=newest,
        create=create,
        on_fresh=on_fresh,
        timeout_ms=milliseconds(timeout, "timeout"),
    )
