"""One tuned Spark session per process.

Differences from PySpark's defaults, with reasons:

- shuffle partitions from the number of cores: the default of 200 makes every small batch several
  times slower;
- state in RocksDB with changelog checkpoints: state may exceed memory, and a batch writes only its
  changes;
- checkpoint files through `FileSystemBasedCheckpointFileManager`: the default one forks processes for
  links on a local disk, and Hadoop's file system one for each file (see `local_files`);
- workers run the driver's Python, so they can import whatever the driver can;
- UTC, Arrow, and a log with errors only.

On a Spark cluster the workers are processes of other machines: they start the Python of `PYSPARK_PYTHON`, or
the one with the same path as this one. A standalone master is contacted before Spark starts: Spark itself
would try for a minute and then end the application without an error that could be caught.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.config.references import resolved_options
from drivetrain.errors import MissingDependencyError, UnavailableError
from drivetrain.runtime.usable_cores import usable_cores
from drivetrain.spark.session import local_files
from drivetrain.spark.session.class_archive import java_options
from drivetrain.spark.session.forked_children import close_connections_only_here
from drivetrain.spark.session.java import (
    DOES_NOT_START,
    INSTALL_JAVA,
    JAVA_AT_LEAST,
    java_program,
    java_version,
)
from drivetrain.spark.session.java_classes import java_class, remember_classes
from drivetrain.spark.session.kafka_connector import connector_jars, require_connector
from drivetrain.spark.session.lost_java import filter_lost_java
from drivetrain.spark.session.python_launcher import worker_python
from drivetrain.spark.session.spark_errors import translated

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_EXCLUDED_RULES = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PruneFilters", "PropagateEmptyRelation")
)
"""Rules of Spark's optimizer that leave out what no output needs, e.g. before a join with an empty table.

Spark's state must advance with every batch, and counts and timestamps are observed on the way."""
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_MASTER_S = 5.0
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers that print its errors as JSON before they can be caught."""

_SILENT = (
    "org.apache.spark.sql.execution.streaming",
    "org.apache.spark.sql.execution.datasources.v2",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.kafka.clients.producer.internals.Sender",
)
"""Loggers of errors that Drivetrain reports itself, and of each clean stop of a query."""


_RUNNER_ENVIRONMENT = {
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Variables that Spark adds, with its own values, to the environment of a Python source's function.

It does so in the driver when a query begins to read from the source. Queries that start together share
that map, and a map that grows while Spark sends it to a task arrives damaged (`OptionalDataException`). Here
it has these variables from the beginning, so it never grows."""


def cores(master: str) -> int:
    """How many cores a Spark master provides: those that this process may use, or fewer with `local[N]`."""
    if master.startswith("local[") and master != "local[*]":
        return int(master[6:-1].split(",")[0])
    return usable_cores()


def settings(config: Config) -> Mapping[str, str]:
    """The Spark settings of an application, keyed by Spark's names; `spark.conf` wins over Drivetrain's."""
    partitions = config[keys.SHUFFLE_PARTITIONS] or cores(config[keys.MASTER])
    chosen = {
        "spark.driver.memory": f"{config[keys.DRIVER_MEMORY] // 2**20}m",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.default.parallelism": str(partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseParallelGC -Xss4m "
        "-XX:+ExitOnOutOfMemoryError "
        f"-Dlog4j2.configurationFile={local_files.LOG_SETTINGS.as_uri()}"
        f"{_temporary_files()} {java_options()}".rstrip(),
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # With several stateful operators in a query, Spark judges lateness by the watermark of the batch
        # before: a message for a fired window would reopen it, and it would fire twice. Here each query has
        # only one.
        "spark.sql.streaming.statefulOperator.allowMultiple": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.python.worker.reuse": "true",
        # PySpark asks Java four times for each function of an expression, to name the line that called it.
        # Here that is a line of Drivetrain, which compiles expressions for each batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.cleaner.referenceTracking.cleanCheckpoints": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": os.path.join(os.environ.get("TMPDIR", "/tmp"), "drivetrain-warehouse"),  # noqa: S108 - Spark wants a name, nothing is written there
    }
    if not config[keys.MASTER].startswith("local"):
        del chosen["spark.driver.bindAddress"], chosen["spark.driver.host"]
    extra: Mapping[str, str] = config[keys.CONF]
    chosen.update(extra)
    chosen[_EXCLUDED] = ",".join(filter(None, [_EXCLUDED_RULES, extra.get(_EXCLUDED)]))
    return chosen | local_files.spark_settings(config[keys.MASTER], extra)


