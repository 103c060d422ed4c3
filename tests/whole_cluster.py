"""A whole cluster of real processes on this machine, whose boxes a test kills, freezes and starts again.

`drivetrain local` starts it. A box that was killed is started again with the same command line. All processes
carry a mark in their environment, by which the test finds those that are left over, whatever their parents
are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from drivetrain.cluster.client import BlockingClient, connect
from drivetrain.cluster.messages.applications import ApplicationView
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.config import Config
from free_ports import free_ports

T = TypeVar("T")

MARK = "TEST_OF_A_WHOLE_CLUSTER"
SLOW_S = 600.0
SETTINGS = ("--set", "spark.driver-memory=512 MiB", "--set", "spark.shuffle-partitions=2")

APP_MASTER = "drivetrain.cluster.app_master"
EXECUTOR = "drivetrain.cluster.executor"


def wait_for(look: Callable[[], T | None], what: str, within_s: float = SLOW_S) -> T:
    """The first result of `look` that is not None; fails when there is none for too long."""
    end_s = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end_s, f"waited in vain for {what}"
        time.sleep(0.1)


class WholeCluster:
    """A running cluster; its processes work in `directory`."""

    def __init__(
        self, directory: Path, masters: int, workers: int, *, console: bool = False, spares: int = 0
    ) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, MARK: self.mark}
        self.environment.pop("DRIVETRAIN_CLUSTER_MASTERS", None)
        self._log = (directory / "local.log").open("wb")
        command = ["local", "--masters", str(masters), "--workers", str(workers), "--slots", "3"]
        command += ["--console", "--set", "console.port=0"] if console else ["--no-console"]
        for patient in (
            "worker.leader-timeout",
            "app.leader-timeout",
        ):  # three masters may take long to start again
            command += ["--set", f"{patient}=10 min"]
        command += ["--set", f"worker.spare-executors={spares}"]
        self._local = subprocess.Popen(
            [*drivetrain(), *command, "--port", str(free_ports(masters)), "--directory", "boxes", "--json"],
            cwd=directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._local.stdout is not None
        told = self._local.stdout.readline()
        assert told, (directory / "local.log").read_text()
        data = json.loads(told)
        self.masters: list[str] = data["masters"]
        self.console: dict[str, str] | None = data["console"]
        self.pids: dict[str, int] = {box["name"]: box["pid"] for box in data["processes"]}
        self.places: dict[str, str] = {box["place"]: box["name"] for box in data["processes"]}
        self.commands = {name: psutil.Process(pid).cmdline() for name, pid in self.pids.items()}
        self._again: list[subprocess.Popen[bytes]] = []
        self.client: BlockingClient = connect(
            Config.load(
                None,
                {},
                {"cluster.masters": ",".join(self.masters), "cluster.secret-file": data["secret_file"]},
            )
        )

    def close(self) -> None:
        """End everything, with a normal shutdown."""
        self.client.close()
        for process in self._again:
            if process.poll() is None:
                process.terminate()
        for process in self._again:
            process.wait(60)
        self._local.terminate()
        self._local.wait(60)
        self._log.close()

    # ---- boxes

    def kill(self, name: str) -> None:
        """Kill a box with SIGKILL."""
        os.kill(self.pids[name], signal.SIGKILL)
        wait_for(lambda: not _is_alive(self.pids[name]), f"the end of {name}")

    def freeze(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Start a box that was killed, with its own command line, in its own directory."""
        with (self.directory / "boxes" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.commands[name],
                cwd=self.directory,
                env=self.environment,
                # Nothing is written to it; the box lives as long as it stays open.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._again.append(process)
        self.pids[name] = process.pid

    def leader(self) -> str | None:
        """The name of the box of the leading master; None while none leads."""
        try:
            leading = [master.address for master in self.client.masters() if master.leads]
        except Exception:  # noqa: BLE001 - none of them answers
            return None
        return self.places[leading[0]] if leading else None

    def wait_leader(self, *, other_than: str | None = None) -> str:
        """Wait until a master leads that is not `other_than`; returns its box."""

        def look() -> str | None:
            leader = self.leader()
            return None if leader == other_than else leader

        return wait_for(look, "a leader")

    # ---- applications

    def submit(self, file: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `drivetrain submit` to its end."""
        return self.command("submit", file, *SETTINGS, *arguments)

    def command(self, *arguments: str, expect: int | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of `drivetrain`, in the directory of the cluster."""
        ended = subprocess.run(
            [*drivetrain(), *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SLOW_S,
            check=False,
        )
        if expect is not None:
            assert ended.returncode == expect, ended.stdout + ended.stderr
        return ended

    def attached(self, file: str, *arguments: str) -> subprocess.Popen[str]:
        """Start `drivetrain submit --attached`; its standard error is `attached.log`."""
        with (self.directory / "attached.log").open("w") as log:
            return subprocess.Popen(
                [*drivetrain(), "submit", file, "--attached", *SETTINGS, *arguments],
                cwd=self.directory,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def said(self) -> str:
        """The standard error of the attached command so far."""
        return (self.directory / "attached.log").read_text()

    def status(self, app: str) -> tuple[ApplicationView, JobStatus | None]:
        return self.client.status(app)

    def wait_running(self, app: str, *, epoch: int = 1, other_than: int | None = None) -> tuple[int, int]:
        """Wait until an executor other than the process `other_than` runs all fragments; returns its epoch
        and pid."""

        def look() -> tuple[int, int] | None:
            view, status = self.status(app)
            assert not view.state.is_over, (view.why, self.said())
            if status is None or status.epoch < epoch:
                return None
            running = all(fragment.state == "running" for fragment in status.fragments)
            pids = [executor.pid for executor in status.executors if executor.pid not in (None, other_than)]
            alive = [pid for pid in pids if pid is not None and _is_alive(pid)]
            return (status.epoch, alive[0]) if running and status.fragments and alive else None

        return wait_for(look, f"{app} to run")

    def worker_of(self, app: str) -> str:
        """The name of the box of the worker that runs the application master."""
        view = self.client.application(app)
        names = {worker.worker_id: worker.name for worker in self.client.workers()}
        assert view.worker is not None
        return names.get(view.worker, view.worker)

    # ---- what is left

    def processes(self, part: str = "") -> list[int]:
        """The processes of this cluster whose command line contains `part`, except the test's own."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(MARK) == self.mark
                if (
                    is_ours
                    and process.status() != psutil.STATUS_ZOMBIE
                    and part in " ".join(process.cmdline())
                ):
                    found.append(process.pid)
            except psutil.Error:
                continue  # it has ended meanwhile, or belongs to another user
        return found

    def what_is_left(self) -> list[str]:
        """The command lines of the remaining processes of the cluster."""
        left = []
        for pid in self.processes():
            try:
                left.append(f"{pid} {' '.join(psutil.Process(pid).cmdline())[:200]}")
            except psutil.Error:
                continue
        return left


@contextmanager
def whole_cluster(
    directory: Path, *, masters: int = 3, workers: int = 2, console: bool = False, spares: int = 0
) -> Iterator[WholeCluster]:
    """A cluster for a test; afterwards no process of it is left."""
    cluster = WholeCluster(directory, masters, workers, console=console, spares=spares)
    try:
        yield cluster
    finally:
        cluster.close()
        try:
            wait_for(lambda: not cluster.processes(), "the end of all processes", 90)
        except AssertionError:
            left = cluster.what_is_left()
            for pid in cluster.processes():
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"left over: {left}") from None


def drivetrain() -> list[str]:
    return [sys.executable, "-m", "drivetrain.cli"]


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
