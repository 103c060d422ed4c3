"""Sinks that keep nothing: the console, a callable, nothing."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from rich.console import Console
from rich.table import Table

from drivetrain.api.sinks import BatchesSink, ConsoleSink, Guarantee
from drivetrain.errors import OperatorError
from drivetrain.spark.at_driver import arrow_table
from drivetrain.spark.python_stage import user_traceback
from drivetrain.spark.sinks.context import SinkContext


class NoTarget:
    """A sink that has nothing to check or to remove."""

    def validate(self) -> None:
        """There is nothing to check."""

    def check_fresh(self) -> None:
        """There is nothing that would stay."""

    def fresh(self) -> None:
        """There is nothing to remove."""


class ConsoleSinkWriter(NoTarget):
    """Prints each batch as a table."""

    guarantee: Guarantee = "at least once"

    def __init__(self, sink: ConsoleSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Print up to `rows` rows of a batch that has any."""
        batch = arrow_table(df)
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


class BatchesSinkWriter(NoTarget):
    """Calls the user's function with each batch."""

    guarantee: Guarantee = "at least once"

    def __init__(self, sink: BatchesSink, context: SinkContext) -> None:
        self.sink = sink
        self.context = context

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Call the function if the batch has rows; its error is told as the user's."""
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
                    remedy="correct the function and run the same command again: the batch comes again",
                ) from error
        return int(batch.num_rows)


class NullSinkWriter(NoTarget):
    """Computes and counts."""

    guarantee: Guarantee = "exactly once"

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Count the rows of a batch, all columns of which are computed."""
        counted = Observation()
        df.observe(counted, F.count(F.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
        return int(counted.get["n"])
