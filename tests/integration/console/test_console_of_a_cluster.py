"""A console of a real cluster, as `drivetrain local` starts it, while masters and application masters die."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from whole_cluster import APP_MASTER, wait_for, whole_cluster

SLOW_S = 180.0
CLUSTER = Path(__file__).resolve().parents[1] / "cluster"
STAGES = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("console")
    with whole_cluster(directory, masters=3, workers=2, console=True) as made:
        yield made


@pytest.fixture(scope="module")
def http(cluster: Any) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {cluster.console['token']}"}
    with httpx.Client(
        base_url=cluster.console["address"], headers=headers, timeout=SLOW_S, trust_env=False
    ) as made:
        yield made


@contextmanager
def events(http: httpx.Client, path: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    with http.stream("GET", path) as answer:
        assert answer.status_code == 200, answer.read()

        def read() -> Iterator[tuple[str, dict[str, Any]]]:
            kind = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    yield kind, json.loads(line[6:])

        yield read()


def until(
    stream: Iterator[tuple[str, dict[str, Any]]], kind: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    end_s = time.monotonic() + SLOW_S
    for name, data in stream:
        if name == kind and holds(data):
            return data
        assert time.monotonic() < end_s, f"waited in vain for {kind}"
    raise AssertionError("the stream ended")


def runs(epoch: int) -> Callable[[dict[str, Any]], bool]:
    def holds(data: dict[str, Any]) -> bool:
        job = data["job"]
        return (
            job is not None
            and job["epoch"] == epoch
            and bool(job["fragments"])
            and all(fragment["state"] == "running" for fragment in job["fragments"])
        )

    return holds


def ended(http: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text

    def look() -> dict[str, Any] | None:
        told = http.get(answer.headers["location"]).json()
        return None if told["state"] == "running" else told

    return wait_for(look, "the end of the operation")


@pytest.mark.nightly("test_dashboard_of_a_cluster looks through a browser")
def test_an_upload_runs_and_is_watched_through_the_death_of_its_master_and_the_leader(
    cluster: Any, http: httpx.Client
) -> None:
    place = cluster.directory / "place"
    (place / "gates").mkdir(parents=True)
    (place / "passed").mkdir()
    (place / "gates" / "0").touch()
    settings = [f"place={place}", f"output={place / 'out'}", "rows=4000"]
    settings += ["spark.driver-memory=512 MiB", "spark.shuffle-partitions=2", "run.max-batch-rows=500"]
    query = {"file": "gated.py", "set": settings}
    code = (CLUSTER / "gated_application.py").read_bytes()

    planned = http.post("/api/v1/plans", params=query, content=code)
    assert planned.status_code == 200, planned.text
    headers = {"Idempotency-Key": "the only one"}
    made = http.post("/api/v1/applications", params=query, content=code, headers=headers)
    assert made.status_code == 201, made.text
    again = http.post("/api/v1/applications", params=query, content=code, headers=headers)
    assert (again.status_code, again.json()) == (200, made.json())
    app = made.json()["app_id"]
    graph = http.get(f"/api/v1/applications/{app}/graph").json()
    assert graph == planned.json()["graph"]

    with events(http, f"/api/v1/events?app={app}") as stream:
        until(stream, "snapshot", runs(epoch=1))
        wait_for(lambda: (place / "passed" / "0").exists(), "the first messages")

        _kill_app_master(cluster, app)
        until(stream, "snapshot", runs(epoch=2))

        leader = cluster.leader()
        assert leader is not None
        before = cluster.pids[leader]
        cluster.kill(leader)
        assert not psutil.pid_exists(before) or psutil.Process(before).status() == psutil.STATUS_ZOMBIE
        until(stream, "cluster", lambda d: d["leader"] is not None and cluster.places[d["leader"]] != leader)

        for stage in range(1, STAGES):
            (place / "gates" / str(stage)).touch()
        over = until(stream, "snapshot", lambda d: d["application"]["state"] == "succeeded")
    assert over["job"]["state"] == "finished"
    counted = {each["processor"]: each["messages_out"] for each in over["job"]["processors"]}
    assert 3500 <= counted["numbers"] <= 4000, "what the second application master has counted"

    logs = http.get(f"/api/v1/applications/{app}/logs").json()["pieces"]
    assert {piece["worker"] for piece in logs} <= {"worker-1", "worker-2"}
    assert logs
    cluster.restart(leader)


def _kill_app_master(cluster: Any, app: str) -> None:
    def find() -> int | None:
        for pid in cluster.processes():
            try:
                line = psutil.Process(pid).cmdline()
            except psutil.Error:
                continue
            if APP_MASTER in line:
                return pid
        return None

    os.kill(wait_for(find, f"the application master of {app}"), signal.SIGKILL)


def test_metrics_of_the_cluster_are_told(http: httpx.Client) -> None:
    told = http.get("/metrics").text
    assert "drivetrain_console_connected 1.0" in told
    assert 'drivetrain_worker_slots{worker="worker-1"} 3.0' in told
    assert told.endswith("# EOF\n")


@pytest.mark.nightly("test_changes_in_a_cluster reaches what it reaches")
@pytest.mark.nightly("test_writing, over HTTP")
def test_killing_is_an_operation_and_is_noted(cluster: Any, http: httpx.Client) -> None:
    place = cluster.directory / "other"
    place.mkdir()
    query = {"file": "gated.py", "name": "other", "set": [f"place={place}", f"output={place / 'out'}"]}
    code = (CLUSTER / "gated_application.py").read_bytes()
    app = http.post("/api/v1/applications", params=query, content=code).json()["app_id"]
    done = ended(http, http.post(f"/api/v1/applications/{app}/kill"))
    assert (done["state"], done["result"]) == ("succeeded", {"state": "killed"})
    assert cluster.client.application(app).state.value == "killed"
    noted = (cluster.directory / ".drivetrain" / "console" / "audit.log").read_text()
    assert json.loads(noted.splitlines()[-1])["app"] == app
    for log in cluster.directory.rglob("*.log"):
        assert cluster.console["token"] not in log.read_text(errors="replace"), log
