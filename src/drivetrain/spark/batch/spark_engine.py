"""Spark as the query engine: thin over PySpark.

Problem and design: see `query_engine`. What is Spark's own way of saying something is here.

Called by `execution`; `realtime_query` wraps the query that it starts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.core.plan.plan import Fragment
from drivetrain.spark.batch.query_engine import OnBatch
from drivetrain.spark.batch.spark_branches import SparkBranches
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.fragment import TrunkCompiler
from drivetrain.spark.prepare.trunk import Trunk


class SparkQuery:
    """A streaming query of Spark as a `RunningQuery`."""

    def __init__(self, query: StreamingQuery) -> None:
        self.of_spark: Final = query
        self._mark: tuple[int, str] | None = None  # of the last report that was asked for

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return self.of_spark.isActive

    @property
    def waits_for_data(self) -> bool:
        """Whether no batch runs, and its inputs have nothing new."""
        status = self.of_spark.status
        return not status["isDataAvailable"] and not status["isTriggerActive"]

    def exception(self) -> BaseException | None:
        """What ended it."""
        return self.of_spark.exception()

    def reports(self) -> Sequence[StreamingQueryProgress]:
        """Its last batches; none if nothing is new: that asks for two words, reports are long."""
        last = self.of_spark._jsq.lastProgress()
        mark = None if last is None else (int(last.batchId()), str(last.timestamp()))
        if mark == self._mark:
            return ()
        self._mark = mark
        return self.of_spark.recentProgress

    def stop(self) -> None:
        """End it, and wait for that."""
        self.of_spark.stop()


class SparkEngine:
    """Runs fragments in the session `spark`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark: Final = spark

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    def compile(
        self, context: CompileContext, fragment: Fragment, aside: Path | None = None
    ) -> tuple[Trunk, SparkBranches]:
        """The trunk and the branches of a fragment."""
        trunk = TrunkCompiler(context, fragment, aside).compile()
        return trunk, SparkBranches(context, fragment, trunk)

    def start(self, trunk: Trunk, name: str, checkpoint: Path, on_batch: OnBatch) -> SparkQuery:
        """Start the query of a trunk."""
        writer = trunk.df.writeStream.outputMode(trunk.mode).queryName(name)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return SparkQuery(writer.foreachBatch(on_batch).start())
