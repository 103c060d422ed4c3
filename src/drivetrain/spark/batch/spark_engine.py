"""Spark as the query engine: a thin layer over PySpark.

Problem and design: see `query_engine`. This module has the calls that are specific to Spark.

Called by `spark.run.host`; `realtime_query` wraps the query that it starts itself.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import java_import
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.utils import ForeachBatchFunction

from drivetrain.core.plan.plan import Fragment
from drivetrain.spark.batch.direct_batches import direct_batch
from drivetrain.spark.batch.handover_frames import HandoverBranches
from drivetrain.spark.batch.query_engine import CompiledBranches, OnBatch
from drivetrain.spark.batch.spark_branches import SparkBranches
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.fragment import TrunkCompiler
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.dataframe_calls import with_schema
from drivetrain.spark.state.empty_state import empty_state


class SparkQuery:
    """A streaming query of Spark as a `RunningQuery`.

    It makes few calls into Java, since each takes time from the batches. Whether the query runs is known
    without a call: a thread waits in Java for its end, and then calls `on_end`.
    """

    def __init__(self, query: StreamingQuery, on_end: Callable[[], None] = lambda: None) -> None:
        self.of_spark: Final = query
        self._on_end = on_end
        self._newest: Any = None  # the last report that was read, as Java has it
        self._is_stopped = False
        self._waiting = threading.Thread(target=self._wait_for_end, name="end of a query", daemon=True)
        self._waiting.start()

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        if self._waiting.is_alive() and not self._is_stopped:
            return True
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

        Spark keeps the last twenty, and each is a long text to write, send and parse. So Java is asked first
        whether the newest one is still the same; and the others only if batches lie between.
        """
        query = self.of_spark._jsq
        newest = query.lastProgress()
        if newest is None or newest == self._newest:
            return ()
        self._newest = newest
        report = _read(newest)
        if report.batchId == after + 1 and "addBatch" in report.durationMs:
            return (report,)
        new: list[StreamingQueryProgress] = []
        for of_java in reversed(list(query.recentProgress())):
            if int(of_java.batchId()) <= after:
                break
            new.append(report if of_java == newest else _read(of_java))
        return new[::-1]

    def stop(self) -> None:
        """End it, and wait for that."""
        self._is_stopped = True
        self.of_spark.stop()

    def _wait_for_end(self) -> None:
        with suppress(Exception):  # the query's, or Java is gone: `is_active` asks, and gets it
            self.of_spark.awaitTermination()
        self._on_end()


def _read(of_java: Any) -> StreamingQueryProgress:
    return StreamingQueryProgress.fromJson(json.loads(of_java.json()))


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
        schema = trunk.df.schema

        def run(df: DataFrame, batch_id: int) -> None:
            on_batch(with_schema(direct_batch(trunk, df, self.spark), schema), batch_id)

        # As `writer.foreachBatch` does.
        gateway: Any = self.spark.sparkContext._gateway
        java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
        callback = _OnBatch(self.spark, run)
        gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, callback)
        ensure_callback_server_started(gateway)
        return SparkQuery(writer.start(), callback.end)


class _OnBatch(ForeachBatchFunction):
    """Takes the batches of one query from Spark.

    What Java calls stays in PySpark's gateway for as long as Java has something of it, which is often as long
    as the process. So it drops the function, and all that this refers to, at the end of the query; and
    it does not keep the error of a batch, whose frames refer to the same.
    """

    _of_query: SparkSession | None = None
    """The session in which Spark runs all batches of the query: a copy, made when the query starts."""

    def call(self, jdf: Any, batch_id: int) -> None:
        """Called by Spark for each batch."""
        if self._of_query is None:
            self._of_query = SparkSession(self.session.sparkContext, jdf.sparkSession())
        self.func(ClassicDataFrame(jdf, self._of_query), batch_id)

    def end(self) -> None:
        """Forget the query: it has ended."""
        self.func, self._of_query = _ended, None


def _ended(_df: DataFrame, batch_id: int) -> None:
    raise RuntimeError(f"batch {batch_id} of a query that has ended")
