"""Detects that Spark's Java process is gone, and reports it to users.

The problem: when Java ends, killed or out of memory, the current call fails in one of several ways, some of
them before the process has ended. In addition, two threads of PySpark print tracebacks (`EOFError` of the
server that takes accumulators, `Py4JNetworkError` of the call).

The design: those two tracebacks, and nothing else, are suppressed; `java_lost` reports all of this as one
error.

Called by `spark_session`, the embedded run and executors.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.config.units import show_size_bytes
from drivetrain.errors import UnavailableError

_CALL = "Exception while sending command."
_OUT_OF_MEMORY = 3
"""Java's exit status after it ran out of memory, with the option to exit then."""
_JAVA_ENDS_S = 10.0
"""How long a Java process may take to end once it no longer answers."""


def filter_lost_java(spark: SparkSession) -> None:
    """Suppress PySpark's tracebacks about a lost Java: Drivetrain reports that."""
    root = logging.getLogger()
    if _is_not_lost_call not in root.filters:
        root.addFilter(_is_not_lost_call)  # py4j logs to the root logger
    server: Any = spark.sparkContext._accumulatorServer
    original = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            original(request, client_address)

    server.handle_error = handle_error


def java_process() -> subprocess.Popen[bytes] | None:
    """The Java process that this process started for Spark; None before that, or if another process started
    it."""
    gateway = SparkContext._gateway
    return None if gateway is None else getattr(gateway, "proc", None)


def java_has_ended() -> bool:
    """Whether Spark's Java process was started here and has ended; does not block."""
    java = java_process()
    return java is not None and java.poll() is not None


def java_lost(config: Config, error: BaseException) -> UnavailableError | None:
    """The error for a Java process that has ended unexpectedly; None if `error` has another cause.

    An ending process stops answering before its exit status can be read, so after a lost call it is given
    time to end.
    """
    java = java_process()
    if java is None:
        return None
    try:
        status = java.wait(_JAVA_ENDS_S if _is_lost_call(error) else 0)
    except subprocess.TimeoutExpired:
        return None
    ran_out, memory = status == _OUT_OF_MEMORY, config[keys.DRIVER_MEMORY]
    return UnavailableError(
        "Spark's Java process has no memory left, and ended" if ran_out else "Spark's Java process has ended",
        where="spark.driver-memory" if ran_out else None,
        got=show_size_bytes(memory) if ran_out else f"exit status {status}",
        remedy="run the same command with more "
        f"(--set spark.driver-memory='{show_size_bytes(2 * memory)}'): it continues where it stopped; "
        "or start over with smaller batches (--fresh --set run.max-batch-bytes='64 MiB')"
        if ran_out
        else "run the same command again: it continues where it stopped",
    )


def _is_lost_call(error: BaseException | None) -> bool:
    """Whether `error`, or one of its causes, means that Java does not answer."""
    while error is not None:
        if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_lost() -> bool:
    """Whether Spark was started here and is gone: its Java process ended, or its cluster stopped it."""
    if java_has_ended():
        return True
    java_context = getattr(SparkContext._active_spark_context, "_jsc", None)
    if java_context is None:
        return False  # not started, or only just starting
    try:
        return bool(java_context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def _is_not_lost_call(record: logging.LogRecord) -> bool:
    return record.msg != _CALL
