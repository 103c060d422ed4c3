"""An application of a cluster whose state is in an object store: it outlives the machine that it runs on."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from test_lost_machine import rows_in

from drivetrain.cluster.messages.applications import ApplicationState
from object_store import S3Server
from whole_cluster import WholeCluster, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

HERE = Path(__file__).parent
ROWS, KEYS = 6_000, 4


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
    bucket, database = s3.bucket("moved"), tmp_path / "rows.db"
    settings = s3.sets() | {
        "state.dir": "s3://moved/states",
        "checkpoint.interval": "500 ms",
        "run.max-batch-rows": "100",
        "app.executors": "2",
        "rows": str(ROWS),
        "keys": str(KEYS),
        "bucket": "s3://moved",
        "database": str(database),
    }
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    with whole_cluster(tmp_path, masters=1) as cluster:
        file = str(HERE / "moved_application.py")
        assert "begun outside of a cluster" in cluster.submit(file, "--from", "s3://moved/x", *given).stderr
        submitted = cluster.submit(file, "--detached", *given)
        assert submitted.returncode == 0, submitted.stderr
        cluster.wait_running("moved")
        _, status = cluster.status("moved")
        assert status is not None
        worker = cluster.worker_of("moved")
        assert [executor.worker for executor in status.executors] == [worker] * 2
        free = {each.name: each.free for each in cluster.client.workers()}
        assert free[worker] == 1
        wait_for(lambda: list((bucket / "each").glob("part-*")), "results")
        changed = cluster.command("update", "moved", "--set", "checkpoint.interval=1 s")
        assert "cannot change while it runs in a cluster" in changed.stderr
        saved = cluster.command("savepoint", "moved", expect=0).stdout.strip()
        assert saved.startswith("s3://moved/states/savepoints/moved-1-")
        assert (bucket / saved.removeprefix("s3://moved/") / "savepoint.json").is_file()

        lose(cluster, worker)
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
        view, _ = cluster.status("moved")
        assert view.epoch == 2

        again = cluster.submit(file, "--detached", *given)
        assert again.returncode == 0, again.stderr
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
    assert sorted(row["id"] for row in rows_in(bucket / "each")) == list(range(ROWS))
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("select id from each_row order by id").fetchall()
    assert [id for (id,) in found] == list(range(ROWS))
    assert sorted(row["id"] for row in rows_in(bucket / "even")) == list(range(0, ROWS, 2))
    counts = sorted((row["key"], row["n"]) for row in rows_in(bucket / "counts"))
    assert counts == [(str(key), ROWS // KEYS) for key in range(0, KEYS, 2)]
