"""MySQL and MariaDB, for the SQL sinks.

The problem: a server's settings decide how it reads statements, what it does with values that do not fit, and
whether a table takes part in a transaction at all. Statements that change tables end the transaction. There
is no lock that belongs to a transaction, and no way to update by one key only.

The design: each transaction has its own connection (`mysql_connection`) with fixed settings. It begins with a
named lock on the application, which the server releases with the connection; the marks are read with their
rows locked, for servers that do not share named locks. The table of marks is made before the transaction
begins. Rows are sent as insert statements, which Arrow writes (`mysql_rows`). Only tables whose engine has
transactions are accepted, and for updates only those in which no other unique key could replace a row.

Text is compared by its bytes in the tables that are made here: two keys that differ are two rows.

Called by the SQL sinks. Source: the manuals of MySQL and MariaDB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from drivetrain.api.connectors.mysql_sink import MysqlSink
from drivetrain.api.connectors.sql_sink import MARKS
from drivetrain.connectors.sql.mysql_connection import MysqlServer
from drivetrain.connectors.sql.mysql_errors import mysql_meaning
from drivetrain.connectors.sql.mysql_rows import insert_statements, require_mysql_values
from drivetrain.connectors.sql.sql_columns import (
    INSTANTS,
    INTEGERS,
    NUMBERS,
    BatchColumn,
    SqlTable,
    TableColumn,
)
from drivetrain.connectors.sql.sql_database import ORDER, STAGE, SqlDatabase, SqlSession, identifier
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError

_TYPES = {
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "string": "longtext",
    "binary": "longblob",
    "bool": "boolean",
    "timestamp": "datetime(6)",
    "local timestamp": "datetime(6)",
    "date": "date",
    "time": "time(6)",
    "json": "json",
}
_TAKES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("tinyint", "bit"), INTEGERS | {"bool"}),
    **dict.fromkeys(("smallint", "mediumint", "int", "bigint"), INTEGERS | {"bool"}),
    **dict.fromkeys(("float", "double", "decimal"), NUMBERS),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), frozenset({"binary"})
    ),
    **dict.fromkeys(("timestamp", "datetime"), INSTANTS),
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "json": frozenset({"json", "string"}),
}
"""The kinds that a column accepts, by its type; other types accept text, which the server interprets."""
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_KEY_BYTES = 3072
"""The longest key that InnoDB accepts."""
_KEY_CHARACTERS = 255
_FIXED_BYTES = 17
"""The longest value that is neither text nor bytes: a decimal of 38 digits."""
_MARKS = f"""create table if not exists {MARKS} (
    application varchar(255) not null, sink varchar(255) not null, token varchar(64) not null,
    batch bigint not null, txid bigint not null, "rows" bigint not null, published_at datetime(6) not null,
    primary key (application, sink))"""
_COLUMNS = """select column_name, data_type, is_nullable = 'NO' and column_default is null
        and extra not like '%%auto_increment%%', datetime_precision, extra like '%%auto_increment%%'
    from information_schema.columns
    where table_schema = coalesce(%s, database()) and table_name = %s
        and coalesce(generation_expression, '') = ''
    order by ordinal_position"""
_UNIQUE = """select index_name, column_name, sub_part from information_schema.statistics
    where table_schema = coalesce(%s, database()) and table_name = %s and non_unique = 0
    order by index_name, seq_in_index"""
_ENGINE = """select t.table_type, t.engine, e.transactions from information_schema.tables t
    left join information_schema.engines e on e.engine = t.engine
    where t.table_schema = coalesce(%s, database()) and t.table_name = %s"""


class MysqlSession(SqlSession):
    """A transaction of a MySQL or MariaDB database."""

    placeholder = "%s"

    def __init__(self, server: MysqlServer, connection: Any, *, is_writing: bool) -> None:
        self._server = server
        self._connection = connection
        self.locking = " for update" if is_writing else ""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement; returns its cursor."""
        cursor = self._connection.cursor()
        cursor.execute(statement, tuple(values) or None)
        return cursor

    def table(self, name: str) -> SqlTable | None:
        """An existing table or view, or None."""
        at = _schema_and_table(name)
        found = self.execute(_COLUMNS, at).fetchall()
        if not found:
            return None
        columns = {
            column: TableColumn(column, kind.lower(), bool(required), digits)
            for column, kind, required, digits, _ in found
        }
        numbered = next((column for column, _, _, _, counts in found if counts), None)
        members: dict[str, list[str]] = {}
        for index, column, prefix in self.execute(_UNIQUE, at).fetchall():
            whole = column if prefix is None else f"{column}({prefix})"
            members.setdefault(index, []).append(whole if column else "an expression")
        unique = [frozenset(names) for names in members.values()]
        return SqlTable(columns, [key for key in unique if key <= columns.keys()], tuple(unique), numbered)

    def require_transactions(self, name: str, where: str) -> None:
        """Raise `OutputError` if what is written to the table is not part of a transaction."""
        for kind, engine, transactions in self.execute(_ENGINE, _schema_and_table(name)).fetchall():
            if kind == "BASE TABLE" and transactions == "YES":
                continue
            raise OutputError(
                "what is written to this table is not part of a transaction",
                where=where,
                expected="a table of the engine InnoDB",
                got=f"the engine {engine}" if kind == "BASE TABLE" else kind.lower(),
                remedy="convert it: alter table … engine=InnoDB"
                if kind == "BASE TABLE"
                else "write to the table itself",
            )

    def type_of(self, column: BatchColumn) -> str:
        """The server's type for it."""
        if column.kind == "decimal":
            return f"decimal({column.precision}, {column.scale})"
        return _TYPES[column.kind]

    def type_in_key(self, column: BatchColumn, key: Sequence[BatchColumn]) -> str:
        """The type for it in a key, which has a limit of its bytes."""
        long = [one for one in key if _is_long(one)]
        if column not in long:
            return self.type_of(column)
        room = (_KEY_BYTES - _FIXED_BYTES * (len(key) - len(long))) // len(long)
        if column.kind == "binary":
            return f"varbinary({min(4 * _KEY_CHARACTERS, room)})"
        return f"varchar({min(_KEY_CHARACTERS, room // 4)})"

    def table_options(self) -> str:
        """The engine, and the collation by which texts are equal if their bytes are."""
        return f" engine=InnoDB default character set utf8mb4 collate {self._server.collation}"

    def require_types(self, table: SqlTable, columns: tuple[BatchColumn, ...], where: str) -> None:
        """Raise `OutputError` for a column whose values do not fit the table's column."""
        for column in columns:
            kind = table.columns[column.name].type
            takes = _TAKES.get(kind, frozenset({"string"}))
            if (kind in _TEXTS and column.kind != "binary") or column.kind in takes:
                continue
            raise OutputError(
                f"the table's column {column.name} has a type that does not fit the sink's values",
                where=where,
                expected=f"{self.type_of(column)}, or a wider type",
                got=kind,
                remedy="select it as another type before the sink, or change the table",
            )

    def create_marks(self) -> None:
        """Create the table of marks; this ends a transaction."""
        self.execute(_MARKS + self.table_options())

    def load(self, name: str, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> int:
        """Insert rows with these columns; returns their number."""
        names = ", ".join(map(identifier, columns))
        start = f"insert into {identifier(name)} ({names}) values "  # noqa: S608 - quoted names
        rows = 0
        for batch in batches:
            arrays = [batch.column(column) for column in columns]
            for statement in insert_statements(start, arrays, self._server.packet_bytes, self._server.where):
                self._connection.query(statement)
            rows += batch.num_rows
        return rows

    def stage(self, name: str, columns: Sequence[str]) -> None:
        """Create the temporary table for upserting, with the types of the table."""
        names = ", ".join(map(identifier, columns))
        number = f"{identifier(ORDER)} bigint not null auto_increment primary key"
        self.execute(
            f"create temporary table {STAGE} ({number}) engine=InnoDB "  # noqa: S608 - quoted names
            f"as select {names} from {identifier(name)} limit 0"
        )

    def unstage(self) -> None:
        """Drop it, which as the only dropping does not end the transaction."""
        self.execute(f"drop temporary table {STAGE}")

    def replacing(self, key: Sequence[str], others: Sequence[str]) -> str:
        """The end of an insert that puts its values of `others` into rows with the same key."""
        sets = (f"{identifier(c)} = values({identifier(c)})" for c in others or key[:1])
        return f"on duplicate key update {', '.join(sets)}"


class MysqlDatabase(SqlDatabase):
    """A database of a MySQL or MariaDB server."""

    def __init__(self, sink: MysqlSink) -> None:
        super().__init__(sink.name, sink.timeout_ms)
        self._server = MysqlServer(sink.url, sink.name, sink.timeout_ms)
        self.group = self._server.group()

    @contextmanager
    def transaction(self, application: str) -> Iterator[SqlSession]:
        """The application's only transaction in the database, from the lock to the commit."""
        with self._server.connection() as connection:
            session = MysqlSession(self._server, connection, is_writing=True)
            self._lock(session, application)
            if session.table(MARKS) is None:
                session.create_marks()
            connection.begin()
            yield session
            connection.commit()

    @contextmanager
    def look(self) -> Iterator[SqlSession | None]:
        """A transaction that can only read."""
        with self._server.connection() as connection:
            session = MysqlSession(self._server, connection, is_writing=False)
            session.execute("start transaction read only")
            yield session

    def meaning(self, error: Exception) -> DrivetrainError | None:
        """The user's error for one of the driver or the server."""
        return mysql_meaning(error, self._server)

    def require_values(self, messages: pa.RecordBatch, table: SqlTable) -> None:
        """Raise `OutputError` for values that a column cannot hold unchanged."""
        require_mysql_values(messages, table, self.where)

    def _lock(self, session: MysqlSession, application: str) -> None:
        """Wait for the lock; named locks belong to the whole server, so the name has the database in it."""
        (database,) = session.execute("select database()").fetchone()
        name = hashlib.sha256(f"{database}\0{application}".encode()).hexdigest()[:40]
        seconds = max(1, self.timeout_ms // 1000)
        if session.execute("select get_lock(%s, %s)", (f"drivetrain:{name}", seconds)).fetchone() != (1,):
            raise UnavailableError(
                "another process publishes results of this application to the database",
                where=self.where,
                got=f"it holds the lock drivetrain:{name}",
                remedy="check whether it runs twice; the same command continues where it stopped",
            )


def _is_long(column: BatchColumn) -> bool:
    return column.kind in ("string", "binary", "json")


def _schema_and_table(name: str) -> tuple[str | None, str]:
    schema, dot, table = name.rpartition(".")
    return (schema if dot else None), table
