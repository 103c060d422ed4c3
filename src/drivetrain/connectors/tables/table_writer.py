"""Sinks of tables: rows arrive once, whichever process dies, or is wrongly considered dead.

The problem: a batch is computed by Spark, and becomes visible by a commit of the table, to which others
commit, too: other applications, and compactions.

The design: a batch is prepared first (files that nothing names yet, or rows in the outbox). Publishing looks
at the newest version of the table, leaves out the batches that its marks have already, and commits the others
in one step with new marks (see `table_marks`). If another commit came first, it looks again. Without
checkpoints that happens for each batch, with them for all batches of a checkpoint.

What if we die here: before the commit nothing has happened, and the batch waits or runs again; after it, the
marks show that the batch is there.

Invariants:

1. A batch is published, completely, exactly if the table's marks say so.
2. The table is created, and gets columns, before a batch is prepared; a batch that does not fit fails first.

The formats of tables differ in their `TableTarget`.

Called by the engine; opened by the connectors of Delta and Iceberg tables. Source: Delta's protocol; the
idempotent writes of its streaming sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyspark.sql.pandas.types import to_arrow_schema

from drivetrain.api.connectors.partition_names import partition_name
from drivetrain.api.connectors.table_declaration import TableSink
from drivetrain.api.sinks import Guarantee
from drivetrain.connectors.named_columns import require_columns
from drivetrain.connectors.outbox import Outbox
from drivetrain.connectors.tables.appended_files import AppendedFiles, DamagedError
from drivetrain.connectors.tables.repeated_commits import repeated
from drivetrain.connectors.tables.table_columns import Fit, fit, nullable, require_types
from drivetrain.connectors.tables.table_marks import NOBODY, Marks
from drivetrain.connectors.tables.table_target import ConflictError, TableTarget
from drivetrain.connectors.tables.upserted_rows import UpsertedRows
from drivetrain.core.checkpoint.publication import NONE
from drivetrain.errors import OutputError
from drivetrain.spark.connector.sink import SinkContext, TransactionalSinkWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Result = TypeVar("Result")


class TableSinkWriter:
    """Writes the batches of one sink into a table; see the module docstring."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: TableSink, context: SinkContext, target: TableTarget) -> None:
        self._sink = sink
        self._context = context
        self._target = target
        self._outbox = Outbox(context.state_dir, context.sink_id)
        self._appended = AppendedFiles(target, context.state_dir, context.sink_id)
        self._upserted = UpsertedRows(target, self._outbox, sink.key, sink.newest)
        self._schema: StructType | None = None
        self._last: int | None = None
        """The last published batch, as far as this process knows; None until it has looked."""
        self._had = False
        self._token: str | None = None

    @property
    def group(self) -> str:
        """The table and this sink: tables have no commits in common, nor have two sinks of one table."""
        return f"{self._sink.kind}:{self._target.identity}#{self._context.sink_id}"

    # -- before anything runs --------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise unless the table can be ours, or can be created, and our rows belong to this state."""
        table = self._repeated(self._target.refreshed)
        if table is None:
            self._target.require_creatable()
        else:
            self._target.require_appendable(table)
            self._require_partitions(table)
            self._published(table)

    def newest(self) -> int:
        """The newest batch of this state that the table has; `NONE` if there is none."""
        if self._last is not None:
            return self._last
        table = self._repeated(self._target.refreshed)
        return NONE if table is None else self._published(table)

    def check_fresh(self) -> None:
        """Raise `OutputError` when rows were published, unless the sink states what to do with them."""
        table = self._repeated(self._target.refreshed)
        if self._on_fresh() == "refuse" and table is not None and self._is_marked(table):
            raise OutputError(
                "the table has rows of this application, which cannot be distinguished from others",
                where=self._sink.name,
                got=f"batches up to {self._target.mark(table, self._marks().batch)} were published",
                remedy='choose what --fresh does with them: on_fresh="empty" in the sink removes all rows of '
                'the table, on_fresh="keep" leaves them',
            )

    def fresh(self) -> None:
        """Forget what was published, and remove the rows if the sink is declared so."""
        for batch in self.prepared():
            self.abort(batch)
        marks = self._marks().forgotten()

        def forget() -> None:
            table = self._target.refreshed()
            if table is not None and self._on_fresh() == "empty":
                self._target.empty(table, marks)
            elif table is not None and self._is_marked(table):
                self._target.commit(table, [], marks)

        self._repeated(forget)
        self._outbox.forget()
        self._last, self._had, self._token = None, False, None

    # -- batches ---------------------------------------------------------------------------------------

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Publish the rows of a batch and return their number; 0 if it was published before."""
        self.prepare(df, batch_id)
        id = self._context.sink_id
        return self.publish(batch_id, {id: batch_id}, {id: self})[id]

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch unseen, replacing an earlier try; returns their number."""
        if self._last is not None and batch_id <= self._last:
            return 0
        table, fitted = self._fit(df.schema)
        if batch_id <= self._published(table):
            return 0
        if self._sink.mode == "append":
            return self._appended.prepare(df, batch_id, fitted, table, self._marks().token)
        return self._upserted.prepare(df, batch_id)

    def prepared(self) -> list[int]:
        """The prepared batches, in increasing order."""
        return self._appended.prepared() if self._sink.mode == "append" else self._outbox.batches()

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch."""
        self._drop(batch_id, committed=False)

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Commit the prepared batches of each sink up to its last one; the group has one sink."""
        group = cast("Mapping[str, TableSinkWriter]", sinks)
        return {id: sink._publish(last[id]) for id, sink in group.items() if id in last}

    # -- implementation --------------------------------------------------------------------------------

    def _publish(self, last: int) -> int:
        waiting = [batch for batch in self.prepared() if batch <= last]
        if not waiting:
            return 0
        table, rows, left, before = self._repeated(lambda: self._commit(waiting))
        names = self._appended.names(left) if self._sink.mode == "append" else set()
        for batch in waiting:
            self._drop(batch, committed=batch in left)
        if left and self._sink.mode == "append":
            self._appended.clean(table, before, left[-1], names, self._marks().token)
        return rows

    def _commit(self, waiting: list[int]) -> tuple[Any, int, list[int], int]:
        """Commit the batches that are not published.

        Returns the table, their rows, which batches they are, and the last before them.
        """
        table = self._target.refreshed()
        if table is None:
            raise OutputError(
                "the table is gone",
                where=self._sink.name,
                expected=f"the table for which the batches {waiting[0]} to {waiting[-1]} wait",
                remedy="put it back; or start over with --fresh",
            )
        before = self._published(table)
        left = [batch for batch in waiting if batch > before]
        if not left:
            return table, 0, [], before
        how = self._appended if self._sink.mode == "append" else self._upserted
        try:
            rows = how.commit(table, left, self._marks().after(left[-1]))
        except DamagedError:
            newest = self._target.refreshed()
            if newest is not None and self._published(newest) > before:
                raise ConflictError("another process has published the batch") from None
            raise
        self._last, self._had = left[-1], True
        return table, rows, left, before

    def _repeated(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, repeated while commits of others come first."""
        return repeated(work, self._target, self._sink.timeout_ms, "the batch")

    def _fit(self, schema: StructType) -> tuple[Any, Fit]:
        """The table, created if it is missing, and how rows of this schema are written to it."""
        sink = self._sink
        columns = to_arrow_schema(schema, timezone="UTC")
        if self._schema != schema:
            divided = [partition_name(one).column for one in sink.partition_by]
            require_columns(columns.names, divided, sink.name, "partition_by=")
            require_columns(columns.names, sink.key, sink.name, "key=")
            require_columns(columns.names, [sink.newest] if sink.newest else [], sink.name, "newest=")
            self._target.require_partitions(columns, sink.partition_by)
            require_types(columns, sink.name)
            self._schema = schema

        def fitted() -> tuple[Any, Fit]:
            table = self._target.refreshed()
            if table is None:
                table = self._target.create(nullable(columns), sink.partition_by)
            self._target.require_appendable(table)
            self._require_partitions(table)
            found = fit(columns, self._target.columns(table), sink.name, evolve=sink.evolve)
            if found.added:
                self._target.add_columns(table, found.added)
                return fitted()
            return table, found

        return self._repeated(fitted)

    def _require_partitions(self, table: Any) -> None:
        wanted, found = self._sink.partition_by, self._target.partitions(table)
        if wanted and wanted != found:
            raise OutputError(
                "the table has other partitions",
                where=self._sink.name,
                expected=", ".join(wanted),
                got=", ".join(found) or "none",
                remedy="leave partition_by out of the sink, which then follows the table",
            )

    def _published(self, table: Any) -> int:
        """The last batch that this sink has published, in this state; raises `OutputError`."""
        marks = self._marks()
        owner, batch = self._target.mark(table, marks.owner), self._target.mark(table, marks.batch)
        may_mix = self._sink.mode == "upsert"
        found = marks.published(owner, batch, self._sink.name, may_mix=may_mix, had=self._had)
        self._last, self._had = found, found > NONE
        return found

    def _is_marked(self, table: Any) -> bool:
        marks = self._marks()
        return self._target.mark(table, marks.owner) not in (None, NOBODY)

    def _marks(self) -> Marks:
        if self._token is None:
            self._token = self._outbox.begin().token
        return Marks(self._context.app_id, self._context.sink_id, self._token)

    def _drop(self, batch_id: int, *, committed: bool) -> None:
        if self._sink.mode == "append":
            self._appended.drop(batch_id, committed=committed)
        else:
            self._outbox.drop(batch_id)

    def _on_fresh(self) -> str:
        return self._sink.on_fresh or ("keep" if self._sink.mode == "upsert" else "refuse")
