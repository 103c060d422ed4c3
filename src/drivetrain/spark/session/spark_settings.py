"""The settings of Spark that an application gets; found without PySpark.

Differences from PySpark's defaults, with reasons:

- shuffle partitions from the number of cores: the default of 200 makes every small batch several
  times slower;
- state in RocksDB with changelog checkpoints: state may exceed memory, and a batch writes only its
  changes;
- checkpoint files through `FileSystemBasedCheckpointFileManager`: the default one forks processes for
  links on a local disk, and Hadoop's file system one for each file (see `local_files`);
- UTC, Arrow, and a log with errors only.

Called by `spark_session` and `java_start`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from drivetrain.config import Config
from drivetrain.config.catalog import spark as keys
from drivetrain.runtime.usable_cores import usable_cores
from drivetrain.spark.session import local_files
from drivetrain.spark.session.class_archive import java_options

_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_EXCLUDED_RULES = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PruneFilters", "PropagateEmptyRelation")
)
"""Rules of Spark's optimizer that leave out what no output needs, e.g. before a join with an empty table.

Spark's state must advance with every batch, and counts and timestamps are observed on the way."""
_EXCLUDED = "spark.sql.optimizer.excludedRules"

_COUNTING = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"

_LATER = " ".join(
    f"-XX:Tier4{name}Threshold={10 * default}"
    for name, default in (
        ("Invocation", 5_000),
        ("MinInvocation", 600),
        ("Compile", 15_000),
        ("BackEdge", 40_000),
    )
)
"""Java's second compiler begins with a method after ten times as many calls and loops as by default.

It takes a third of the CPU of the first seconds, for methods that are hardly called again."""


def cores(master: str) -> int:
    """How many cores a Spark master provides: those that this process may use, or fewer with `local[N]`."""
    if master.startswith("local[") and master != "local[*]":
        return int(master[6:-1].split(",")[0])
    return usable_cores()


def counts_state_rows(config: Config) -> bool:
    """Whether Spark counts the rows of states, for which it reads each row again before it writes it."""
    extra: Mapping[str, str] = config[keys.CONF]
    return extra.get(_COUNTING, "true").lower() != "false"


def settings(config: Config) -> Mapping[str, str]:
    """The Spark settings of an application, keyed by Spark's names; `spark.conf` wins over Drivetrain's."""
    partitions = config[keys.SHUFFLE_PARTITIONS] or cores(config[keys.MASTER])
    chosen = {
        "spark.driver.memory": f"{config[keys.DRIVER_MEMORY] // 2**20}m",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.default.parallelism": str(partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark describes the plan of each query to its listeners; "formatted", its default, takes longer.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC {_LATER} -XX:+UseParallelGC -Xss4m "
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
