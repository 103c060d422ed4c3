"""An application whose machine is gone continues from its savepoint in an object store."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from drivetrain import Application, agg, run, sinks, sources, start
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from object_store import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, KEYS = 600, 4


def counted(rate: float | None, out: str) -> Application:
    """A count for each key, which is written when the input has ended, and every message."""
    app = Application("counted")
    made = app.read(
        sources.generate(rows=ROWS, rate_per_s=rate, columns={"key": f"cast(id % {KEYS} as string)"}),
        name="made",
    )
    made.sink(sinks.parquet(f"s3://lost/{out}/each"), name="each")
    counts = made.group_by("key").aggregate(step="count", n=agg.count())
    counts.sink(sinks.parquet(f"s3://lost/{out}/counts"), name="counts")
    return app


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("part-*")) for row in pq.read_table(file).to_pylist()]


def test_what_was_saved_goes_on_elsewhere_and_the_disk_may_be_gone(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("lost")

    def config(state: str) -> Config:
        sets = s3.sets() | {"state.dir": str(tmp_path / state), "spark.master": "local[2]"}
        return Config.load(None, {}, sets | {"checkpoint.mode": "on", "checkpoint.interval": "1 s"})

    with start(counted(20, "old"), config("here")) as running:
        while not list((bucket / "old" / "each").glob("part-*")):
            assert running.is_running
            time.sleep(0.05)
        place = running.savepoint("s3://lost/saved/monday", "5 min")
        running.stop()
    assert running.wait().outcome is RunOutcome.STOPPED
    assert place == "s3://lost/saved/monday"
    shutil.rmtree(tmp_path / "here")

    result = run(counted(None, "new"), config("elsewhere"), from_savepoint=place)
    assert result.outcome is RunOutcome.FINISHED
    assert not [path for path in (tmp_path / "elsewhere").iterdir() if path.name.endswith(".fetched")]
    after = rows_in(bucket / "new" / "each")
    assert 0 < len(after) < ROWS
    assert len(after) + len(rows_in(bucket / "old" / "each")) >= ROWS
    counts = [(row["key"], row["n"]) for row in rows_in(bucket / "new" / "counts")]
    assert sorted(counts) == [(str(key), ROWS // KEYS) for key in range(KEYS)]
