"""An application whose machine is gone continues from what an object store has: a savepoint, or a copied
checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from drivetrain import Application, agg, run, sinks, sources, start
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import NoticeGiven, QuietListener, RunOutcome
from drivetrain.crash_points import VARIABLE, CrashPoint
from drivetrain.runtime.checkpoints import continuation_watch, state_lease
from drivetrain.runtime.checkpoints.checkpoint_copy import TakenOverError
from drivetrain.spark.run import preparing
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


COPIED, COPIED_KEYS = 900, 3
HERE = Path(__file__).parent


def killed_at(point: CrashPoint, times: int, sets: dict[str, str], settings: dict[str, str]) -> None:
    """Run the application in a process that is killed when it comes to a point for that time."""
    command = [str(Path(sys.executable).with_name("drivetrain")), "run", str(HERE / "lost_application.py")]
    for name, value in (sets | settings).items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, VARIABLE: f"{point}:{times}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


@dataclass
class Outputs:
    """Where an application writes, and what it must have written in the end."""

    name: str
    bucket: Path
    database: Path

    @property
    def settings(self) -> dict[str, str]:
        return {
            "rows": str(COPIED),
            "keys": str(COPIED_KEYS),
            "bucket": f"s3://{self.name}",
            "database": str(self.database),
        }

    def application(self) -> Application:
        return load_application(str(HERE / "lost_application.py"), self.settings)

    def require_exact(self) -> None:
        assert sorted(row["id"] for row in rows_in(self.bucket / "each")) == list(range(COPIED))
        with closing(sqlite3.connect(self.database)) as connection:
            found = connection.execute("select id from each_row order by id").fetchall()
        assert [id for (id,) in found] == list(range(COPIED))
        table = pl.read_delta(str(self.bucket / "table"))
        assert sorted(table["id"].to_list()) == list(range(COPIED))
        counts = sorted((row["key"], row["n"]) for row in rows_in(self.bucket / "counts"))
        assert counts == [(str(key), COPIED // COPIED_KEYS) for key in range(COPIED_KEYS)]


def sets_of(s3: S3Server, state: Path, outputs: Outputs, *, is_remote: bool = False) -> dict[str, str]:
    """The configuration of an application that copies its checkpoints, or has its state in the store."""
    copied = {"state.dir": str(state), "checkpoint.copy-to": f"s3://{outputs.name}/copies"}
    remote = {"state.dir": f"s3://{outputs.name}/states", "state.work-dir": str(state)}
    return (
        s3.sets()
        | (remote if is_remote else copied)
        | {
            "checkpoint.interval": "500 ms",
            "spark.master": "local[2]",
            "run.max-batch-rows": "100",
        }
    )


@pytest.fixture
def outputs(
    s3: S3Server, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Outputs:
    monkeypatch.setattr(continuation_watch, "LOOK_S", 0.5)
    monkeypatch.setattr(state_lease, "LEASE_S", 2.0)
    name = f"copied-{zlib.crc32(request.node.name.encode()):x}"
    return Outputs(name, s3.bucket(name), tmp_path / "elsewhere.db")


@pytest.mark.nightly("test_shells_under_kills loses machines at every point; the takeover below")
@pytest.mark.parametrize("is_remote", [False, True], ids=["copied", "remote"])
@pytest.mark.parametrize(
    ("point", "times"),
    [
        (CrashPoint.AFTER_RECORD, 5),
        (CrashPoint.COPY_UPLOADED, 3),
        (CrashPoint.COPY_NAMED, 3),
        (CrashPoint.AFTER_PUBLICATION, 2),
        (CrashPoint.AFTER_SINK, 9),
    ],
)
def test_a_machine_that_is_lost_while_it_runs_costs_no_result_and_shows_none_twice(
    spark: SparkSession,
    s3: S3Server,
    tmp_path: Path,
    outputs: Outputs,
    point: CrashPoint,
    times: int,
    is_remote: bool,
) -> None:
    lost = sets_of(s3, tmp_path / "lost", outputs, is_remote=is_remote)
    killed_at(point, times, lost, outputs.settings)
    shutil.rmtree(tmp_path / "lost")

    notices = Notices()
    config = Config.load(None, {}, sets_of(s3, tmp_path / "other", outputs, is_remote=is_remote))
    assert run(outputs.application(), config, notices).outcome is RunOutcome.FINISHED

    assert sum("continues from the copy of the newest checkpoint" in text for text in notices.texts) == 1
    outputs.require_exact()


@pytest.mark.nightly("simulated by test_taken_for_lost")
def test_a_process_that_was_taken_for_lost_ends_and_nothing_of_it_is_shown(
    spark: SparkSession, s3: S3Server, tmp_path: Path, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = (
        Config.load(None, {}, sets_of(s3, tmp_path / name, outputs)) for name in ("here", "elsewhere")
    )
    former = start(outputs.application(), here)
    while len(list((outputs.bucket / "each").glob("part-*"))) < 2:
        assert former.is_running
        time.sleep(0.05)

    def wait_for_predecessor() -> None:
        """Until it has ended: both have the session's Spark, which runs one query of a name."""
        until_s = time.monotonic() + 60
        while former.is_running:
            assert time.monotonic() < until_s, "it does not notice that another process continues"
            time.sleep(0.05)

    monkeypatch.setattr(preparing, "wait_for_predecessor", wait_for_predecessor)
    notices = Notices()
    assert run(outputs.application(), elsewhere, notices).outcome is RunOutcome.FINISHED
    assert sum("continues from the copy of the newest checkpoint" in text for text in notices.texts) == 1
    with pytest.raises(TakenOverError, match="another process has continued this application"):
        former.wait()
    outputs.require_exact()
    with pytest.raises(TakenOverError, match="delete this application's state directory"):
        run(outputs.application(), here)


class Notices(QuietListener):
    """Keeps the notices of a run."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_event(self, event: object) -> None:
        if isinstance(event, NoticeGiven):
            self.texts.append(event.text)