def _temporary_files() -> str:
    """The option for Java's temporary files: into this process's folder, so that they are deleted with it."""
    place = tempfile.gettempdir()
    return "" if len(place.split()) != 1 else f" -Djava.io.tmpdir={place}"


def session(config: Config, app_name: str = "drivetrain", *, kafka: bool = False) -> SparkSession:
    """Start Spark, or return the session of this process, with this configuration's SQL settings.

    With `kafka` it has Spark's Kafka connector, fetched if need be. Raises `MissingDependencyError` without
    Java 17 or newer, or when the running session was started without the connector, and `UnavailableError`
    when the master cannot be reached or the connector cannot be fetched.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        require_java()
        require_master(config[keys.MASTER])
    _choose_python(config)
    chosen = dict(settings(config))
    if kafka and active is None:
        own = chosen.get("spark.jars", "")
        chosen["spark.jars"] = ",".join([*filter(None, [own]), *map(str, connector_jars(config) or [])])
    chosen |= {"spark.master": config[keys.MASTER], "spark.app.name": app_name}
    whole = resolved_options(chosen, keys.CONF.name)
    builder = SparkSession.builder
    for key, value in whole.items():
        builder = builder.config(key, value)
    try:
        with _interrupt_kept():
            _start_java({key: value for key, value in chosen.items() if whole[key] == value})
            spark = builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark does not start at {config[keys.MASTER]}",
            got=str(translated(error)),
            remedy="`drivetrain doctor` shows what is missing",
        ) from error
    if kafka:
        require_connector(spark)
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    close_connections_only_here()
    if active is None:
        filter_lost_java(spark)
    for variable, value in _RUNNER_ENVIRONMENT.items():
        spark.sparkContext.environment.setdefault(variable, value)
    spark.sparkContext.setLogLevel("ERROR")
    remember_classes(spark._jvm)
    configurator = java_class(spark._jvm, "org.apache.logging.log4j.core.config.Configurator")
    off = java_class(spark._jvm, "org.apache.logging.log4j.Level").OFF
    for name in _SILENT:
        configurator.setLevel(name, off)
    return spark


def _start_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java process with the settings that are not secret: they are on its command line.

    Settings with secrets follow over the connection, before anything is started in it.
    """
    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False)
        for key, value in settings.items():
            conf.set(key, value)
        SparkContext._ensure_initialized(conf=conf)


@contextmanager
def _interrupt_kept() -> Iterator[None]:
    """Keep the existing handler of Ctrl-C: PySpark's own calls Java in the middle of another call.

    PySpark's cancels the running batch; Drivetrain's lets it finish.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def stop() -> None:
    """Stop Spark, if it was started here; its Java process ends with this process."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


def require_master(master: str) -> None:
    """Raise `UnavailableError` unless one of the masters in `spark://host:port,host:port` listens."""
    if not master.startswith("spark://"):
        return
    tried = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_S):
                return
        except (OSError, ValueError, OverflowError) as error:
            tried.append(f"{address}: {error}")
    raise UnavailableError(
        "no Spark master listens there",
        where=master,
        expected="spark://HOST:PORT of a running Spark standalone master",
        got="; ".join(tried),
        remedy="start it, or correct spark.master",
    )


def _choose_python(config: Config) -> None:
    """Choose the Python for functions: this one; on a cluster the user's choice, or the same path."""
    if config[keys.MASTER].startswith("local"):
        # Spark looks for installed data sources with the driver's Python, but in a separate process.
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"] = worker_python()
        return
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf: Mapping[str, str] = config[keys.CONF]
    chosen = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = chosen or sys.executable


def require_java() -> None:
    """Raise `MissingDependencyError` unless a Java of version 17 or newer can be started."""
    home = os.environ.get("JAVA_HOME")
    java = java_program()
    if java is None or not os.path.exists(java):
        where = "JAVA_HOME" if home else "PATH"
        raise MissingDependencyError(
            "Spark needs Java, which was not found", where=where, got=home, remedy=INSTALL_JAVA
        )
    try:
        major, output = java_version(java)
    except (OSError, subprocess.TimeoutExpired) as error:
        major, output = None, str(error)
    if major is None:
        raise MissingDependencyError("Java does not start", where=java, got=output, remedy=DOES_NOT_START)
    if major < JAVA_AT_LEAST:
        raise MissingDependencyError(
            "Java is too old",
            where=java,
            expected=f"{JAVA_AT_LEAST} or newer",
            got=str(major),
            remedy=INSTALL_JAVA,
        )
