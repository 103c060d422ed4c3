"""Spark that is started before it is known which application it works for.

Problem: what an executor waits for at its start is Spark: its Java process, its context, and the first batch,
for which Java loads classes and native libraries. None of it depends on the application, except for Spark's
settings, and for the environment and the directory of the Java process.

Design: `StartedAhead` starts Spark with settings that are expected, and runs a query of its own. An
application that turns out to have other settings, or whose file changes environment variables, does not fit,
and its process starts anew. What always differs is told to Spark afterwards: the folder from which its
Python processes import the application, and the directory in which they and Hadoop resolve relative paths.

Invariants:

1. An application that fits gets what it would get from a Spark started for it.
2. Nothing of the query that ran ahead is left but what Java has loaded.

Called by spare executors.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.core.plan.plan import Plan
from drivetrain.spark.session import java_start
from drivetrain.spark.session.java_classes import java_class
from drivetrain.spark.session.kafka_connector import connector_jars, uses_kafka
from drivetrain.spark.session.python_launcher import DIRECTORY_VARIABLE
from drivetrain.spark.session.spark_session import session
from drivetrain.spark.session.spark_settings import settings

_PATH: Final = "PYTHONPATH"
_ROWS: Final = 100
_QUERY_S: Final = 60.0


class StartedAhead:
    """Spark in this process, started with `config`; raises what `session` raises.

    It does nothing, and no application fits, where Java cannot be started directly.
    """

    def __init__(self, config: Config) -> None:
        self._kind: Final = _kind(config)
        java_start.begin(config)
        self._spark: Final = session(config) if self._kind is not None else None

    def warm_up(self, is_wanted: Callable[[], bool]) -> None:
        """Run a small query with a state, until its first batches have ended or `is_wanted` says no."""
        if self._spark is None:
            return
        scratch = tempfile.mkdtemp(prefix="drivetrain-ahead-")
        try:
            _run_small_query(self._spark, scratch, is_wanted)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def fits(self, config: Config, plan: Plan) -> bool:
        """Whether an application with this configuration and plan may work here; it has been loaded."""
        changed = java_start.changed_since_start()
        if self._kind is None or changed is None or self._kind != _kind(config) or changed.keys() - {_PATH}:
            return False
        return not uses_kafka(plan) or bool(connector_jars(config, fetch=False))

    def enter(self) -> None:
        """Tell Spark the import path and the directory of this process; they are others than at its start."""
        assert self._spark is not None
        changed, directory = java_start.changed_since_start() or {}, os.getcwd()
        environment: dict[str, str] = self._spark.sparkContext.environment
        environment[DIRECTORY_VARIABLE] = directory
        if (path := changed.get(_PATH)) is not None:
            environment[_PATH] = path
        jvm: Any = self._spark._jvm
        path_class = java_class(jvm, "org.apache.hadoop.fs.Path")
        files = java_class(jvm, "org.apache.hadoop.fs.FileSystem")
        local = files.getLocal(self._spark.sparkContext._jsc.hadoopConfiguration())
        local.setWorkingDirectory(path_class(directory))


def _kind(config: Config) -> tuple[str, Mapping[str, str], tuple[str, ...]] | None:
    """What two applications must have in common to be able to use one Spark."""
    command = java_start.direct_command(config)
    return None if command is None else (config[keys.MASTER], dict(settings(config)), command)


def _run_small_query(spark: SparkSession, scratch: str, is_wanted: Callable[[], bool]) -> None:
    done = threading.Event()

    def look(batch: DataFrame, number: int) -> None:
        batch.toArrow()
        if number >= 1:
            done.set()

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    keyed = rows.select((F.col("value") % 10).alias("key"), "value").where(F.col("value") >= 0)
    counted = keyed.groupBy("key").agg(F.count("*"), F.max("value"))
    started = counted.writeStream.outputMode("update").option("checkpointLocation", scratch)
    query = started.foreachBatch(look).start()
    try:
        left_s = _QUERY_S
        while not done.wait(0.1) and query.isActive and is_wanted() and left_s > 0:
            left_s -= 0.1
    finally:
        query.stop()
