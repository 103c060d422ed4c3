"""The pages of a run of this machine, under the prefix of a proxy, as a person sees and changes it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from dashboard import Dashboard, colours
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from drivetrain.code.application_file import load_application
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.live_change import Stage
from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import ExecutorView, FragmentView, JobState, JobStatus, moment_of
from drivetrain.core.picture.placed_graph import graph_of
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.control_requests import ControlAnswer, ControlRequest
from drivetrain.runtime.control_socket import ControlSocket
from drivetrain.runtime.last_run import LastRun, write_last_run
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code

SHOP = """
from drivetrain import Application, agg, sinks, sources

app = Application("shop")
orders = app.read(sources.json("in", schema="item string, n bigint"), name="orders")
orders.filter("n > 5", name="large").sink(sinks.json("large"), name="large_out")
"""


class Run:
    """Stands in for a run: a real state directory and control socket, and whoever answers at it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        file = directory / "shop.py"
        file.write_text(SHOP)
        (directory / "new.py").write_text(SHOP.replace("n > 5", "n > 50"))
        graph = load_application(str(file), {}).graph()
        self.plan = plan(graph)
        self.rundir = RunDirectory(str(directory / "state"), "shop", {})
        self.rundir.acquire()
        self.rundir.begin(self.plan, version_of(self.plan, fingerprint), graph_as_code(graph))
        self.state = ChangeState(1)
        self.is_asked_to_stop = False
        self._control: ControlSocket | None = ControlSocket(self.rundir.path, self._answer)

    def _answer(self, line: bytes) -> bytes:
        request = msgspec.json.decode(line, type=ControlRequest)
        if request.ask == "change":
            record, _ = self.rundir.versions.proposal(request.proposal)
            self.rundir.versions.note(record, "update")
            self.rundir.versions.note_ending(2, Outcome.DONE)
            self.state = ChangeState(2, Stage.IDLE, 2, 1, outcome=Outcome.DONE)
        self.is_asked_to_stop |= request.ask == "stop"
        last = self.last(JobState.RUNNING)
        answer = ControlAnswer(self.state, 2, status=last.status, history=last.history, graph=last.graph)
        return msgspec.json.encode(answer)

    def last(self, state: JobState) -> LastRun:
        """How it is now."""
        now_ms = time.time_ns() // 1_000_000
        status = JobStatus(
            self.rundir.app_id,
            1,
            state,
            now_ms - 60_000,
            now_ms,
            fragments=(FragmentView("orders", "running", 1, batch_id=3, rows_total=1_234, rows_per_s=2.5),),
            executors=(ExecutorView("run", None, "here", 4711, 2, "ready"),),
            counts={"orders": (0, 1_234, 0, 0), "large": (1_234, 10, 0, 0), "large_out": (10, 0, 0, 0)},
        )
        return LastRun(status, History((moment_of(status),)), graph_of(self.plan), self.state.version)

    def end(self) -> None:
        """Leave the end, and answer no more."""
        if self._control is not None:
            write_last_run(self.rundir.path, self.last(JobState.CANCELED))
            self._control.close()
            self.rundir.release()
            self._control = None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("run"))
    yield made
    made.end()


@contextlib.contextmanager
def _console(directory: Path) -> Iterator[dict[str, str]]:
    arguments = ["console", "--state-dir", "state", "--port", "0", "--json"]
    arguments += ["--set", "console.prefix=/behind/a/proxy"]
    process = subprocess.Popen(
        [sys.executable, "-m", "drivetrain.cli", *arguments], cwd=directory, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def address(run: Run) -> Iterator[dict[str, str]]:
    with _console(run.directory) as made:
        yield made


@pytest.fixture
def shown(browser: Chrome, address: dict[str, str]) -> Iterator[Dashboard]:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    colours(browser, "light")
    made = Dashboard(browser, address["address"], address["entry"])
    made.enter()
    made.begin()
    yield made
    assert made.complaints() == []


@pytest.mark.nightly("test_console_of_a_run reaches what it reaches")
def test_a_run_is_shown_without_what_only_a_cluster_has(shown: Dashboard, run: Run) -> None:
    shown.open("/")
    shown.wait_for("table a", run.rundir.app_id)
    assert "/behind/a/proxy/" in shown.browser.current_url
    headings = shown.text()
    assert "Cluster" not in headings
    assert "Submit" not in headings
    shown.open(f"/apps/{run.rundir.app_id}")
    shown.wait_for(".facts", "4711 on here")
    buttons = shown.script("return [...document.querySelectorAll('.head .action')].map((b) => b.textContent)")
    assert buttons == ["Savepoint …", "Stop"]
    assert "Logs" not in shown.text()
    assert "1.23 k so far" in shown.text() or "1,234 so far" in shown.text(), shown.text()


@pytest.mark.nightly("test_console_of_a_run changes it by REST, and test_pages shows the difference")
def test_an_upload_shows_what_it_changes_in_colour_and_changes_the_run(shown: Dashboard, run: Run) -> None:
    shown.open(f"/apps/{run.rundir.app_id}/versions")
    shown.wait_for(".panel", "Change the running application")
    shown.browser.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(run.directory / "new.py"))
    shown.click("button", "Show what changes")
    shown.wait_for(".graph-processor.mark-changed", "~ large")
    kept = shown.script("return document.querySelectorAll('.graph-processor.mark-kept').length")
    assert kept == 2, "what is kept has no colour"
    shown.wait_for("td", "n > 50")
    shown.click("button", "Make this change")
    shown.wait_for(".outcome", "the new version is in force")
    shown.wait_for("button[aria-label='Go back to version 1']")
    assert run.state.version == 2


@pytest.mark.nightly("test_subscriptions reaches what it reaches")
def test_a_run_that_ends_keeps_its_end_on_the_page(shown: Dashboard, run: Run) -> None:
    shown.open(f"/apps/{run.rundir.app_id}")
    shown.click("button", "Stop")
    shown.wait_for("dialog", "It finishes its batches")
    shown.click("dialog button", "Stop it")
    shown.wait_for(".outcome")
    assert run.is_asked_to_stop
    run.end()
    shown.wait_for(".head", "killed")
    shown.wait_for(".facts", "it was stopped; drivetrain run continues it")
    assert "orders" in shown.text()
