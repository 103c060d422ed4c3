"""PostgreSQL, for the SQL sinks.

The problem: a server is remote, requires a password, may restart, and must get each row fast and once.

The design: each transaction has its own connection, so nothing is left over from one that broke. It begins
with an advisory lock on the application, which the server releases however the process ends. Rows are sent by
COPY as CSV, which Arrow writes and the server parses as the columns' own types. An update by key goes through
a temporary table. A machine or network that is gone in the middle is noticed within minutes, on both sides. A
transaction whose commit was not answered is repeated: the marks show whether it was committed.

Passwords come from the environment or libpq's password file whenever a connection is made; they are not
stored anywhere, and the server's errors are reported without them.

Called by the SQL sinks. Source: COPY and advisory locks as PostgreSQL's manual describes them.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from drivetrain.api.connectors.sql_sink import MARKS, PostgresqlSink
from drivetrain.config.references import is_reference, scrubbed, set_apart
from drivetrain.connectors.database_address import secret_of, with_secrets
from drivetrain.connectors.sql.postgresql_values import require_postgresql_values
from drivetrain.connectors.sql.sql_columns import (
    INSTANTS,
    INTEGERS,
    NUMBERS,
    BatchColumn,
    SqlTable,
    TableColumn,
)
from drivetrain.connectors.sql.sql_database import ORDER, STAGE, SqlDatabase, SqlSession, identifier
from drivetrain.errors import (
    DiskFullError,
    DrivetrainError,
    MissingDependencyError,
    OutputError,
    UnavailableError,
)

_TYPES = {
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float32": "real",
    "float64": "double precision",
    "string": "text",
    "binary": "bytea",
    "bool": "boolean",
    "timestamp": "timestamptz",
    "local timestamp": "timestamp",
    "date": "date",
    "time": "time",
    "json": "jsonb",
}
_TAKES: Mapping[str, frozenset[str]] = {
    "int2": INTEGERS,
    "int4": INTEGERS,
    "int8": INTEGERS,
    "float4": NUMBERS,
    "float8": NUMBERS,
    "numeric": NUMBERS,
    "bool": frozenset({"bool"}),
    "bytea": frozenset({"binary"}),
    "timestamptz": INSTANTS,
    "timestamp": INSTANTS,
    "date": frozenset({"date"}),
    "time": frozenset({"time"}),
    "json": frozenset({"json", "string"}),
    "jsonb": frozenset({"json", "string"}),
}
"""The kinds that a column accepts, by its type; other types accept text, which the server interprets."""
_MARKS = f"""create table if not exists {MARKS} (
    application text not null, sink text not null, token text not null, batch bigint not null,
    txid bigint not null, rows bigint not null, published_at timestamptz not null,
    primary key (application, sink))"""
_COLUMNS = """select attname, typname, attnotnull and not atthasdef and attidentity = ''
    from pg_attribute join pg_type on pg_type.oid = atttypid
    where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped and attgenerated = ''
    order by attnum"""
_UNIQUE = """select array_agg(attname::text) from pg_index
    join pg_attribute on attrelid = indrelid and attnum = any ((indkey::int2[])[0:indnkeyatts - 1])
    where indrelid = to_regclass(%s) and indisunique and indisvalid and indpred is null and indexprs is null
    group by indexrelid"""
_DURABLE = """select set_config('synchronous_commit', 'on', true)
    where current_setting('synchronous_commit') = 'off'"""
_PASSING = (
    "08", "53300", "57P01", "57P02", "57P03", "57P05", "55P03", "40001", "40P01",
    "25006", "25P03",  # not writable now: a replica that becomes the primary; ended when idle
)  # fmt: skip
"""The beginnings of SQLSTATEs of errors that may pass."""
_IDLE_S = 120
"""After this time without a statement, the server ends a transaction, with its lock."""
_PROBES = {"idle": 60, "interval": 10, "count": 3}
"""When both sides ask whether the other one is still there: usual settings wait for two hours."""
_NOT_LET_IN = (
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
)
_NOT_THERE = ('database "', 'role "')


class PostgresqlSession(SqlSession):
    """A transaction of a PostgreSQL database."""

    placeholder = "%s"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement; returns its cursor."""
        return self._connection.execute(statement, values or None)

    def table(self, name: str) -> SqlTable | None:
        """An existing table or view, or None."""
        found = self.execute(_COLUMNS, (identifier(name),)).fetchall()
        if not found:
            return None
        columns = {column: TableColumn(column, kind, required) for column, kind, required in found}
        unique = self.execute(_UNIQUE, (identifier(name),)).fetchall()
        return SqlTable(columns, [frozenset(members) for (members,) in unique])

    def type_of(self, column: BatchColumn) -> str:
        """PostgreSQL's type for it."""
        if column.kind == "decimal":
            return f"numeric({column.precision}, {column.scale})"
        return _TYPES[column.kind]

    def require_types(self, table: SqlTable, columns: tuple[BatchColumn, ...], where: str) -> None:
        """Raise `OutputError` for a column whose values do not fit the table's column."""
        text = frozenset({"string"})
        for column in columns:
            kind = table.columns[column.name].type
            if kind in ("text", "varchar", "bpchar"):
                continue
            if column.kind not in _TAKES.get(kind, text):
                raise OutputError(
                    f"the table's column {column.name} has a type that does not fit the sink's values",
                    where=where,
                    expected=f"{self.type_of(column)}, or a wider type",
                    got=kind,
                    remedy="select it as another type before the sink, or change the table",
                )

    def create_marks(self) -> None:
        """Create the table of marks; waits for a process that creates it at the same time."""
        self.execute("select pg_advisory_xact_lock(%s)", (_number(MARKS),))
        self.execute(_MARKS)

    def load(self, name: str, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> int:
        """Insert rows with these columns by COPY; returns their number."""
        names = ", ".join(map(identifier, columns))
        rows = 0
        with self._connection.cursor().copy(
            f"copy {identifier(name)} ({names}) from stdin (format csv)"
        ) as copy:
            for batch in batches:
                copy.write(_csv(batch, columns))
                rows += batch.num_rows
        return rows

    def stage(self, name: str, columns: Sequence[str]) -> None:
        """Create the temporary table for upserting, with the types of the table."""
        names = ", ".join(map(identifier, columns))
        self.execute(
            f"create temp table {STAGE} on commit drop as "  # noqa: S608 - quoted names
            f"select {names} from {identifier(name)} with no data"
        )
        self.execute(f"alter table {STAGE} add {identifier(ORDER)} bigserial")


class PostgresqlDatabase(SqlDatabase):
    """A database of a PostgreSQL server."""

    def __init__(self, sink: PostgresqlSink) -> None:
        super().__init__(sink.name, sink.timeout_ms)
        self._driver = _driver()
        self._url = sink.url
        self.group = self._group()

    @contextmanager
    def transaction(self, application: str) -> Iterator[SqlSession]:
        """The application's only transaction in the database, from the lock to the commit."""
        with self._connect() as connection:
            connection.execute(f"set local lock_timeout = {int(self.timeout_ms)}")
            idle_ms = max(_IDLE_S * 1000, 2 * self.timeout_ms)
            connection.execute(f"set local idle_in_transaction_session_timeout = {int(idle_ms)}")
            for name, number in _PROBES.items():
                connection.execute(f"set local tcp_keepalives_{name} = {number}")
            connection.execute(_DURABLE)  # the outbox deletes committed batches
            connection.execute("select pg_advisory_xact_lock(%s)", (_number(f"drivetrain:{application}"),))
            yield PostgresqlSession(connection)

    @contextmanager
    def look(self) -> Iterator[SqlSession | None]:
        """A transaction that can only read."""
        with self._connect() as connection:
            connection.read_only = True
            yield PostgresqlSession(connection)

    def meaning(self, error: Exception) -> DrivetrainError | None:
        """The user's error for one of the driver or the server."""
        if not isinstance(error, self._driver.Error):
            return None
        state = getattr(error, "sqlstate", None) or ""
        text = self._scrubbed(" ".join(str(error).split()))
        details: dict[str, Any] = {"where": self.where, "got": text}
        if state == "53100":
            remedy = "free some space there; the same command continues where it stopped"
            return DiskFullError("the database has no space left", remedy=remedy, **details)
        if state.startswith("28") or (not state and any(sign in text for sign in _NOT_LET_IN)):
            remedy = (
                "look at the user, and at where its password comes from: PGPASSWORD, libpq's password file, "
                "or the environment variable that the address names"
            )
            return OutputError("the database refuses the login", remedy=remedy, **details)
        if state == "3D000" or (not state and _is_not_there(text)):
            remedy = "create it, or correct the address"
            return OutputError("there is no such database or user", remedy=remedy, **details)
        if state.startswith(_PASSING) or (not state and isinstance(error, self._driver.OperationalError)):
            remedy = "check that it runs, and who holds locks; the same command continues where it stopped"
            return UnavailableError("the database does not answer", remedy=remedy, **details)
        if state.startswith("23"):
            remedy = "correct the table or the rows; the same command continues with the refused batch"
            return OutputError(
                "a constraint of the table does not hold for the rows", remedy=remedy, **details
            )
        if state == "42501":
            remedy = (
                'grant this user select, insert and update there (and delete, for on_fresh="empty"), and '
                f"create in the schema, or create the tables beforehand: the sink's and {MARKS}"
            )
            return OutputError("this user may not do that in the database", remedy=remedy, **details)
        remedy = "correct the cause that the database reports; the same command continues where it stopped"
        return OutputError("the database refuses", remedy=remedy, **details)

    def require_values(self, messages: pa.RecordBatch, table: SqlTable) -> None:
        """Raise `OutputError` for values that PostgreSQL cannot store."""
        require_postgresql_values(messages, table, self.where)

    # -- connecting ------------------------------------------------------------------------------------

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        """A connection with a transaction: committed at the end, rolled back if anything raises."""
        given: dict[str, Any] = self._parameters()
        given.setdefault("connect_timeout", max(2, min(10, self.timeout_ms // 1000)))
        given.setdefault("application_name", "drivetrain")
        for name, number in _PROBES.items():
            given.setdefault(f"keepalives_{name}", number)
        given.setdefault("tcp_user_timeout", max(10_000, self.timeout_ms))
        given["client_encoding"] = "UTF8"
        with self._driver.connect(**given) as connection:
            # Commits of another process made while we waited for its lock must be visible.
            connection.isolation_level = self._driver.IsolationLevel.READ_COMMITTED
            yield connection

    def _parameters(self) -> dict[str, Any]:
        """The address with passwords, in the driver's form; raises `OutputError` if it is invalid."""
        url, references = set_apart(self._url)
        if is_reference(self._url):
            url = secret_of(self._url, self.where)
        try:
            parsed = self._driver.conninfo.conninfo_to_dict(url)
        except self._driver.Error:
            # The driver's message may repeat a password.
            raise OutputError(
                "the address of the database cannot be read",
                where=self.where,
                expected="postgresql://user@host:5432/database, or host=… dbname=…",
                remedy="correct the address",
            ) from None
        return {name: with_secrets(str(value), references, self.where) for name, value in parsed.items()}

    def _group(self) -> str:
        """The server, database and user as text: sinks with the same can share a transaction."""
        try:
            given = self._parameters()
        except OutputError:
            return f"postgresql:{self.where}"  # validate reports the error
        parts = (f"{name}={given.get(name, '')}" for name in ("host", "hostaddr", "port", "dbname", "user"))
        return f"postgresql:{' '.join(parts)}"

    def _scrubbed(self, text: str) -> str:
        given = self._parameters()
        secrets = [str(given.get("password") or ""), str(given.get("sslpassword") or "")]
        for secret in (*secrets, os.environ.get("PGPASSWORD", "")):
            if secret:
                text = text.replace(secret, "***")
        return scrubbed(text)


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependencyError(
            "PostgreSQL sinks need the package psycopg", remedy="pip install 'drivetrain[postgresql]'"
        ) from error
    return psycopg


def _is_not_there(text: str) -> bool:
    return "does not exist" in text and any(sign in text for sign in _NOT_THERE)


def _number(text: str) -> int:
    """A signed 64-bit number for an advisory lock."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _csv(batch: pa.RecordBatch, columns: Sequence[str]) -> bytes:
    """Rows in COPY's format: an empty field is null, a quoted one is a value."""
    table = pa.table({str(place): _text(batch.column(name)) for place, name in enumerate(columns)})
    out = io.BytesIO()
    pa_csv.write_csv(table, out, pa_csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return out.getvalue()


def _text(column: pa.Array) -> pa.Array:
    """A column converted so that Arrow writes it in a form that PostgreSQL reads."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", None if kind.tz is None else "UTC"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [None if value is None else "\\x" + value.hex() for value in column.to_pylist()],
            pa.large_string(),
        )
    if pa.types.is_decimal(kind) or pa.types.is_time(kind):
        return column.cast(pa.string())
    return column
