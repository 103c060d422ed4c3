"""A database for the SQL sinks: one transaction at a time, for any kind of database.

The problem: databases differ in how they connect, lock, load rows and name types; a sink uses them in the
same way.

The design: a `SqlDatabase` runs work in a transaction that is the application's only one, and repeats it
after a lost connection or a lock that was not granted; the work must therefore be repeatable, as publishing
is. A `SqlSession` is such a transaction: statements that all databases understand are here, the others in
`sqlite`, `postgresql` and `mysql`.

Besides the rows there is one table, `drivetrain_published`:

    application, sink     the owner of the results
    token                 the state that published them: those of another state are not our own
    batch, txid           the last published batch, and the transaction that published it
    rows, published_at    how many rows have been published in total, and when the last

Invariants:

1. At most one transaction of an application is under way in a database, across all processes.
2. Work is repeated only if none of it has happened, or if doing it twice is the same as once.

Called by the SQL sinks.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from drivetrain.api.connectors.sql_sink import MARKS
from drivetrain.connectors.sql.sql_columns import BatchColumn, SqlTable
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.growing_pauses import GrowingPauses

log = logging.getLogger("drivetrain.sql")

Work = TypeVar("Work")

STAGE = "drivetrain_stage"
ORDER = "__order"
"""In the stage, the place of a row in its batch."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True)
class Mark:
    """How far a sink has published, by the database: by which state, the last batch, the total of rows."""

    token: str
    batch: int
    rows: int


