"""The client for programs without an event loop: what the commands use, and users from Python."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from scripted_cluster import ScriptedCluster, world

from drivetrain.cluster.client import ReportEnd, ShowStatus, UnknownApplicationError, connect
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import Status
from drivetrain.config import Config
from drivetrain.errors import ConfigError

pytestmark = pytest.mark.timeout(60)


def config(cluster: ScriptedCluster) -> Config:
    return Config.load(None, {}, {"cluster.masters": cluster.masters})


def test_submit_follow_and_wait(application_file: Path) -> None:
    with ScriptedCluster() as cluster, connect(config(cluster)) as client:
        app_id = client.submit("count.py", sets={"input": "/other"}, name="mine")
        assert app_id == "mine-1"
        assert client.application("mine").spec.settings == {"input": "/other"}
        running = world.status_of(app_id)
        app_master = cluster.app_master(running)
        cluster.world.change(app_id, state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
        last = world.finished(app_id)

        def end() -> None:
            app_master.tell(Status(last))
            cluster.world.end(app_id, last)

        seen = []
        for one in client.follow("mine"):
            if isinstance(one, ShowStatus) and not seen:
                cluster.later(lambda: True, end)
            if one is not None:
                seen.append(one)
        assert seen[-1] == ReportEnd(app_id, ApplicationState.SUCCEEDED, None, last)
        assert client.wait(app_id, "1 s").state is ApplicationState.SUCCEEDED
        assert [master.leads for master in client.masters()] == [True, False]


def test_errors_reach_the_caller_and_closing_ends_the_thread(application_file: Path) -> None:
    before = threading.active_count()
    with ScriptedCluster() as cluster:
        client = connect(config(cluster))
        with pytest.raises(UnknownApplicationError):
            client.application("nobody")
        stream = client.follow("nobody")
        with pytest.raises(UnknownApplicationError):
            next(stream)
        client.close()
        client.close()
    assert threading.active_count() == before
    with pytest.raises(ConfigError):
        connect(Config.load(None, {}, {"cluster.masters": "nonsense"}))
    assert threading.active_count() == before


def test_leaving_a_stream_stops_what_it_follows(application_file: Path) -> None:
    with ScriptedCluster() as cluster, connect(config(cluster)) as client:
        app_master = cluster.app_master(world.status_of())
        cluster.world.put(world.view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master))
        stream = client.follow("wc")
        assert any(isinstance(one, ShowStatus) for one in stream)
        stream.close()  # type: ignore[attr-defined]
        followers = app_master.cell.actor.followers
        cluster.later(lambda: not followers, lambda: None).result(30)
