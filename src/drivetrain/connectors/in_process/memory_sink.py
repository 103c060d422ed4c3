"""The memory sink: results in this process, for tests.

It behaves like the sinks of databases: batches can be prepared, and those of all memory sinks of a process
become visible in one step, to readers that use `collected` or `collected_together`. Nothing of it
outlives the process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from drivetrain.api.sinks import Guarantee, MemorySink
from drivetrain.connectors.in_process.plain_sinks import NoTarget
from drivetrain.spark.connector.sink import SinkContext, TransactionalSinkWriter
from drivetrain.spark.measure.small_batches import arrow_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_lock = threading.Lock()
_shown: dict[str, dict[int, pa.Table]] = {}
_waiting: dict[str, dict[int, pa.Table]] = {}


class MemorySinkWriter(NoTarget):
    """Keeps batches in this process."""

    guarantee: Guarantee = "exactly once"
    group = "memory"

    def __init__(self, sink: MemorySink, context: SinkContext) -> None:
        self.sink = sink

    def fresh(self) -> None:
        """Delete what was collected."""
        forget(self.sink.name)

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Show a batch under its id; 0 if it was shown before."""
        rows = self.prepare(df, batch_id)
        with _lock:
            self._show(batch_id)
        return rows

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep a batch unseen, replacing an earlier try; 0 if it was shown before."""
        batch = arrow_table(df)
        with _lock:
            if batch_id in _shown.get(self.sink.name, {}):
                return 0
            _waiting.setdefault(self.sink.name, {})[batch_id] = batch
        return int(batch.num_rows)

    def prepared(self) -> list[int]:
        """The prepared batches, in increasing order."""
        with _lock:
            return sorted(_waiting.get(self.sink.name, {}))

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch."""
        with _lock:
            _waiting.get(self.sink.name, {}).pop(batch_id, None)

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Show the prepared batches of all `sinks` up to their last ones at one instant; rows by sink id."""
        with _lock:
            return {
                id: sum(
                    sink._show(batch)
                    for batch in sorted(_waiting.get(sink.sink.name, {}))
                    if batch <= last.get(id, -1)
                )
                for id, sink in cast("Mapping[str, MemorySinkWriter]", sinks).items()
            }

    def _show(self, batch_id: int) -> int:
        """Show a waiting batch, if there is one, with the lock held; returns its number of rows."""
        batch = _waiting.get(self.sink.name, {}).pop(batch_id, None)
        if batch is None:
            return 0
        _shown.setdefault(self.sink.name, {})[batch_id] = batch
        return int(batch.num_rows)


def collected(name: str) -> pa.Table:
    """The rows that the memory sink `name` has collected in this process, in the order of batches."""
    return collected_together(name)[name]


def forget(*names: str) -> None:
    """Delete what the memory sinks with these names have collected."""
    with _lock:
        for name in names:
            _shown.pop(name, None)
            _waiting.pop(name, None)


def collected_together(*names: str) -> dict[str, pa.Table]:
    """The rows that several memory sinks show at one instant, by name; none is a transaction ahead."""
    with _lock:
        found = {name: [batch for _, batch in sorted(_shown.get(name, {}).items())] for name in names}
    return {name: pa.concat_tables(batches) if batches else pa.table({}) for name, batches in found.items()}