class SqlSession(ABC):
    """A transaction that is under way."""

    placeholder: str
    locking = ""
    """The end of the statement that reads marks, for databases that should lock them."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run one statement; returns its cursor."""

    @abstractmethod
    def table(self, name: str) -> SqlTable | None:
        """An existing table or view, or None."""

    @abstractmethod
    def type_of(self, column: BatchColumn) -> str:
        """The type of a batch's column in a table that is created for it."""

    def type_in_key(self, column: BatchColumn, key: Sequence[BatchColumn]) -> str:
        """The type of a column of the key in a table that is created for it."""
        return self.type_of(column)

    def require_transactions(self, name: str, where: str) -> None:
        """Raise `OutputError` if what is written to an existing table is not part of the transaction."""
        return

    def table_options(self) -> str:
        """The text after the columns of a table that is created."""
        return ""

    @abstractmethod
    def require_types(self, table: SqlTable, columns: tuple[BatchColumn, ...], where: str) -> None:
        """Raise `OutputError` if the table's columns cannot hold the batch's values."""

    @abstractmethod
    def create_marks(self) -> None:
        """Create the missing table of marks."""

    @abstractmethod
    def load(self, name: str, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> int:
        """Insert rows with these columns; returns their number."""

    @abstractmethod
    def stage(self, name: str, columns: Sequence[str]) -> None:
        """Create the temporary table `STAGE` with these columns of a table, and `ORDER` to number rows."""

    # -- tables ----------------------------------------------------------------------------------------

    def create(self, name: str, columns: tuple[BatchColumn, ...], key: tuple[str, ...]) -> None:
        """Create a table for a batch's columns."""
        in_key = [column for column in columns if column.name in key]
        lines = [
            f"{identifier(column.name)} {self.type_in_key(column, in_key)} not null"
            if column in in_key
            else f"{identifier(column.name)} {self.type_of(column)}"
            for column in columns
        ]
        if key:
            lines.append(f"primary key ({', '.join(map(identifier, key))})")
        options = self.table_options()
        self.execute(f"create table if not exists {identifier(name)} ({', '.join(lines)}){options}")

    def empty(self, name: str) -> None:
        """Remove all rows of a table, if it exists."""
        if self.table(name) is not None:
            self.execute(f"delete from {identifier(name)}")  # noqa: S608 - a quoted name

    # -- rows ------------------------------------------------------------------------------------------

    def upsert(
        self,
        name: str,
        columns: Sequence[str],
        batches: Iterable[pa.RecordBatch],
        key: tuple[str, ...],
        newest: str | None,
    ) -> int:
        """Insert rows, or replace those with the same key, which no row lacks; returns the number of rows.

        Of several rows with a key the one with the largest `newest` counts, and among equals the last.
        """
        self.stage(name, columns)
        rows = self.load(STAGE, columns, batches)
        keys = ", ".join(map(identifier, key))
        names = ", ".join(map(identifier, columns))
        others = [column for column in columns if column not in key]
        order = f"{identifier(ORDER)} desc"
        if newest is not None:
            order = f"{identifier(newest)} is null, {identifier(newest)} desc, {order}"
        self.execute(
            f"insert into {identifier(name)} ({names}) "  # noqa: S608 - quoted names
            f"select {names} from (select {names}, row_number() over (partition by {keys} order by {order}) "
            f"as {identifier('__rank')} from {STAGE}) as ranked where {identifier('__rank')} = 1 "
            f"{self.replacing(key, others)}"
        )
        self.unstage()
        return rows

    def replacing(self, key: Sequence[str], others: Sequence[str]) -> str:
        """The end of an insert that puts its values of `others` into rows with the same key."""
        sets = ", ".join(f"{identifier(c)} = excluded.{identifier(c)}" for c in others)
        action = f"update set {sets}" if others else "nothing"
        return f"on conflict ({', '.join(map(identifier, key))}) do {action}"

    def unstage(self) -> None:
        """Drop the temporary table for upserting."""
        self.execute(f"drop table {STAGE}")

    # -- marks -----------------------------------------------------------------------------------------

    def marks(self, application: str) -> dict[str, Mark]:
        """How far the application's sinks have published here, by sink id."""
        if self.table(MARKS) is None:
            return {}
        found = self.execute(
            f'select sink, token, batch, "rows" from {MARKS} '  # noqa: S608 - our own name
            f"where application = {self.placeholder}{self.locking}",
            (application,),
        )
        return {sink: Mark(token, batch, rows) for sink, token, batch, rows in found.fetchall()}

    def mark(self, application: str, sink: str, mark: Mark, txid: int) -> None:
        """Record how far a sink has published."""
        if self.table(MARKS) is None:
            self.create_marks()
        values = ", ".join([self.placeholder] * 6)
        replacing = self.replacing(
            ("application", "sink"), ("token", "batch", "txid", "rows", "published_at")
        )
        self.execute(
            f'insert into {MARKS} (application, sink, token, batch, txid, "rows", published_at) '  # noqa: S608
            f"values ({values}, current_timestamp) {replacing}",
            (application, sink, mark.token, mark.batch, txid, mark.rows),
        )

    def unmark(self, application: str, sink: str) -> None:
        """Delete the record of what a sink has published."""
        if self.table(MARKS) is not None:
            self.execute(
                f"delete from {MARKS} where application = {self.placeholder} and sink = {self.placeholder}",  # noqa: S608
                (application, sink),
            )


class SqlDatabase(ABC):
    """One database; `group` is the same for all sinks that can share a transaction."""

    group: str

    def __init__(self, where: str, timeout_ms: int) -> None:
        self.where = where
        self.timeout_ms = timeout_ms

    @abstractmethod
    def transaction(self, application: str) -> AbstractContextManager[SqlSession]:
        """The application's only transaction: committed at the end, rolled back if anything raises."""

    @abstractmethod
    def look(self) -> AbstractContextManager[SqlSession | None]:
        """A read-only transaction; None if there is no database yet."""

    @abstractmethod
    def meaning(self, error: Exception) -> DrivetrainError | None:
        """The error for the user that stands for a driver's error, None for any other error;
        `UnavailableError` if waiting may help."""

    @abstractmethod
    def require_values(self, messages: pa.RecordBatch, table: SqlTable) -> None:
        """Raise `OutputError` for values that the table's columns do not accept, or cannot hold unchanged."""

    def transacted(self, application: str, work: Callable[[SqlSession], Work]) -> Work:
        """The result of `work` in one transaction; retries while the database is away or locked.

        Raises `OutputError`, `DiskFullError`, or `UnavailableError` after the timeout.
        """
        pauses = GrowingPauses(self.timeout_ms / 1000, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        while True:
            try:
                with self.transaction(application) as session:
                    return work(session)
            except Exception as error:
                meant = self.meaning(error)
                if meant is None:
                    raise
                if type(meant) is not UnavailableError or pauses.are_over:
                    raise meant from None
                log.warning("%s; trying again", meant.what if meant.got is None else meant.got)
            pauses.wait()

    def looked(self, work: Callable[[SqlSession], Work]) -> Work | None:
        """The result of `work`, which only reads; None without a database. Raises like `transacted`."""
        try:
            with self.look() as session:
                return None if session is None else work(session)
        except Exception as error:
            meant = self.meaning(error)
            if meant is None:
                raise
            raise meant from None


def identifier(name: str) -> str:
    """A name quoted for SQL; that of a table may be `schema.table`."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
