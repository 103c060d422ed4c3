"""Batches that wait to be merged into a table by key.

The problem: a row replaces the one with its key, so files of new rows alone are not enough: files
with rows that are replaced are written again, in one commit.

The design: a batch waits in the sink's outbox, as Arrow files. Publishing reads the batches into the driver,
keeps one row for each key, and has the library merge them. So the batches of one publication must fit into
the driver's memory.

Invariants:

1. Of several rows with a key, the one with the largest `newest` counts, and among equals the last.

Called by the sinks of tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.connectors.outbox import Outbox
from drivetrain.connectors.tables.table_columns import fit
from drivetrain.connectors.tables.table_target import TableTarget
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import OutputError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.session.spark_errors import own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = "__place"


class UpsertedRows:
    """The batches of one sink that wait to be merged into a table."""

    def __init__(self, target: TableTarget, outbox: Outbox, key: Sequence[str], newest: str | None) -> None:
        self._target = target
        self._outbox = outbox
        self._key = tuple(key)
        self._newest = newest

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch in place of an earlier try; returns their number."""
        with own_errors():
            staged = self._outbox.stage(df, batch_id)
        for messages in self._outbox.messages(staged):
            self._require_keys(messages)
        if staged.rows:
            self._outbox.prepare(staged)
        else:
            self._outbox.drop(batch_id)
        return staged.rows

    def commit(self, table: Any, batches: Sequence[int], marks: Mapping[str, int]) -> int:
        """Merge the rows of the batches into the table in one commit, with marks; returns their number."""
        rows = pa.concat_tables([self._read(id) for id in batches])
        columns = fit(rows.schema, self._target.columns(table), self._target.where, evolve=False).columns
        last = last_of_each(rows, self._key, self._newest).cast(columns)
        maybe_crash(CrashPoint.IN_TRANSACTION)
        self._target.merge(table, last, self._key, marks)
        maybe_crash(CrashPoint.AFTER_TRANSACTION)
        return int(rows.num_rows)

    def _read(self, batch_id: int) -> pa.Table:
        batch = self._outbox.prepared(batch_id)
        batches = self._outbox.messages_to_publish(batch, "committed") if batch else []
        return pa.Table.from_batches(batches).drop_columns([TS])

    def _require_keys(self, messages: pa.RecordBatch) -> None:
        for name in self._key:
            if messages.column(name).null_count:
                raise OutputError(
                    "rows are replaced by key, but some rows have no key",
                    where=self._target.where,
                    expected=f"a value in each of {', '.join(self._key)}",
                    got=f"{messages.column(name).null_count} of {messages.num_rows} rows have null in {name}",
                    remedy="filter such rows out before the sink, or choose another key",
                )


def last_of_each(rows: pa.Table, key: Sequence[str], newest: str | None) -> pa.Table:
    """One row for each key: that with the largest `newest` (null is smallest), and among equals the last."""
    if newest is not None:
        known = rows.column(newest).is_valid()
        columns = {"known": known, "newest": rows.column(newest), "place": np.arange(rows.num_rows)}
        order = pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns])
        rows = rows.take(order)
    places = rows.select(list(key)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    chosen = places.group_by(list(key)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return rows.take(chosen)
