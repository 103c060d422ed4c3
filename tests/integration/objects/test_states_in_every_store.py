"""A state in each kind of store outlives the machine that works with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moved import FILE, Moved, lose
from test_lost_machine import Notices
from watching import Watching

from drivetrain import run
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint
from drivetrain.runtime.checkpoints import continuation_watch, state_lease
from whole_cluster import whole_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from stored_place import StoredPlace

pytestmark = pytest.mark.timeout(1800)

KINDS = ("hdfs", "google", "azure")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> StoredPlace:
    """A place of the test's own in a store of each kind."""
    server = request.getfixturevalue(request.param)
    place: StoredPlace = server.place(f"state-{abs(hash(request.node.name)):x}")
    return place


@pytest.mark.nightly("test_shells_under_kills loses machines at every point, on a model of a store")
@pytest.mark.parametrize(
    ("point", "times"),
    [
        (CrashPoint.AFTER_RECORD, 5),
        (CrashPoint.COPY_UPLOADED, 3),
        (CrashPoint.COPY_NAMED, 3),
        (CrashPoint.AFTER_PUBLICATION, 2),
    ],
)
def test_a_killed_run_whose_directory_is_gone_continues_exactly(
    spark: SparkSession,
    place: StoredPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: CrashPoint,
    times: int,
) -> None:
    monkeypatch.setattr(continuation_watch, "LOOK_S", 0.5)
    monkeypatch.setattr(state_lease, "LEASE_S", 2.0)
    moved = Moved(place, tmp_path / "rows.db", rows=1_200)
    moved.kill_at(point, times, tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost")

    notices, other = Notices(), {"state.work-dir": str(tmp_path / "other"), "spark.master": "local[2]"}
    config = Config.load(None, {}, moved.sets | other)
    assert run(load_application(FILE, moved.settings), config, notices).outcome is RunOutcome.FINISHED
    assert sum("continues from the copy of the newest checkpoint" in text for text in notices.texts) == 1
    moved.require_exact()


@pytest.mark.nightly("test_moved_states simulates it; a real worker is lost here")
def test_a_worker_whose_directory_is_gone_loses_nothing(place: StoredPlace, tmp_path: Path) -> None:
    with whole_cluster(tmp_path, masters=1) as cluster:
        app = Watching(place, cluster)
        app.wait_all_shown()
        worker = cluster.worker_of("watching")
        app.give()
        lose(cluster, worker)
        app.give()
        app.wait_all_shown()
        assert cluster.worker_of("watching") != worker
        app.command("kill", "--wait")
    app.require_exact()
