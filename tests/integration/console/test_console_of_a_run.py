"""A console beside a real run, as `drivetrain run --console` starts it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from free_ports import free_port

SLOW_S = 400.0
APPLICATION = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("shop")
read = app.read(sources.json("in", schema="at timestamp, n bigint", event_time="at", watch=True), name="read")


def marked(row) -> int:
    if row.n % 7 == 3:
        raise ValueError(f"message {row.n} cannot be marked")
    return row.n * 100 + 1


read.map(marked, name="mark", on_error="dead_letter").sink(sinks.json("marked"), name="marked_out")
hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
hourly.sink(sinks.json("hourly"), name="hourly_out")
"""
CHANGED = APPLICATION.replace("row.n * 100 + 1", "row.n * 100 + 2")
OTHER = APPLICATION.replace('Application("shop")', 'Application("other")')


class Run:
    """A run with a console beside it, in a directory of its own; `log` is its standard error stream."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self._fed = 0
        (directory / "in").mkdir(exist_ok=True)
        (directory / "shop.py").write_text(APPLICATION)
        arguments = ["run", "shop.py", "--console", "--set", f"console.port={free_port()}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "drivetrain.cli", *arguments], cwd=directory, stdout=log, stderr=log
            )
        entry = wait(lambda: re.search(r"console: (http\S+)\?token=(\S+)", self.log.read_text()), self)
        self.http = httpx.Client(
            base_url=f"{entry[1]}api/v1/",
            headers={"Authorization": f"Bearer {entry[2]}"},
            timeout=SLOW_S,
            trust_env=False,
        )

    def feed(self, count: int) -> None:
        """Have the application read so many more messages, one in each minute."""
        numbers = range(self._fed, self._fed + count)
        lines = [{"at": f"2024-01-01T{n // 60:02}:{n % 60:02}:00Z", "n": n} for n in numbers]
        aside = self.directory / "in" / f".{self._fed}.json"
        aside.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        aside.rename(self.directory / "in" / f"{self._fed}.json")
        self._fed += count

    def marks(self) -> dict[int, int]:
        """The version that has marked each message."""
        files = (self.directory / "marked").glob("[!_.]*.json")
        found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return {value // 100: value % 100 for row in found for value in row.values()}

    def get(self, path: str = "", **query: Any) -> dict[str, Any]:
        """What the console answers about the application."""
        answer = self.http.get(f"applications/shop{path}", params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def done(self, answer: httpx.Response) -> dict[str, Any]:
        """The end of the operation that a request has begun."""
        assert answer.status_code == 202, answer.text
        path = f"operations/{answer.json()['operation_id']}"

        def ended() -> dict[str, Any] | None:
            now = dict(self.http.get(path).json())
            return None if now["state"] == "running" else now

        return wait(ended, self)


def wait(found: Callable[[], Any], run: Run) -> Any:
    """What `found` finds in the end, while the run goes on."""
    end_s = time.monotonic() + SLOW_S
    while not (value := found()):
        assert run.process.poll() is None, run.log.read_text()
        assert time.monotonic() < end_s, run.log.read_text()
        time.sleep(0.3)
    return value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("run"))
    try:
        made.feed(20)
        # Before Spark has started nobody knows the application.
        wait(lambda: made.http.get("applications").json()["applications"], made)
        wait(lambda: len(made.marks()) == 17, made)
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@contextmanager
def console(directory: Path) -> Iterator[httpx.Client]:
    """A console of the runs in a state directory, and no run."""
    arguments = ["console", "--state-dir", str(directory / ".drivetrain"), "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "drivetrain.cli", *arguments], cwd=directory, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())
        headers = {"Authorization": f"Bearer {address['token']}"}
        with httpx.Client(base_url=f"{address['address']}api/v1/", headers=headers, trust_env=False) as http:
            yield http
    finally:
        process.terminate()
        process.wait()


@pytest.mark.nightly("test_runs_over_http and test_runs_in_browser; test_console_of_a_cluster")
def test_a_run_is_shown_with_the_figures_of_an_application_of_a_cluster(run: Run) -> None:
    shown = wait(
        lambda: (now := run.get()) and all(one["batch_id"] >= 0 for one in now["job"]["fragments"]) and now,
        run,
    )
    assert shown["application"]["state"] == "active"
    assert {one["fragment"] for one in shown["job"]["fragments"]} == {"read", "hourly"}
    processors = {one["processor"]: one for one in shown["job"]["processors"]}
    assert processors["mark"]["dead_letters"] == 3
    assert shown["job"]["executors"][0]["pid"] == run.process.pid
    assert shown["diagnosis"]["severity"] in ("none", "note", "warning")
    letters = run.get("/dead-letters")["letters"]
    assert {letter["processor"].partition(" ")[0] for letter in letters} == {"mark"}
    assert len(letters) == 3
    graph = run.get("/graph")
    assert {one["processor"]: one["how"] for one in graph["processors"]}["mark"] == "arrow"
    taken = wait(lambda: run.get("/history")["fragments"].get("read"), run)
    assert taken["messages"][-1] >= 0
    stacks = run.get("/threads")
    assert "in _until_the_end" in stacks["python"], "the loop of the run"
    assert "MicroBatchExecution" in stacks["java"], stacks["java"][:2_000]
    metrics = run.http.get(str(run.http.base_url).replace("api/v1/", "metrics")).text
    assert re.search(r'drivetrain_processor_dead_letters_total\{.*processor="mark".*\} 3', metrics), metrics


@pytest.mark.nightly("test_runs_over_http and test_runs_in_browser; test_console_of_a_cluster")
def test_what_only_a_cluster_has_is_refused_with_a_reason(run: Run) -> None:
    asked = [run.http.get("workers"), run.http.get("masters"), run.http.get("applications/shop/logs")]
    asked.append(run.http.post("applications/shop/restart"))
    asked.append(run.http.post("applications", params={"file": "app.py"}, content=APPLICATION))
    assert {(each.status_code, each.json()["code"]) for each in asked} == {(409, "only-in-cluster")}
    assert all("runs of one machine" in each.json()["detail"] for each in asked)


@pytest.mark.nightly(
    "the unit tests of the console ask for the same; other tests of this module use a real run or cluster"
)
def test_an_upload_changes_the_run_and_a_rollback_goes_back(run: Run) -> None:
    query = {"file": "shop.py"}
    planned = run.http.post("applications/shop/changes/plan", params=query, content=CHANGED).json()
    assert {one["processor"]: one["fate"] for one in planned["changes"]}["mark"] == "swapped"
    assert (planned["can_be_made"], planned["against"]) == (True, 1)
    assert set(run.marks().values()) == {1}, "a plan changes nothing"
    other = run.http.post("applications/shop/changes/plan", params=query, content=OTHER)
    assert (other.status_code, "another application" in other.text) == (400, True)
    late = run.http.post("applications/shop/changes", params={**query, "against": 7}, content=CHANGED)
    assert run.done(late)["problem"]["code"] == "changed-meanwhile"

    changing = run.http.post("applications/shop/changes", params={**query, "against": 1}, content=CHANGED)
    wait(lambda: run.get()["application"]["graph_version"] == 2, run)
    run.feed(7)
    assert run.done(changing)["result"] == {"version": "2"}
    wait(lambda: len(run.marks()) == 23, run)
    assert {version for n, version in run.marks().items() if n >= 20} == {2}

    going_back = run.http.post("applications/shop/versions/1/rollback")
    wait(lambda: run.get()["application"]["graph_version"] == 3, run)
    run.feed(7)
    assert run.done(going_back)["result"] == {"version": "3"}
    wait(lambda: len(run.marks()) == 29, run)
    assert {version for n, version in run.marks().items() if n >= 27} == {1}
    known = run.get("/versions")["versions"]
    assert [(one["number"], one["made_how"]) for one in known] == [(3, "rollback"), (2, "update"), (1, "run")]


@pytest.mark.nightly(
    "the unit tests of the console ask for the same; other tests of this module use a real run or cluster"
)
def test_a_run_that_is_stopped_here_ends_in_order_and_its_end_stays(run: Run) -> None:
    saved = run.done(
        run.http.post("applications/shop/savepoints", json={"name": "kept", "timeout": "10 min"})
    )
    assert saved["state"] == "succeeded", saved
    assert (run.directory / saved["result"]["place"]).is_dir()
    with run.http.stream("GET", "events", params={"app": "shop"}) as answer:
        lines = answer.iter_lines()
        assert run.http.post("applications/shop/kill").status_code == 202
        states = [
            json.loads(line[6:])["application"]["state"]
            for line in lines
            if line.startswith('data: {"now_ms"') and '"application"' in line
        ]
    assert (states[0], states[-1]) == ("active", "killed"), "the page has the end before the console ends"
    assert run.process.wait(SLOW_S) == 0
    with pytest.raises(httpx.TransportError):
        run.http.get("cluster")
    with console(run.directory) as http:
        shown = http.get("applications/shop").json()
        assert (shown["application"]["state"], shown["job"]["state"]) == ("killed", "canceled")
        assert shown["application"]["ended_ms"] is not None
        assert {one["processor"]: one["messages"] for one in shown["job"]["outputs"]}["marked_out"] == 29
        assert len(http.get("applications/shop/graph").json()["processors"]) == 5
        assert http.get("applications/shop/history").json()["at_ms"]
        assert http.post("applications/shop/kill").status_code == 409


@pytest.mark.nightly("a start of Spark for one file that is missing")
def test_a_run_that_was_killed_is_not_taken_for_one_that_ended(run: Run) -> None:
    run.process.kill()
    run.process.wait()
    again = Run(run.directory)
    wait(lambda: again.get()["application"]["state"] == "active" if _is_known(again) else None, again)
    os.kill(again.process.pid, signal.SIGKILL)
    again.process.wait()
    with console(run.directory) as http:
        shown = http.get("applications/shop").json()
    assert shown["application"]["state"] == "killed"
    assert "without a report" in shown["application"]["why"]
    assert shown["job"] is None


def _is_known(run: Run) -> bool:
    return any(one["state"] == "active" for one in run.http.get("applications").json()["applications"])
