"""SQLite, for the SQL sinks.

The problem: only one process at a time can write a SQLite database, readers may block it, and it has five
types.

The design: a transaction begins with `begin immediate`, which waits for other writers and then excludes
them. A database that is created here uses write-ahead logging, so readers and the writer do not wait
for each other; an existing one keeps its settings. Values that SQLite has no type for become text that
sorts in their order: instants in ISO 8601 and UTC, dates and times likewise. Decimals are exact text. A
floating-point NaN is null, as usual in SQLite.

Called by the SQL sinks.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.api.connectors.sql_sink import MARKS, SqliteSink
from drivetrain.connectors.files.output_ownership import unwritable
from drivetrain.connectors.row_order import oldest_first
from drivetrain.connectors.sql.sql_columns import BatchColumn, SqlTable, TableColumn
from drivetrain.connectors.sql.sql_database import ORDER, STAGE, SqlDatabase, SqlSession, identifier
from drivetrain.errors import DiskFullError, DrivetrainError, OutputError, UnavailableError

_TYPES = {
    "int16": "integer",
    "int32": "integer",
    "int64": "integer",
    "float32": "real",
    "float64": "real",
    "bool": "integer",
    "binary": "blob",
}
_MARKS = f"""create table if not exists {MARKS} (
    application text not null, sink text not null, token text not null, batch integer not null,
    txid integer not null, rows integer not null, published_at text not null,
    primary key (application, sink))"""


class SqliteSession(SqlSession):
    """A transaction of a SQLite database."""

    placeholder = "?"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement; returns its cursor."""
        return self._connection.execute(statement, values)

    def table(self, name: str) -> SqlTable | None:
        """An existing table or view, or None."""
        infos = self.execute(
            "select name, type, [notnull], dflt_value, pk from pragma_table_info(?)", (name,)
        )
        found = infos.fetchall()
        if not found:
            return None
        keys = [column for column, _, _, _, place in found if place]
        numbered = len(keys) == 1 and any(t.lower() == "integer" and place for _, t, _, _, place in found)
        columns = {
            column: TableColumn(column, kind, bool(notnull) and default is None and not (place and numbered))
            for column, kind, notnull, default, place in found
        }
        unique = [frozenset(keys)] if keys else []
        indexes = self.execute(
            'select name from pragma_index_list(?) where "unique" and not partial', (name,)
        )
        for (index,) in indexes.fetchall():
            members = self.execute("select name from pragma_index_info(?)", (index,)).fetchall()
            if all(member is not None for (member,) in members):
                unique.append(frozenset(member for (member,) in members))
        return SqlTable(columns, unique)

    def type_of(self, column: BatchColumn) -> str:
        """SQLite's storage class for it."""
        return _TYPES.get(column.kind, "text")

    def require_types(self, table: SqlTable, columns: tuple[BatchColumn, ...], where: str) -> None:
        """Does nothing: any column accepts any value."""

    def create_marks(self) -> None:
        """Create the table of marks."""
        self.execute(_MARKS)

    def load(self, name: str, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> int:
        """Insert rows with these columns; returns their number."""
        names = ", ".join(map(identifier, columns))
        marks = ", ".join("?" * len(columns))
        statement = f"insert into {identifier(name)} ({names}) values ({marks})"  # noqa: S608 - quoted names
        rows = 0
        for batch in batches:
            values = [_values(batch.column(column)) for column in columns]
            self._connection.executemany(statement, zip(*values, strict=True))
            rows += batch.num_rows
        return rows

    def upsert(
        self,
        name: str,
        columns: Sequence[str],
        batches: Iterable[pa.RecordBatch],
        key: tuple[str, ...],
        newest: str | None,
    ) -> int:
        """Insert rows, or replace those with the same key; SQLite compares decimals and times as text."""
        return super().upsert(name, columns, oldest_first(batches, newest), key, None)

    def stage(self, name: str, columns: Sequence[str]) -> None:
        """Create the temporary table for upserting; its columns have no types, so values are unchanged."""
        names = ", ".join(map(identifier, columns))
        self.execute(f"create temp table {STAGE} ({identifier(ORDER)} integer primary key, {names})")


class SqliteDatabase(SqlDatabase):
    """The database of a file."""

    def __init__(self, sink: SqliteSink) -> None:
        super().__init__(sink.name, sink.timeout_ms)
        self._path = os.path.abspath(os.path.expanduser(sink.path))
        self.group = f"sqlite:{os.path.realpath(self._path)}"

    @contextmanager
    def transaction(self, application: str) -> Iterator[SqlSession]:
        """The database's only writing transaction."""
        made = not os.path.exists(self._path)
        with closing(self._connect("rwc")) as connection:
            if made:
                connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")  # the outbox deletes committed batches
            connection.execute("begin immediate")
            try:
                yield SqliteSession(connection)
                connection.execute("commit")
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")

    @contextmanager
    def look(self) -> Iterator[SqlSession | None]:
        """A read-only transaction; None if the file is missing, but then its directory must be writable."""
        if not os.path.exists(self._path):
            self._probe(os.path.dirname(self._path))
            yield None
            return
        if not os.access(self._path, os.W_OK):
            raise unwritable(self._path, PermissionError("the database is read-only"))
        with closing(self._connect("rw")) as connection:
            yield SqliteSession(connection)

    def meaning(self, error: Exception) -> DrivetrainError | None:
        """The user's error for one of SQLite."""
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        details: dict[str, Any] = {"where": self.where, "got": str(error)}
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            remedy = "check which process keeps it locked; the same command continues where it stopped"
            return UnavailableError("another process has locked the database", remedy=remedy, **details)
        if code == sqlite3.SQLITE_FULL:
            remedy = "free some space there; the same command continues where it stopped"
            return DiskFullError("no space left to write", remedy=remedy, **details)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return unwritable(self._path, error)
        if code == sqlite3.SQLITE_NOTADB:
            remedy = "choose another path, or remove the file"
            return OutputError("the file is not a SQLite database", remedy=remedy, **details)
        if isinstance(error, sqlite3.IntegrityError):
            remedy = "correct the table or the rows; the same command continues with the refused batch"
            return OutputError(
                "a constraint of the table does not hold for the rows", remedy=remedy, **details
            )
        remedy = "correct the cause that the database reports; the same command continues where it stopped"
        return OutputError("the database refuses", remedy=remedy, **details)

    def require_values(self, messages: pa.RecordBatch, table: SqlTable) -> None:
        """Does nothing: any value can be written."""

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"file:{_for_uri(self._path)}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=self.timeout_ms / 1000, isolation_level=None)

    def _probe(self, directory: str) -> None:
        try:
            with tempfile.NamedTemporaryFile(dir=directory, prefix=".drivetrain-"):
                pass
        except OSError as error:
            raise unwritable(self._path, error) from error


def _for_uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _values(column: pa.Array) -> list[Any]:
    """The values of a column in SQLite's form."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = pc.strftime(column.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    elif pa.types.is_timestamp(kind):
        column = pc.strftime(column.cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S")
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date(kind) or pa.types.is_decimal(kind) or pa.types.is_time(kind):
        column = column.cast(pa.string())
    return list(column.to_pylist())
