"""An application of a cluster whose state is in an object store is killed and started again by its user."""

from __future__ import annotations

from pathlib import Path

import pytest
from moved import lose
from watching import Watching

from drivetrain.cluster.messages.applications import ApplicationState
from object_store import S3Server
from whole_cluster import whole_cluster

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.nightly("test_moved_states simulates what epochs do; here a user ends and begins them")
def test_what_was_killed_or_runs_is_started_again_and_goes_on_exactly(s3: S3Server, tmp_path: Path) -> None:
    with whole_cluster(tmp_path, masters=1) as cluster:
        app = Watching(s3.place("restarted"), cluster)
        app.wait_all_shown()
        first = cluster.worker_of("watching")

        app.command("kill", "--wait")
        view, _ = cluster.status("watching")
        assert view.state is ApplicationState.KILLED
        assert not cluster.processes(f"{cluster.directory}/boxes/{first}/work/")
        app.give()
        app.command("restart")
        app.wait_all_shown()
        assert cluster.worker_of("watching") == first  # it has the state

        app.give()
        app.command("restart")  # while it runs
        app.give()
        app.wait_all_shown()

        app.command("kill", "--wait")
        lose(cluster, first)
        app.give()
        app.command("restart")
        app.wait_all_shown()
        assert cluster.worker_of("watching") != first
        app.command("kill", "--wait")
    app.require_exact()
