"""The dashboard of a real cluster, with a real application: it names what is slow, and survives what dies.

The tests share the cluster and its application, and run in their order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard import Dashboard
from selenium.webdriver import Chrome

from free_ports import free_port
from whole_cluster import APP_MASTER, WholeCluster, drivetrain, wait_for, whole_cluster

HERE = Path(__file__).parent
SHELL = HERE.parents[1] / "examples" / "distributed_shell.py"


class ConsoleProcess:
    """`drivetrain console` of a cluster; it can be killed, and started again at its port."""

    def __init__(self, cluster: WholeCluster) -> None:
        self._cluster = cluster
        self._port = free_port()
        self.entrance = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it and wait for its address."""
        command = [
            "console",
            "--masters",
            ",".join(self._cluster.masters),
            "--port",
            str(self._port),
            "--json",
        ]
        with (self._cluster.directory / "console.log").open("a") as log:
            self._process = subprocess.Popen(
                [*drivetrain(), *command],
                cwd=self._cluster.directory,
                env=self._cluster.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        assert told, (self._cluster.directory / "console.log").read_text()
        self.entrance = json.loads(told)["entry"]

    @property
    def address(self) -> str:
        return self.entrance.partition("?")[0]

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    shutil.copy(HERE / "slow_sink_application.py", directory / "tills.py")
    with whole_cluster(directory, masters=1, workers=1, console=True) as started:
        yield started


@pytest.fixture(scope="module")
def console(cluster: WholeCluster) -> Iterator[ConsoleProcess]:
    started = ConsoleProcess(cluster)
    started.start()
    yield started
    started.kill()


@pytest.fixture(scope="module")
def app(cluster: WholeCluster) -> str:
    """The application, which waits for its sink."""
    given = ("channel.window-batches=2", "run.max-batch-rows=3000", "checkpoint.interval=1 h")
    sets = [part for setting in (*given, f"go={cluster.directory / 'go'}") for part in ("--set", setting)]
    accepted = cluster.submit("tills.py", "--detached", "--json", *sets)
    assert accepted.returncode == 0, accepted.stderr
    return str(json.loads(accepted.stdout)["app_id"])


@pytest.fixture
def dashboard(browser: Chrome, console: ConsoleProcess, app: str) -> Dashboard:
    shown = Dashboard(browser, console.address, console.entrance, patience_s=240)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    shown.enter()
    shown.begin()
    return shown


@pytest.mark.nightly("test_pages, with a recorded cluster; the unit tests of diagnoses")
def test_the_page_names_the_sink_that_is_slow(dashboard: Dashboard, app: str) -> None:
    dashboard.open("/")
    dashboard.wait_for("tbody a", app)
    dashboard.open(f"/apps/{app}")
    dashboard.wait_for(".verdict.warning .sentence", "hourly must wait, because daily does not keep up")
    dashboard.open(f"/apps/{app}/graph")
    dashboard.wait_for(".graph-channel.blocked", "full for")
    dashboard.click(".graph-processor", "warehouse")
    dashboard.wait_for(".graph-details", "tills.py:")
    assert dashboard.complaints() == []
    assert dashboard.hosts() == {dashboard.address}


@pytest.mark.nightly("unit tests reach all that it reaches")
def test_logs_of_its_processes_are_followed(dashboard: Dashboard, app: str) -> None:
    dashboard.open(f"/apps/{app}/logs")
    dashboard.wait_for(".log .row")
    assert dashboard.complaints() == []


@pytest.mark.nightly(
    "test_connection goes on through a dead console; test_app_master_under_faults simulates the death"
)
def test_the_page_goes_on_when_an_application_master_dies(
    dashboard: Dashboard, cluster: WholeCluster, app: str
) -> None:
    dashboard.open(f"/apps/{app}")
    dashboard.wait_for(".facts", "number 1")
    (master,) = cluster.processes(APP_MASTER)
    os.kill(master, signal.SIGKILL)
    # In between the banner says that it does not answer, unless the next one takes over within a look.
    dashboard.wait_for(".facts", "number 2")
    dashboard.wait_until("document.querySelector('.banner') === null")
    dashboard.wait_for("[aria-label=Fragments] .badge", "running")
    assert dashboard.complaints() == []


@pytest.mark.nightly("test_connection, with a recorded cluster")
def test_a_console_that_dies_leaves_the_page_with_its_age_and_comes_back(
    dashboard: Dashboard, console: ConsoleProcess, app: str
) -> None:
    dashboard.open(f"/apps/{app}")
    dashboard.wait_for("[aria-label=Fragments] tbody th", "daily")
    console.kill()
    dashboard.wait_for(".banner", "The console does not answer")
    dashboard.wait_for("[aria-label=Fragments] tbody th", "daily")
    console.start()
    # Sessions end with the console: the page asks for the new address, and shows the same place with it.
    dashboard.wait_for("main", "Open the address that drivetrain console printed")
    dashboard.entrance = console.entrance
    dashboard.enter()
    dashboard.open(f"/apps/{app}")
    dashboard.wait_for("[aria-label=Fragments] tbody th", "daily")


@pytest.mark.nightly("unit tests reach all that it reaches")
def test_once_the_sink_writes_the_page_says_that_nothing_is_wrong(
    dashboard: Dashboard, cluster: WholeCluster, app: str
) -> None:
    dashboard.open(f"/apps/{app}")
    (cluster.directory / "go").touch()
    dashboard.wait_until("document.querySelector('.verdict.warning, .verdict.critical') === null")
    dashboard.wait_for(".verdict .sentence", "nothing is wrong")


@pytest.mark.nightly("unit tests reach all that it reaches")
def test_an_application_is_killed_from_its_page(
    dashboard: Dashboard, cluster: WholeCluster, app: str
) -> None:
    dashboard.open(f"/apps/{app}")
    dashboard.click(".head button.danger", "Kill")
    dashboard.click("dialog[open] button.danger", "Kill it")
    dashboard.wait_for(".outcome", "It has been killed")
    dashboard.wait_for(".head .badge", "killed")
    wait_for(lambda: not cluster.processes(APP_MASTER), "its processes to end")
    assert dashboard.complaints() == []


@pytest.mark.nightly("test_changes_in_a_cluster reaches what it reaches")
def test_workers_come_and_go_by_the_buttons_of_the_cluster_page(
    browser: Chrome, cluster: WholeCluster
) -> None:
    assert cluster.console is not None
    entrance = cluster.console["entry"]
    shown = Dashboard(browser, entrance.partition("?")[0], entrance, patience_s=240)
    shown.enter()
    shown.begin()
    shown.open("/cluster")
    shown.wait_for("[aria-label=Workers] tbody th", "worker-1")
    shown.click("button.action", "Add a worker")
    shown.click("dialog[open] button", "Add it")
    shown.wait_for(".outcome", "The worker is registered: worker-2")
    shown.wait_for("[aria-label=Workers] tbody th", "worker-2")
    assert "worker-2" in {one.name for one in cluster.client.workers()}
    shown.click("button[aria-label='Remove worker-2']")
    shown.wait_for("dialog[open]", "worker-2")
    shown.click("dialog[open] button.danger", "Remove it")
    shown.wait_for(".outcome", "The worker has ended: worker-2")
    shown.wait_until("!document.querySelector('[aria-label=Workers] tbody').textContent.includes('worker-2')")
    assert [one.name for one in cluster.client.workers()] == ["worker-1"]
    assert shown.complaints() == []


@pytest.mark.nightly("the unit tests of the console's rights")
def test_another_console_of_the_same_cluster_has_no_buttons_for_workers(dashboard: Dashboard) -> None:
    dashboard.open("/cluster")
    dashboard.wait_for("[aria-label=Workers] tbody th", "worker-1")
    assert "Add a worker" not in dashboard.text()
    assert dashboard.script("return document.querySelector('[aria-label^=Remove]')") is None


@pytest.mark.nightly("unit tests reach all that it reaches")
def test_a_custom_application_has_a_page_with_what_it_printed_and_none_of_streams(
    dashboard: Dashboard, cluster: WholeCluster
) -> None:
    command = "command=echo '<b>forty</b>' $((40 + 2)); sleep 8"
    accepted = cluster.submit(str(SHELL), "--detached", "--json", "--set", command)
    assert accepted.returncode == 0, accepted.stderr
    app = json.loads(accepted.stdout)["app_id"]
    dashboard.open(f"/apps/{app}")
    dashboard.wait_for(".facts", "custom: it has an application master of its own, distributed_shell:Shell")
    dashboard.wait_for(".head .badge", "succeeded")
    dashboard.wait_for(".panel pre", "worker-1: <b>forty</b> 42")
    pages = dashboard.script(
        "return [...document.querySelectorAll('nav a')].map((one) => one.getAttribute('href'))"
        ".filter((one) => one.includes(arguments[0])).map((one) => one.split('/').pop())",
        app,
    )
    assert set(pages) == {app, "errors", "logs"}, pages
    dashboard.open(f"/apps/{app}/logs")
    dashboard.wait_for(".log .row")
    assert dashboard.complaints() == []
