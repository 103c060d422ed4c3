"""An application whose machine is gone continues from its savepoint in an object store."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from drivetrain import Application, agg, run, savepoint, sinks, sources, start
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from object_store import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, KEYS = 600, 4


def counted(rate: float | None) -> Application:
    """A count for each key, which is written when the input has ended, and every message."""
    app = Application("counted")
    made = app.read(
        sources.generate(rows=ROWS, rate_per_s=rate, columns={"key": f"cast(id % {KEYS} as string)"}),
        name="made",
    )
    made.sink(sinks.parquet("s3://lost/each"), name="each")
    made.group_by("key").aggregate(step="count", n=agg.count()).sink(
        sinks.parquet("s3://lost/out"), name="out"
    )
    return app


def test_what_was_saved_goes_on_elsewhere_and_the_disk_may_be_gone(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("lost")

    def config(state: str) -> Config:
        sets = s3.sets() | {"state.dir": str(tmp_path / state), "spark.master": "local[2]"}
        return Config.load(None, {}, sets | {"checkpoint.mode": "on", "checkpoint.interval": "1 s"})

    with start(counted(60), config("here")) as running:
        while not list((bucket / "each").glob("part-*")):
            assert running.is_running
            time.sleep(0.05)
        running.stop()
        assert running.wait().outcome is RunOutcome.STOPPED
    place = savepoint("counted", "s3://lost/saved/monday", config("here"))
    assert place == "s3://lost/saved/monday"
    seen_before = sum(pq.read_table(file).num_rows for file in (bucket / "each").glob("part-*"))
    assert 0 < seen_before < ROWS
    shutil.rmtree(tmp_path / "here")

    result = run(counted(None), config("elsewhere"), from_savepoint=place)
    assert result.outcome is RunOutcome.FINISHED
    assert [path.name for path in (tmp_path / "elsewhere").iterdir() if path.name.endswith(".fetched")] == []
    keys = [k for file in (bucket / "each").glob("part-*") for k in pq.read_table(file)["key"].to_pylist()]
    assert Counter(keys) == {str(key): ROWS // KEYS for key in range(KEYS)}
    counts = [row for file in (bucket / "out").glob("part-*") for row in pq.read_table(file).to_pylist()]
    assert {row["key"]: row["n"] for row in counts} == Counter(keys)
    assert len(counts) == KEYS
