"""An application of a cluster whose state is in an object store: it outlives the machine that it runs on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from moved import Moved, lose

from drivetrain.cluster.messages.applications import ApplicationState
from object_store import S3Server
from whole_cluster import wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.nightly("test_moved_states simulates it; a real worker is lost here")
def test_an_application_continues_exactly_on_another_worker_when_its_own_is_lost(
    s3: S3Server, tmp_path: Path
) -> None:
    moved = Moved(s3.place("moved"), tmp_path / "rows.db")
    with whole_cluster(tmp_path, masters=1) as cluster:
        moved.submit(cluster)
        cluster.wait_running("moved")
        _, status = cluster.status("moved")
        assert status is not None
        worker = cluster.worker_of("moved")
        assert [executor.worker for executor in status.executors] == [worker] * 2
        free = {each.name: each.free for each in cluster.client.workers()}
        assert free[worker] == 1
        moved.wait_results()
        saved = cluster.command("savepoint", "moved", expect=0).stdout.strip()
        assert saved.startswith("s3://moved/states/savepoints/moved-1-")
        assert moved.place.files(f"{saved.removeprefix('s3://moved/')}/savepoint.json")

        lose(cluster, worker)
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
        view, _ = cluster.status("moved")
        assert view.epoch == 2

        moved.submit(cluster)  # it has finished, on whichever worker
        assert cluster.client.wait("moved", "10 min").state is ApplicationState.SUCCEEDED
    moved.require_exact()


@pytest.mark.nightly("test_moved_states simulates it; real processes are suspended here")
def test_a_worker_that_was_suspended_and_replaced_shows_nothing_more(s3: S3Server, tmp_path: Path) -> None:
    moved = Moved(s3.place("suspended"))
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
