"""An application of a cluster whose state is in an object store: it outlives the machine that it runs on."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from test_lost_machine import rows_in

from drivetrain.cluster.messages.applications import ApplicationState
from object_store import S3Server
from whole_cluster import WholeCluster, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

FILE = str(Path(__file__).parent / "moved_application.py")
ROWS, KEYS = 6_000, 4


class Moved:
    """The application with its store and its settings."""

    def __init__(self, s3: S3Server, name: str, database: Path | None = None) -> None:
        self.bucket, self.database = s3.bucket(name), database
        settings = s3.sets() | {
            "state.dir": f"s3://{name}/states",
            "checkpoint.interval": "500 ms",
            "run.max-batch-rows": "100",
            "app.executors": "2",
            "rows": str(ROWS),
            "keys": str(KEYS),
            "bucket": f"s3://{name}",
            "database": "" if database is None else str(database),
        }
        self.given = [text for key, value in settings.items() for text in ("--set", f"{key}={value}")]

    def submit(self, cluster: WholeCluster) -> None:
        submitted = cluster.submit(FILE, "--detached", *self.given)
        assert submitted.returncode == 0, submitted.stderr

    def wait_results(self) -> None:
        wait_for(lambda: list((self.bucket / "each").glob("part-*")), "results")

    def require_exact(self) -> None:
        assert sorted(row["id"] for row in rows_in(self.bucket / "each")) == list(range(ROWS))
        assert sorted(row["id"] for row in rows_in(self.bucket / "even")) == list(range(0, ROWS, 2))
        counts = sorted((row["key"], row["n"]) for row in rows_in(self.bucket / "counts"))
        assert counts == [(str(key), ROWS // KEYS) for key in range(0, KEYS, 2)]
        if self.database is not None:
            with closing(sqlite3.connect(self.database)) as connection:
                found = connection.execute("select id from each_row order by id").fetchall()
            assert [id for (id,) in found] == list(range(ROWS))


def lose(cluster: WholeCluster, worker: str) -> None:
    """Kill everything that a worker's machine runs, and delete what is on its disk."""
    directory = cluster.directory / "boxes" / worker
    own = {cluster.pids[worker], *cluster.processes(f"{directory}/")}
    for pid in own:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not cluster.processes(f"{directory}/"), f"the end of what {worker} has started")
    shutil.rmtree(directory)


@pytest.mark.nightly("test_moved_states simulates it; a real worker is lost here")
def test_an_application_continues_exactly_on_another_worker_when_its_own_is_lost(
    s3: S3Server, tmp_path: Path
) -> None:
    moved = Moved(s3, "moved", tmp_path / "rows.db")
    with whole_cluster(tmp_path, masters=1) as cluster:
        refused = cluster.submit(FILE, "--from", "s3://moved/x", *moved.given)
        assert "begun outside of a cluster" in refused.stderr
        moved.submit(cluster)
        cluster.wait_running("moved")
        _, status = cluster.status("moved")
        assert status is not None
        worker = cluster.worker_of("moved")
        assert [executor.worker for executor in status.executors] == [worker] * 2
        free = {each.name: each.free for each in cluster.client.workers()}
        assert free[worker] == 1
        moved.wait_results()
        changed = cluster.command("update", "moved", "--set", "checkpoint.interval=1 s")
        assert "cannot change while it runs in a cluster" in changed.stderr
        saved = cluster.command("savepoint", "moved", expect=0).stdout.strip()
        assert saved.startswith("s3://moved/states/savepoints/moved-1-")
        assert (moved.bucket / saved.removeprefix("s3://moved/") / "savepoint.json").is_file()

        lose(cluster, worker)
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
        view, _ = cluster.status("moved")
        assert view.epoch == 2

        moved.submit(cluster)  # it has finished, on whichever worker
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
    moved.require_exact()


@pytest.mark.nightly("test_moved_states simulates it; real processes are suspended here")
def test_a_worker_that_was_suspended_and_replaced_shows_nothing_more(s3: S3Server, tmp_path: Path) -> None:
    moved = Moved(s3, "suspended")
    with whole_cluster(tmp_path, masters=1) as cluster:
        moved.submit(cluster)
        cluster.wait_running("moved")
        worker = cluster.worker_of("moved")
        moved.wait_results()
        former = psutil.Process(cluster.pids[worker])
        suspended = [former, *former.children(recursive=True)]
        for process in suspended:
            process.suspend()
        cluster.wait_running("moved", epoch=2)
        assert cluster.worker_of("moved") != worker
        for process in suspended:
            process.resume()

        def has_ended() -> bool:
            return not cluster.processes(f"{cluster.directory}/boxes/{worker}/work/")

        wait_for(has_ended, "the end of the processes that were replaced")
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
        view, _ = cluster.status("moved")
        assert view.epoch == 2
    moved.require_exact()
