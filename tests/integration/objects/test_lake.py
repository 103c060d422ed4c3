"""An application from objects to objects, on a real store, killed and run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from killed_runs import run_killed_at

from drivetrain import published_files, run
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.crash_points import CrashPoint
from object_store import S3Server

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
kinds = lines.with_columns(kind="left(value, 1)")
kinds.sink(sinks.json("s3://{bucket}/kinds", partition_by="kind"))
"""


def fill(bucket: Path) -> list[str]:
    (bucket / "in" / "deep").mkdir(parents=True)
    told = []
    for number in range(FILES):
        lines = [f"{number}-{line}" for line in range(LINES)]
        (bucket / "in" / "deep" / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        told += lines
    return sorted(told)


def config_of(s3: S3Server, directory: Path) -> Config:
    sets = s3.sets() | {"spark.master": "local[2]"}
    sets |= {"state.dir": str(directory / "state")}
    return Config.load(None, {}, sets | {"run.max-batch-bytes": "1 KiB", "run.min-batch-bytes": "1 KiB"})


def in_each(bucket: Path) -> list[str]:
    """What a reader finds who lists the directory."""
    files = sorted((bucket / "each").glob("part-*"))
    return sorted(v for file in files for v in pq.read_table(file)["value"].to_pylist())


def in_kinds(bucket: Path) -> list[str]:
    files = sorted((bucket / "kinds").glob("*=*/*.json"))
    assert {file.parent.name for file in files} == {f"kind={number}" for number in range(FILES)}
    return sorted(json.loads(line)["value"] for file in files for line in file.read_text().splitlines())


def in_rolled(bucket: Path) -> list[str]:
    files = sorted((bucket / "rolled").glob("part-*"))
    return sorted(v for file in files for v in pacsv.read_csv(file)["value"].to_pylist())


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.nightly("test_lost_machine and test_table_stores, in the same store")
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
    assert in_each(bucket) == in_rolled(bucket) == in_kinds(bucket) == told
    place = f"s3://{bucket.name}/each"
    assert len(published_files(place, config=config)[f"{bucket.name}/each"]) > 2
    run(load_application(str(program), {}), config, fresh=True)
    assert in_each(bucket) == in_rolled(bucket) == in_kinds(bucket) == told
