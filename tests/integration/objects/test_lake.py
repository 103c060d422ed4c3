"""An application from objects to objects, on a real store, killed and run again."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from killed_runs import run_killed_at

from drivetrain import Application, published_files, run, sinks, sources
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UnavailableError
from drivetrain.spark.run.embedded import Running
from object_store import S3Server
from store_faults import Fault, FaultyStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, LINES = 6, 150
NIGHTLY = pytest.mark.nightly("the same from objects to objects, killed at another point")
POINTS = [
    CrashPoint.AFTER_SINK,
    pytest.param(CrashPoint.BEFORE_SINK, marks=NIGHTLY),
    pytest.param(CrashPoint.BEFORE_COMMIT, marks=NIGHTLY),
]
PROGRAM = """
from drivetrain import Application, sinks, sources
app = Application("lake")
lines = app.read(sources.text("s3://{bucket}/in"))
lines.sink(sinks.parquet("s3://{bucket}/each"))
lines.filter("length(value) > 0").sink(sinks.csv("s3://{bucket}/rolled", roll="1 h"))
"""


def fill(bucket: Path) -> list[str]:
    (bucket / "in" / "deep").mkdir(parents=True)
    told = []
    for number in range(FILES):
        lines = [f"{number}-{line}" for line in range(LINES)]
        (bucket / "in" / "deep" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        told += lines
    return sorted(told)


def config_of(s3: S3Server, directory: Path, endpoint: str | None = None, retry_for: str = "20 s") -> Config:
    sets = s3.sets(endpoint) | {"s3.retry-for": retry_for, "spark.master": "local[2]"}
    sets |= {"state.dir": str(directory / "state")}
    return Config.load(None, {}, sets | {"run.max-batch-bytes": "1 KiB", "run.min-batch-bytes": "1 KiB"})


def in_each(bucket: Path) -> list[str]:
    """What a reader finds who lists the directory."""
    files = sorted((bucket / "each").glob("part-*"))
    return sorted(v for file in files for v in pq.read_table(file)["value"].to_pylist())


def in_rolled(bucket: Path) -> list[str]:
    files = sorted((bucket / "rolled").glob("part-*"))
    return sorted(v for file in files for v in pacsv.read_csv(file)["value"].to_pylist())


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_run_again_every_line_is_there_once(
    spark: SparkSession, s3: S3Server, tmp_path: Path, point: CrashPoint
) -> None:
    bucket = s3.bucket(f"killed-{point}")
    told = fill(bucket)
    program = tmp_path / "lake.py"
    program.write_text(PROGRAM.format(bucket=bucket.name))
    toml = "".join(f'{key.removeprefix("s3.")} = "{value}"\n' for key, value in s3.sets().items())
    batches = '[run]\nmax-batch-bytes = "1 KiB"\nmin-batch-bytes = "1 KiB"\n'
    (tmp_path / "drivetrain.toml").write_text(f"[s3]\n{toml}{batches}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIVETRAIN_CONFIG", str(tmp_path / "drivetrain.toml"))
        with run_killed_at(program, tmp_path, point, times=3):
            pass
    config = config_of(s3, tmp_path)
    result = run(load_application(str(program), {}), config)
    assert result.batches > 1
    assert in_each(bucket) == in_rolled(bucket) == told
    place = f"s3://{bucket.name}/each"
    assert len(published_files(place, config=config)[f"{bucket.name}/each"]) > 2
    run(load_application(str(program), {}), config, fresh=True)
    assert in_each(bucket) == in_rolled(bucket) == told


def test_a_watched_place_is_read_while_requests_fail(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("watched")
    told = fill(bucket)
    app = Application("watched")
    app.read(sources.text("s3://watched/in", watch=True)).sink(sinks.json("s3://watched/out"))

    def feed(running: Running) -> None:
        def add() -> None:
            (bucket / "in" / "late.txt").write_text("late\n")
            deadline = time.monotonic() + 240
            while time.monotonic() < deadline and not any(b"late" in f.read_bytes() for f in parts(bucket)):
                time.sleep(0.2)
            running.stop()

        threading.Thread(target=add, daemon=True).start()

    with FaultyStore(s3.endpoint) as proxy:
        count = iter(range(10**9))
        faults = [Fault.BUSY, Fault.LOST_ANSWER, Fault.CUT_BODY]
        proxy.plan = lambda *_: faults[n // 5 % 3] if (n := next(count)) % 5 == 0 else Fault.NONE
        run(app, config_of(s3, tmp_path, proxy.endpoint), on_start=feed)
        assert all(proxy.faults[fault] > 0 for fault in faults)
    lines = [line for part in parts(bucket) for line in part.read_text().splitlines()]
    assert sorted(lines) == sorted(f'{{"value":"{line}"}}' for line in [*told, "late"])


def parts(bucket: Path) -> list[Path]:
    return sorted((bucket / "out").glob("part-*")) if (bucket / "out").exists() else []


def test_a_store_that_goes_away_ends_the_run_with_an_error_and_nothing_is_lost(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    bucket = s3.bucket("away")
    told = fill(bucket)
    app = Application("away")
    app.read(sources.text("s3://away/in")).sink(sinks.parquet("s3://away/each"))
    with FaultyStore(s3.endpoint) as proxy:
        config = config_of(s3, tmp_path, proxy.endpoint, retry_for="1 s")
        proxy.plan = lambda method, path: Fault.BUSY if "-00000002." in path else Fault.NONE
        with pytest.raises(UnavailableError, match="does not answer"):
            run(app, config)
        proxy.plan = lambda *_: Fault.NONE
        run(app, config)
    assert in_each(bucket) == told
