"""One tuned Spark session per process.

What differs from PySpark's defaults, and why:

- shuffle partitions from the number of cores: the default of 200 makes every small batch several
  times slower;
- state in RocksDB with changelog checkpoints: state may exceed memory, and a batch writes what it
  changed, not everything;
- checkpoint files through `FileSystemBasedCheckpointFileManager`: the default one forks processes for
  links on a local disk;
- workers run this very Python, so that what the driver can import they can import too;
- UTC, Arrow, and a log that says errors only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.errors import MissingDependencyError, UnavailableError
from drivetrain.spark.failures import translated
from drivetrain.spark.python_launcher import worker_python

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_LOG = Path(__file__).resolve().with_name("log4j2.properties")
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's: they print what it raises as JSON, before anyone could catch it."""


def cores(master: str) -> int:
    """How many cores a Spark master gives us: those of this machine unless `local[N]` says less."""
    if master.startswith("local[") and master != "local[*]":
        return int(master[6:-1].split(",")[0])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings(config: Config) -> Mapping[str, str]:
    """The Spark settings of an application, keyed by Spark's names; `spark.conf` wins over ours."""
    partitions = config[keys.SHUFFLE_PARTITIONS] or cores(config[keys.MASTER])
    chosen = {
        "spark.driver.memory": f"{config[keys.DRIVER_MEMORY] // 2**20}m",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.default.parallelism": str(partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseParallelGC -Xss4m "
        f"-Dlog4j2.configurationFile={_LOG.as_uri()}",
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.sql.streaming.stopTimeout": "30s",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
        "spark.python.worker.reuse": "true",
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
    return chosen


def session(config: Config, app_name: str = "drivetrain") -> SparkSession:
    """Start Spark, or return the session of this process, with this configuration's SQL settings.

    Raises `MissingDependencyError` without Java 17 or newer, and `UnavailableError` when the master
    cannot be reached.
    """
    active = SparkSession.getActiveSession()
    if active is None:
        require_java()
    local = config[keys.MASTER].startswith("local")
    os.environ["PYSPARK_PYTHON"] = worker_python() if local else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(config[keys.MASTER]).appName(app_name)
    for key, value in settings(config).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark does not start at {config[keys.MASTER]}",
            got=str(translated(error)),
            remedy="`drivetrain doctor` says what is missing",
        ) from error
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    spark.sparkContext.setLogLevel("ERROR")
    # Spark says "query ... has been stopped" as an error for every clean stop: that is noise here.
    jvm = spark._jvm
    for name in (
        "org.apache.spark.sql.execution.streaming",
        "org.apache.spark.sql.execution.datasources.v2.python",
    ):
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(
            name, jvm.org.apache.logging.log4j.Level.OFF
        )
    for name in ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager"):
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(
            name, jvm.org.apache.logging.log4j.Level.OFF
        )
    return spark


def require_java() -> None:
    """Raise `MissingDependencyError` unless a Java of version 17 or newer can be started."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = "install Java 17 or newer (Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME to one"
    if java is None or not os.path.exists(java):
        where = "JAVA_HOME" if home else "PATH"
        raise MissingDependencyError(
            "Spark needs Java, and there is none", where=where, got=home, remedy=remedy
        )
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = told.split('"')[1] if '"' in told else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < 17:
        raise MissingDependencyError(
            "Java is too old", where=java, expected="17 or newer", got=version, remedy=remedy
        )
