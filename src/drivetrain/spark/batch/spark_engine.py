"""Spark as the query engine: a thin layer over PySpark.

Problem and design: see `query_engine`. This module has the calls that are specific to Spark.

Called by `spark.run.host`; `realtime_query` wraps the query that it starts itself.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from drivetrain.core.plan.plan import Fragment
from drivetrain.spark.batch.handover_frames import HandoverBranches
from drivetrain.spark.batch.query_engine import CompiledBranches, OnBatch
from drivetrain.spark.batch.spark_branches import SparkBranches
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.fragment import TrunkCompiler
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.state.empty_state import empty_state


class SparkQuery:
    """A streaming query of Spark as a `RunningQuery`."""

    def __init__(self, query: StreamingQuery) -> None:
        self.of_spark: Final = query
        self._mark: tuple[int, str] | None = None  # of the last report that was read

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
        """The error that ended it."""
        return self.of_spark.exception()

    def reports(self, after: int) -> Sequence[StreamingQueryProgress]:
        """The reports of batches after batch `after`, oldest first; none if Spark has no new report.

        Spark keeps the last twenty, and each is a long text to write, send and parse. So the newest one is
        compared first, which takes two short calls, and then only those asked for are fetched.
        """
        query = self.of_spark._jsq
        last = query.lastProgress()
        mark = None if last is None else (int(last.batchId()), str(last.timestamp()))
        if mark == self._mark:
            return ()
        self._mark = mark
        kept = query.recentProgress()
        new: list[StreamingQueryProgress] = []
        for index in range(len(kept) - 1, -1, -1):
            if int(kept[index].batchId()) <= after:
                break
            new.append(StreamingQueryProgress.fromJson(json.loads(kept[index].json())))
        return new[::-1]

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
    ) -> tuple[Trunk, CompiledBranches]:
        """The trunk and the branches of a fragment."""
        trunk = TrunkCompiler(context, fragment, aside).compile()
        return trunk, self.branches(context, fragment, trunk)

    def branches(self, context: CompileContext, fragment: Fragment, trunk: Trunk) -> CompiledBranches:
        """Other branches after a trunk that was compiled before; of two versions while one hands over."""
        if context.handing_over is not None:
            return HandoverBranches(context, fragment, trunk)
        return SparkBranches(context, fragment, trunk)

    def divide(self, checkpoint: Path, partitions: int) -> Generator[None, None, None]:
        """Divide the state in a checkpoint by Spark's jobs, which end with the steps."""
        group, failed = f"divide-{uuid.uuid4().hex}", list[BaseException]()

        def work() -> None:
            context = self.spark.sparkContext
            try:
                context.setJobGroup(group, f"the state in {checkpoint} is divided", interruptOnCancel=True)
                self.spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
            except BaseException as error:  # noqa: BLE001 - raised by the steps
                failed.append(error)

        thread = threading.Thread(target=work, name=group, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                yield
        except GeneratorExit:
            self.spark.sparkContext.cancelJobGroup(group)
            thread.join()
            raise
        for error in failed:
            raise error

    def empty_state(self, place: Path, *, changes: bool) -> Path:
        """Spark's file of an empty state, or of no changes of one."""
        return empty_state(self.spark, place, changes=changes)

    def start(self, trunk: Trunk, name: str, checkpoint: Path, on_batch: OnBatch) -> SparkQuery:
        """Start the query of a trunk."""
        writer = trunk.df.writeStream.outputMode(trunk.mode).queryName(name)
        writer = writer.option("checkpointLocation", str(checkpoint))
        return SparkQuery(writer.foreachBatch(on_batch).start())
