"""The SQL sinks: rows in a database, once, together with those of all other sinks there.

The problem: rows must not be visible before their transaction is committed. That is decided long after they
are computed, perhaps in a process that was started after the one that computed them had died.

The design: a batch waits in the sink's outbox, as Arrow files next to Spark's checkpoint. Publishing is one
transaction of the database: for each sink, the rows of the batches that are not published yet, and a mark
with the number of the last one. The marks alone determine what is published.

What if we die here: before the database's commit nothing has happened; after it the batches are still in the
outbox, the mark shows that they are published, and the next publication removes them.

The table is checked, or created, when a process prepares its first batch: mismatches are reported then. An
error of the table later (a constraint) stops the application; the batch waits, and is published when the
cause is removed.

Invariants:

1. A batch is published, completely, exactly if its mark shows it.
2. A batch leaves the outbox only when it is published or aborted.
3. A sink never silently adds to rows of another state of the application (`append`).

Called by the engine. Source: the transactional outbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from drivetrain.api.connectors.mysql_sink import MysqlSink
from drivetrain.api.connectors.sql_sink import PostgresqlSink, SqliteSink, SqlSink
from drivetrain.api.sinks import Guarantee
from drivetrain.connectors.named_columns import require_columns
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.connectors.sql.mysql import MysqlDatabase
from drivetrain.connectors.sql.postgresql import PostgresqlDatabase
from drivetrain.connectors.sql.sql_columns import (
    SqlTable,
    batch_columns,
    flattened,
    require_fit,
    require_key,
    require_keys,
)
from drivetrain.connectors.sql.sql_database import Mark, SqlDatabase, SqlSession
from drivetrain.connectors.sql.sqlite import SqliteDatabase
from drivetrain.core.checkpoint.publication import NONE
from drivetrain.errors import OutputError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.connector.sink import SinkContext, TransactionalSinkWriter
from drivetrain.spark.session.spark_errors import own_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def open_sql(sink: SqliteSink | PostgresqlSink | MysqlSink, context: SinkContext) -> SqlSinkWriter:
    """The writer of a SQL sink; touches nothing before `validate`."""
    return SqlSinkWriter(sink, _database(sink), context)


def _database(sink: SqliteSink | PostgresqlSink | MysqlSink) -> SqlDatabase:
    match sink:
        case SqliteSink():
            return SqliteDatabase(sink)
        case PostgresqlSink():
            return PostgresqlDatabase(sink)
        case MysqlSink():
            return MysqlDatabase(sink)


class SqlSinkWriter:
    """Writes the batches of one SQL sink; see the module docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: SqlSink, database: SqlDatabase, context: SinkContext) -> None:
        self._sink = sink
        self._database = database
        self._context = context
        self._outbox = Outbox(context.state_dir, context.sink_id)
        self._fits: tuple[StructType, SqlTable] | None = None
        self.group = database.group

    # -- before anything runs --------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise unless the database answers, its table can be ours, and its results belong to this state."""
        self._database.looked(self._check)
        self._outbox.begin()

    def _check(self, session: SqlSession) -> None:
        self._published(session.marks(self._context.app_id))
        table = session.table(self._sink.table)
        if table is not None:
            session.require_transactions(self._sink.table, self._sink.name)
            require_key(table, self._sink.key, self._sink.name)
        elif not self._sink.create:
            raise self._no_table()

    def newest(self) -> int:
        """The newest batch of this state that the database has; `NONE` if there is none."""
        mark = self._database.looked(lambda session: self._published(session.marks(self._context.app_id)))
        return NONE if mark is None else mark.batch

    def check_fresh(self) -> None:
        """Raise `OutputError` when rows were published, unless the sink states what to do with them."""
        if self._on_fresh() != "refuse":
            return
        marks = self._database.looked(lambda session: session.marks(self._context.app_id)) or {}
        mark = marks.get(self._context.sink_id)
        if mark is not None and mark.rows:
            raise OutputError(
                "the table has rows of this application, which cannot be distinguished from others",
                where=self._sink.name,
                got=f"{mark.rows} rows were published",
                remedy='choose what --fresh does with them: on_fresh="empty" in the sink removes all rows of '
                'the table, on_fresh="keep" leaves them',
            )

    def fresh(self) -> None:
        """Forget what was published, and remove the rows if the sink is declared so."""
        self._outbox.forget()
        if self._database.looked(lambda session: True) is None:
            return  # there is no database yet

        def forget(session: SqlSession) -> None:
            session.unmark(self._context.app_id, self._context.sink_id)
            if self._on_fresh() == "empty":
                session.empty(self._sink.table)

        self._database.transacted(self._context.app_id, forget)

    # -- batches ---------------------------------------------------------------------------------------

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch and return their number; 0 if it was published before."""
        self.prepare(df, batch_id)
        id = self._context.sink_id
        return self.publish(batch_id, {id: batch_id}, {id: self})[id]

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch unseen, replacing an earlier try; returns their number."""
        table = self._fit(df.schema)
        with own_errors():
            staged = self._outbox.stage(flattened(df, batch_columns(df.schema, self._sink.name)), batch_id)
        for messages in self._outbox.messages(staged):
            # An error at the commit of the transaction would come too late to compute other rows.
            require_keys(messages, self._sink.key, self._sink.name)
            self._database.require_values(messages, table)
        if staged.rows:
            self._outbox.prepare(staged)
        else:
            self._outbox.drop(batch_id)
        return staged.rows

    def prepared(self) -> list[int]:
        """The prepared batches, in increasing order."""
        return self._outbox.batches()

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch."""
        self._outbox.drop(batch_id)

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Insert and mark the prepared batches of all `sinks` up to their last ones, in one transaction."""
        group = {id: sink for id, sink in cast("Mapping[str, SqlSinkWriter]", sinks).items() if id in last}
        waiting = {
            id: [batch for batch in sink.prepared() if batch <= last[id]] for id, sink in group.items()
        }
        if not any(waiting.values()):
            return dict.fromkeys(group, 0)

        def insert(session: SqlSession) -> dict[str, int]:
            marks = session.marks(self._context.app_id)
            return {
                id: group[id]._insert(session, batches, marks, txid)
                for id, batches in sorted(waiting.items())
            }

        shown = self._database.transacted(self._context.app_id, insert)
        for id, batches in waiting.items():
            for batch in batches:
                group[id]._outbox.drop(batch)
        return shown

    # -- implementation --------------------------------------------------------------------------------

    def _insert(self, session: SqlSession, batches: list[int], marks: Mapping[str, Mark], txid: int) -> int:
        """Insert the batches that are not published yet, and mark the last; returns their number of rows."""
        published = self._published(marks)
        shown, done = 0, published.batch
        for id in batches:
            batch = self._outbox.prepared(id) if id > done else None
            if batch is not None:
                shown += self._insert_batch(session, batch)
                done = id
        if done > published.batch:
            mark = Mark(published.token, done, published.rows + shown)
            session.mark(self._context.app_id, self._context.sink_id, mark, txid)
        return shown

    def _insert_batch(self, session: SqlSession, batch: PreparedBatch) -> int:
        sink, messages = self._sink, self._outbox.messages_to_publish(batch, "published")
        first = next(messages, None)
        if first is None:
            return 0
        columns = [name for name in first.schema.names if name != TS]

        def all_of_it() -> Iterator[pa.RecordBatch]:
            yield first
            yield from messages

        if sink.mode == "append":
            return session.load(sink.table, columns, all_of_it())
        return session.upsert(sink.table, columns, all_of_it(), sink.key, sink.newest)

    def _published(self, marks: Mapping[str, Mark]) -> Mark:
        """How far this sink has published, in this state; raises `OutputError` for rows of another state."""
        token = self._token()
        mark = marks.get(self._context.sink_id)
        if mark is not None and mark.token == token:
            return mark
        if mark is not None and mark.rows and self._sink.mode == "append":
            raise OutputError(
                "the table has rows of this application from another state directory",
                where=self._sink.name,
                expected="rows of this state directory, or none",
                got=f"the mark of another one, which published {mark.rows} rows",
                remedy="use the state directory of the run that wrote them, or another table; or choose "
                'on_fresh="keep" or "empty" in the sink, and use --fresh once',
            )
        return Mark(token or "", NONE, 0)

    def _token(self) -> str | None:
        note = self._outbox.publication()
        return None if note is None else note.token

    def _on_fresh(self) -> str:
        return self._sink.on_fresh or ("keep" if self._sink.mode == "upsert" else "refuse")

    def _fit(self, schema: StructType) -> SqlTable:
        """The table, once it is checked to accept such rows, or created; raises `OutputError`."""
        sink = self._sink
        if self._fits is not None and self._fits[0] == schema:
            return self._fits[1]
        columns = batch_columns(schema, sink.name)
        named = (*sink.key, *([sink.newest] if sink.newest else []))
        require_columns([column.name for column in columns], named, sink.name, "key= or newest=")
        self._outbox.begin()

        def fit(session: SqlSession) -> SqlTable:
            self._published(session.marks(self._context.app_id))
            if session.table(sink.table) is None:
                if not sink.create:
                    raise self._no_table()
                session.create(sink.table, columns, sink.key)
            table = session.table(sink.table)
            if table is None:
                raise self._no_table()
            session.require_transactions(sink.table, sink.name)
            require_fit(table, columns, sink.key, sink.name)
            session.require_types(table, columns, sink.name)
            return table

        table = self._database.transacted(self._context.app_id, fit)
        self._fits = (schema, table)
        return table

    def _no_table(self) -> OutputError:
        return OutputError(
            "there is no such table",
            where=self._sink.name,
            remedy="create it, or let the sink do it: create=True",
        )
