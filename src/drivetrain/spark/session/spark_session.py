"""One tuned Spark session per process, with the settings of `spark_settings`.

Workers run the driver's Python, so they can import whatever the driver can. On a Spark cluster the workers
are processes of other machines: they start the Python of `PYSPARK_PYTHON`, or the one with the same path as
this one. A standalone master is contacted before Spark starts: Spark itself would try for a minute and then
end the application without an error that could be caught.
"""

from __future__ import annotations

import os
import signal
import socket
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
from drivetrain.spark.session.forked_children import close_connections_only_here
from drivetrain.spark.session.java import require_java
from drivetrain.spark.session.java_classes import java_class, remember_classes
from drivetrain.spark.session.java_start import choose_forks, direct_command, gateway, is_direct
from drivetrain.spark.session.kafka_connector import connector_jars, require_connector
from drivetrain.spark.session.lost_java import filter_lost_java
from drivetrain.spark.session.python_launcher import socket_settings
from drivetrain.spark.session.spark_errors import translated
from drivetrain.spark.session.spark_settings import settings

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


def session(config: Config, app_name: str = "drivetrain", *, kafka: bool = False) -> SparkSession:
    """Start Spark, or return the session of this process, with this configuration's SQL settings.

    With `kafka` it has Spark's Kafka connector, fetched if need be. Raises `MissingDependencyError` without
    Java 17 or newer, or when the running session was started without the connector, and `UnavailableError`
    when the master cannot be reached or the connector cannot be fetched.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        require_master(config[keys.MASTER])
    chosen = {**_choose_python(config), **settings(config)}
    jars = connector_jars(config) if kafka and active is None else None
    command = direct_command(config) if SparkContext._gateway is None else None
    if jars and command is None and not is_direct():
        own = chosen.get("spark.jars", "")
        chosen["spark.jars"] = ",".join([*filter(None, [own]), *map(str, jars)])
    chosen |= {"spark.master": config[keys.MASTER], "spark.app.name": app_name}
    whole = resolved_options(chosen, keys.CONF.name)
    builder = SparkSession.builder
    for key, value in whole.items():
        builder = builder.config(key, value)
    try:
        with _interrupt_kept():
            if SparkContext._gateway is None:
                _start_java(command, {key: value for key, value in chosen.items() if whole[key] == value})
            spark = builder.getOrCreate()
    except MissingDependencyError:
        raise
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


def _start_java(command: tuple[str, ...] | None, settings: Mapping[str, str]) -> None:
    """Start Spark's Java process, or connect to the one that was begun.

    Without a `command` Spark's scripts start it, with the settings that are not secret: they are on its
    command line. All settings follow over the connection, before anything is started in it. Raises
    `MissingDependencyError` when this Java cannot run Spark.
    """
    if command is not None:
        try:
            SparkContext._ensure_initialized(gateway=gateway(command))
        except (UnavailableError, OSError):
            require_java()
            raise
        return
    require_java()
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


def _choose_python(config: Config) -> Mapping[str, str]:
    """Choose the Python for functions: this one; on a cluster the user's choice, or the same path.

    Returns Spark's settings that belong to the choice.
    """
    if config[keys.MASTER].startswith("local"):
        choose_forks()
        return socket_settings()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf: Mapping[str, str] = config[keys.CONF]
    chosen = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = chosen or sys.executable
    return {}
