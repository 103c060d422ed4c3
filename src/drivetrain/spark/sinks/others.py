"""Sinks that are not files: the console, a callable, memory, nothing."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from rich.console import Console
from rich.table import Table

from drivetrain.api.sinks import BatchesSink, ConsoleSink, Guarantee, MemorySink
from drivetrain.errors import OperatorError
from drivetrain.spark.python_stage import user_traceback
from drivetrain.spark.sinks.context import SinkContext

_memory: dict[str, dict[int, pa.Table]] = {}
_memory_lock = threading.Lock()


class _NoTarget:
    def validate(self) -> None:
        """There is nothing to check."""

    def check_fresh(self) -> None:
        """There is nothing that would stay."""

    def fresh(self) -> None:
        """There is nothing to remove."""


class ConsoleSinkWriter(_NoTarget):
    """Prints each batch as a table."""

    guarantee: Guarantee = "at least once"

    def __init__(self, sink: ConsoleSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Print up to `rows` rows of a batch that has any."""
        batch = df.toArrow()
        if batch.num_rows:
            table = Table(title=f"{self.context.sink_id}, batch {batch_id}", title_justify="left")
            for name in batch.schema.names:
                table.add_column(name)
            for row in batch.slice(0, self.sink.rows).to_pylist():
                table.add_row(*("" if v is None else str(v) for v in row.values()))
            console = Console(highlight=False)
            console.print(table)
            if batch.num_rows > self.sink.rows:
                console.print(f"… and {batch.num_rows - self.sink.rows:,} more rows")
        return int(batch.num_rows)


class BatchesSinkWriter(_NoTarget):
    """Calls the user's function with each batch."""

    guarantee: Guarantee = "at least once"

    def __init__(self, sink: BatchesSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Call the function if the batch has rows; its error is told as the user's."""
        batch = df.toArrow()
        if batch.num_rows:
            given: Any = batch.to_pandas() if self.sink.frame == "pandas" else batch
            try:
                self.sink.function(given, batch_id)
            except Exception as error:
                raise OperatorError(
                    f"{type(error).__name__}: {error}",
                    operator=self.context.sink_id,
                    message=f"batch {batch_id} of {batch.num_rows} rows",
                    user_traceback=user_traceback(error),
                    remedy="correct the function and run the same command again: the batch comes again",
                ) from error
        return int(batch.num_rows)


class MemorySinkWriter(_NoTarget):
    """Keeps batches in this process."""

    guarantee: Guarantee = "exactly once"

    def __init__(self, sink: MemorySink, context: SinkContext) -> None:
        self.sink = sink

    def fresh(self) -> None:
        """Forget what was collected."""
        with _memory_lock:
            _memory.pop(self.sink.name, None)

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Keep a batch under its id."""
        batch = df.toArrow()
        with _memory_lock:
            known = _memory.setdefault(self.sink.name, {})
            if batch_id in known:
                return 0
            known[batch_id] = batch
        return int(batch.num_rows)


class NullSinkWriter(_NoTarget):
    """Computes and counts."""

    guarantee: Guarantee = "exactly once"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Count the rows of a batch, all columns of which are computed."""
        counted = Observation()
        df.observe(counted, F.count(F.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
        return int(counted.get["n"])


def collected(name: str) -> pa.Table:
    """What the memory sink `name` has collected in this process, in the order of batches."""
    with _memory_lock:
        batches = [batch for _, batch in sorted(_memory.get(name, {}).items())]
    return pa.concat_tables(batches) if batches else pa.table({})
