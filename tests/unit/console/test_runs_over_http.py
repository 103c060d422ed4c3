"""The runs of this machine by REST: real state directories and control sockets, without Spark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from console_in_thread import ConsoleInThread, scripted

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.console.embedded import runs
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import (
    ErrorView,
    ExecutorView,
    FragmentView,
    JobState,
    JobStatus,
    moment_of,
)
from drivetrain.core.picture.placed_graph import graph_of
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.control_requests import ControlAnswer, ControlRequest
from drivetrain.runtime.control_socket import NAME as CONTROL
from drivetrain.runtime.control_socket import ControlSocket
from drivetrain.runtime.last_run import NAME, LastRun, write_last_run
from drivetrain.runtime.run_directory import RunDirectory

V1 = "/api/v1"
STARTED_MS = time.time_ns() // 1_000_000 - 60_000


def shop() -> Application:
    app = Application("shop")
    orders = app.read(sources.generate(rows=10, columns={"key": "id % 3"}), name="orders")
    hourly = orders.group_by("key").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.none(), name="out")
    return app


PLAN = plan(shop().graph())
STATUS = JobStatus(
    "shop-44136fa3",
    1,
    JobState.RUNNING,
    STARTED_MS,
    STARTED_MS + 60_000,
    clock_ms=1_000,
    fragments=(FragmentView("orders", "running", 1, batch_id=3, rows_total=10, rows_per_s=2.5),),
    executors=(ExecutorView("run", None, "here", 4711, 2, "ready"),),
    counts={"orders": (0, 10, 0, 0), "hourly": (10, 3, 2, 0), "out": (3, 0, 0, 0)},
)
LAST = LastRun(STATUS, History((moment_of(STATUS),)), graph_of(PLAN), 1)


@pytest.fixture
def state(tmp_path: Path) -> RunDirectory:
    """The state of an application that has begun."""
    rundir = RunDirectory(str(tmp_path / "state"), "shop", {})
    rundir.acquire()
    rundir.begin(PLAN)
    rundir.release()
    return rundir


@pytest.fixture
def console(tmp_path: Path, state: RunDirectory) -> Iterator[ConsoleInThread]:
    """A console of the runs in that state directory."""
    with scripted.ScriptedCluster() as cluster:
        sets = {"state.dir": str(state.path.parent)}
        made = ConsoleInThread(tmp_path, cluster, sets, of_runs=True)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def running(
    state: RunDirectory, status: Callable[[], JobStatus] = lambda: STATUS
) -> Iterator[list[ControlRequest]]:
    """Somebody answers at the control socket as a run does; what was asked."""
    asked: list[ControlRequest] = []

    def answer(line: bytes) -> bytes:
        request = msgspec.json.decode(line, type=ControlRequest)
        asked.append(request)
        return msgspec.json.encode(
            ControlAnswer(ChangeState(1), status=status(), history=LAST.history, graph=LAST.graph)
        )

    state.acquire()
    control = ControlSocket(state.path, answer)
    try:
        yield asked
    finally:
        control.close()
        state.release()


def test_a_run_answers_as_an_application_of_a_cluster_does(
    console: ConsoleInThread, state: RunDirectory
) -> None:
    with running(state):
        (line,) = console.http.get(f"{V1}/applications").json()["applications"]
        assert (line["app_id"], line["state"], line["clock_ms"]) == (state.app_id, "active", 1_000)
        shown = console.http.get(f"{V1}/applications/shop").json()
        assert shown["job"]["fragments"][0]["messages"] == 10
        assert shown["diagnosis"]["in_short"] != ""
        clocks = console.http.get(f"{V1}/applications/shop/clocks", params={"wait": "1000"}).json()
        assert clocks["clock_ms"] == 1_000
        graph = console.http.get(f"{V1}/applications/shop/graph").json()
        assert {one["processor"] for one in graph["processors"]} == set(PLAN.operators)
        history = console.http.get(f"{V1}/applications/shop/history", params={"since_ms": STARTED_MS}).json()
        assert history["fragments"]["orders"]["messages"] == [10]
        metrics = console.http.get("/metrics").text
        assert f'drivetrain_application_up{{application="{state.app_id}"}} 1' in metrics
    cluster = console.http.get(f"{V1}/cluster").json()
    assert (cluster["shows"], cluster["leader"], cluster["workers"]) == ("runs", None, 0)
    assert console.http.get("/readyz").status_code == 200


def test_one_look_answers_all_who_ask_within_a_moment(console: ConsoleInThread, state: RunDirectory) -> None:
    with running(state) as asked:
        console.http.get(f"{V1}/applications/shop")
        assert [each.ask for each in asked].count("status") == 1, "view, status and list are of one look"


def test_how_a_run_ended_is_told_from_what_it_left(
    console: ConsoleInThread, state: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "FRESH_S", 0.0)

    def shown() -> tuple[str, str | None, bool]:
        found = console.http.get(f"{V1}/applications/{state.app_id}").json()
        return found["application"]["state"], found["application"]["why"], found["job"] is not None

    def ended(job: JobState, error: ErrorView | None = None) -> tuple[str, str | None, bool]:
        status = msgspec.structs.replace(STATUS, state=job, error=error)
        write_last_run(state.path, msgspec.structs.replace(LAST, status=status))
        return shown()

    killed, why, has_job = shown()
    assert (killed, has_job) == ("killed", False)
    assert "without a report" in (why or "")
    assert ended(JobState.FINISHED) == ("succeeded", None, True)
    assert ended(JobState.CANCELED)[0] == "killed"
    assert ended(JobState.FAILED, ErrorView("user", "no such column")) == ("failed", "no such column", True)
    (state.path / NAME).write_bytes(b'{"status": 7} 00000000\n')
    damaged, why, _ = shown()
    assert (damaged, "cannot be read" in (why or "")) == ("failed", True)


def test_a_state_that_cannot_be_read_is_shown_with_the_reason(
    console: ConsoleInThread, state: RunDirectory
) -> None:
    other = state.path.parent / "other-12345678"
    other.mkdir()
    (other / "application.json").write_text("rubbish")
    lines = console.http.get(f"{V1}/applications").json()["applications"]
    states = {line["app_id"]: (line["state"], line["why"]) for line in lines}
    assert states[other.name][0] == "failed"
    assert "cannot be read" in str(states[other.name][1])
    assert state.app_id in states


def test_a_stop_is_passed_on_and_the_operation_ends_with_the_run(
    console: ConsoleInThread, state: RunDirectory
) -> None:
    with running(state) as asked:
        begun = console.http.post(f"{V1}/applications/shop/kill")
        assert begun.status_code == 202
        path = begun.headers["location"]
        while not any(each.ask == "stop" for each in asked):
            assert console.http.get(path).json()["state"] == "running"
    write_last_run(
        state.path,
        msgspec.structs.replace(LAST, status=msgspec.structs.replace(STATUS, state=JobState.CANCELED)),
    )
    while (now := console.http.get(path).json())["state"] == "running":
        continue
    assert (now["state"], now["result"]) == ("succeeded", {"state": "killed"})


def test_keys_are_changed_by_the_run(console: ConsoleInThread, state: RunDirectory) -> None:
    with running(state) as asked:
        answer = console.http.post(
            f"{V1}/applications/shop/configuration", json={"values": {"run.batch-target": "2 s"}}
        )
        assert (answer.status_code, answer.json()) == (200, {"changed": []})
        assert ControlRequest("configure", values={"run.batch-target": "2 s"}) in asked


@pytest.mark.parametrize(
    "request_of",
    [
        ("GET", "/workers"),
        ("GET", "/masters"),
        ("GET", "/applications/shop/logs"),
        ("POST", "/applications/shop/restart"),
        ("POST", "/applications?file=app.py"),
    ],
    ids=lambda request_of: request_of[1],
)
def test_what_only_a_cluster_can_do_is_refused(console: ConsoleInThread, request_of: tuple[str, str]) -> None:
    method, path = request_of
    answer = console.http.request(method, f"{V1}{path}", content=None if method == "GET" else b"x = 1")
    assert (answer.status_code, answer.json()["code"]) == (409, "only-in-cluster")
    assert answer.json()["remedy"]


def test_a_console_that_ends_sends_the_end_of_the_run_first(
    console: ConsoleInThread, state: RunDirectory
) -> None:
    with running(state), console.http.stream("GET", f"{V1}/events", params={"app": "shop"}) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if line.startswith("event: snapshot"))
        status = msgspec.structs.replace(STATUS, state=JobState.FINISHED)
        ended = msgspec.structs.replace(LAST, status=status)
        write_last_run(state.path, ended)
        (state.path / CONTROL).unlink()  # nobody listens any more
        console.stop()
        rest = list(lines)
    snapshots = [line for line in rest if line.startswith('data: {"now_ms"') and '"diagnosis"' in line]
    assert '"state":"succeeded"' in snapshots[-1]
    assert rest[-3:-1] == ["event: end", 'data: {"problem":null,"remedy":null}']
