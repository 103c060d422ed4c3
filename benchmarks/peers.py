"""The peers: PySpark sessions, and Flink in an environment of its own.

*PySpark, tuned* has the very Spark settings that Drivetrain chooses: partitions = cores, RocksDB with
changelog, parallel collector, the cheaper checkpoint files. *PySpark, defaults* is what a program gets that
sets nothing: 200 shuffle partitions, state in Java's heap. Both have Drivetrain's heap and UTC, so that
memory and results compare.

Flink's pins of pandas and protobuf clash with ours, so it lives in `.venv-flink` (or
`BENCH_FLINK_VENV`), made on first use; without it the other contenders run all the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peer_process
from drivetrain.config import Config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLINK_VERSION = "2.3.0"
TUNED = "pyspark, tuned"
DEFAULTS = "pyspark, defaults"
FLINK = "flink sql"


def config(work: Path, memory: str | None = None, **spark: str) -> Config:
    """Drivetrain's configuration in a benchmark: its defaults, the state below `work`, settings for Spark;
    `memory` is what Java may use, such as "4 GiB"."""
    given = {f"spark.conf.{key}": value for key, value in spark.items()}
    given |= {} if memory is None else {"spark.driver-memory": memory}
    return Config.load(None, {}, {"state.dir": str(work / "state"), **given})


def start_drivetrain(work: Path, **spark: str) -> tuple[SparkSession, float]:
    """Drivetrain's session, and the seconds until it was there."""
    from drivetrain.spark.session.spark_session import session

    began_s = time.perf_counter()
    return session(config(work, **spark)), time.perf_counter() - began_s


def start_pyspark(name: str, **conf: str) -> tuple[SparkSession, float]:
    """A session of the peer `name` with further settings, and the seconds until it was there."""
    from pyspark.sql import SparkSession

    from drivetrain.spark.session.spark_settings import settings

    began_s = time.perf_counter()
    chosen = dict(settings(Config.load(None, {}, {})))
    for of_ours in ("spark.hadoop.fs.file.impl", "spark.sql.extensions"):  # classes that no PySpark has
        chosen.pop(of_ours, None)
    # Ours has one stateful operator in a query. With two, the second takes what the first closes for late.
    chosen.pop("spark.sql.streaming.statefulOperator.allowMultiple")
    if name == DEFAULTS:
        alike = ("spark.driver.memory", "spark.ui.enabled", "spark.sql.session.timeZone")
        chosen = {key: chosen[key] for key in alike}
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[*]").appName(name)
    for key, value in {**chosen, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark, time.perf_counter() - began_s


def overwrite_until_done(results: DataFrame, out: Path, checkpoint: Path | str) -> int:
    """Run a stateful query over all its input; `out` holds the newest complete result as Parquet.

    Returns how many batches it took.
    """

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(str(out))

    query = (
        results.writeStream.outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


# -- Flink -------------------------------------------------------------------------------------------


def flink_python() -> Path:
    """The Python of Flink's environment, whether it is there or not."""
    directory = Path(os.environ.get("BENCH_FLINK_VENV", ".venv-flink")).absolute()
    return directory / "bin" / "python"


def flink_missing() -> str | None:
    """Make Flink's environment if need be; why it is not there, or None."""
    python = flink_python()
    marker = python.parent.parent / f"flink-{FLINK_VERSION}"
    if marker.exists():
        return None
    print(f"installing apache-flink {FLINK_VERSION} into {python.parent.parent} …", file=sys.stderr)
    try:
        if not python.exists():
            _quietly([sys.executable, "-m", "venv", str(python.parent.parent)])
        _quietly([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={FLINK_VERSION}"])
    except (subprocess.SubprocessError, OSError) as error:
        told = getattr(error, "stderr", "") or str(error)
        return f"apache-flink {FLINK_VERSION} cannot be installed here: {told.strip().splitlines()[-1]}"
    marker.touch()
    return None


def flink_command(script: str) -> list[str]:
    """The command that runs a script of `peers_python` in Flink's environment, but for its arguments."""
    return [str(flink_python()), str(Path(__file__).parent / "peers_python" / f"{script}.py")]


def run_flink(job: str, lines: Path, warm_lines: Path, work: Path) -> dict[str, float]:
    """Run a job of `flink_sql_job` in Flink's environment; its figures."""
    given = {"job": job, "lines": str(lines), "warm_lines": str(warm_lines), "work": str(work)}
    return peer_process.run(flink_command("flink_sql_job"), given)


def _quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
