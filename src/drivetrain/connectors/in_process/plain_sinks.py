"""Sinks that keep nothing: the console, a callable, nothing."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from rich import box

from drivetrain.api.sinks import BatchesSink, ConsoleSink, Guarantee
from drivetrain.errors import OperatorError
from drivetrain.spark.compile.python_stage import user_traceback
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import arrow_table
from drivetrain.terminal import Console, Table, Text

_COLUMN_WIDTH: Final = 8
"""How much of the terminal's width a column needs; with more columns each row is a table of its own."""


class NoTarget:
    """A sink with nothing to check or to remove."""

    def validate(self) -> None:
        """Does nothing: there is nothing to check."""

    def check_fresh(self) -> None:
        """Does nothing: no data would stay."""

    def fresh(self) -> None:
        """Does nothing: there is nothing to remove."""


class ConsoleSinkWriter(NoTarget):
    """Prints each batch as a table."""

    guarantee: Guarantee = "at least once"
    computes_first: Final = True

    def __init__(self, sink: ConsoleSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Print up to `rows` rows of a batch that has any."""
        batch = arrow_table(df)
        if batch.num_rows:
            console = Console()
            show_batch(batch, f"{self.context.sink_id}, batch {batch_id}", self.sink.rows, console)
        return int(batch.num_rows)


def show_batch(batch: pa.Table, title: str, most_rows: int, console: Console) -> None:
    """Print the first rows of a batch as one table, or, with too many columns for that, one table per row."""
    names, rows = batch.schema.names, batch.slice(0, most_rows).to_pylist()
    if len(names) * _COLUMN_WIDTH <= console.width:
        table = Table(*names, title=title, title_justify="left", box=box.HEAVY_HEAD, pad_edge=True)
        for row in rows:
            table.add_row(*map(_shown, row.values()))
        console.print(table)
    else:
        console.print(Text(title, "italic"))
        for row in rows:
            table = Table("column", "value", box=box.HEAVY_HEAD, pad_edge=True)
            for name, value in row.items():
                table.add_row(name, _shown(value))
            console.print(table)
    if batch.num_rows > most_rows:
        console.print(f"… and {batch.num_rows - most_rows:,} more rows")


def _shown(value: object) -> str:
    return "" if value is None else str(value)


class BatchesSinkWriter(NoTarget):
    """Calls the user's function with each batch."""

    guarantee: Guarantee = "at least once"
    computes_first: Final = True

    def __init__(self, sink: BatchesSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Call the function if the batch has rows; an exception becomes an `OperatorError`."""
        batch = arrow_table(df)
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
                    remedy="correct the function and run the same command again: the batch is run again",
                ) from error
        return int(batch.num_rows)


class NullSinkWriter(NoTarget):
    """Computes and counts the messages, and discards them."""

    guarantee: Guarantee = "exactly once"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Count the rows of a batch; all their columns are computed."""
        counted = Observation()
        with computing():
            df.observe(counted, F.expr("count(1) AS n")).write.format("noop").mode("overwrite").save()
        return int(counted.get["n"])
