"""`drivetrain local`, `master` and `worker` as a user runs them: real processes, and none of them left."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from free_ports import free_port

DEADLINE_S = 180.0
SECRET = "a secret that is long enough for anybody"
WITHOUT_SECRET = ("--set", "cluster.without-secret=true")


def until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def left(directory: Path) -> list[psutil.Process]:
    """The processes that run in this directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


class Shell:
    """Runs commands in a directory of their own, and ends them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []
        self.environ = {name: value for name, value in os.environ.items() if "DRIVETRAIN" not in name}

    def start(self, *arguments: object, **environ: str) -> subprocess.Popen[str]:
        with (self.directory / "stderr").open("a") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "drivetrain.cli", *map(str, arguments)],
                cwd=self.directory,
                env={**self.environ, **environ},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.started.append(process)
        return process

    def run(self, *arguments: object, cwd: Path | None = None, **environ: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "drivetrain.cli", *map(str, arguments)],
            cwd=cwd or self.directory,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return done.returncode, done.stdout, done.stderr

    def local(
        self, *more: object, console: bool = False, **environ: str
    ) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """A cluster with what it said of itself."""
        wanted = ("--console", "--set", f"console.port={free_port()}") if console else ("--no-console",)
        wanted += ("--set", "worker.spare-executors=0", "--port", free_port())
        process = self.start("local", "--json", *wanted, *more, **environ)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (self.directory / "stderr").read_text()
        return process, json.loads(line)

    @property
    def stderr(self) -> str:
        return (self.directory / "stderr").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    until(lambda: left(tmp_path) == [], "no process is left by the test")


def workers_come_and_go(told: dict[str, Any]) -> None:
    """The console adds a worker, and removes one that was there."""
    token = {"Authorization": f"Bearer {told['console']['token']}"}
    api = f"{told['console']['address'].rstrip('/')}/api/v1"
    with httpx.Client(headers=token, timeout=DEADLINE_S) as http:

        def ended(begun: httpx.Response) -> dict[str, Any]:
            assert begun.status_code == 202, begun.text
            where = f"{api}/operations/{begun.json()['operation_id']}"
            until(lambda: http.get(where).json()["state"] != "running", "the operation ends")
            return dict(http.get(where).json())

        added = ended(http.post(f"{api}/workers"))
        assert (added["state"], added["result"]) == ("succeeded", {"worker": "worker-3"}), added
        found = http.get(f"{api}/workers").json()
        assert [(one["name"], one["slots"]) for one in found["workers"]] == [
            ("worker-1", 3),
            ("worker-2", 3),
            ("worker-3", 3),
        ]
        assert found["local"] == ["worker-1", "worker-2", "worker-3"]
        assert http.delete(f"{api}/workers/worker-9").json()["code"] == "not-found"
        removed = ended(http.delete(f"{api}/workers/worker-1"))
        assert (removed["state"], removed["app_id"]) == ("succeeded", None), removed
        assert http.get(f"{api}/workers").json()["local"] == ["worker-2", "worker-3"]
    until(lambda: not psutil.pid_exists(told["processes"][1]["pid"]), "the worker that was removed is gone")


def test_a_local_cluster_is_found_says_who_dies_and_ends_without_a_trace(shell: Shell) -> None:
    process, told = shell.local("--masters", 1, "--workers", 2, "--slots", 3, console=True)
    assert [one["name"] for one in told["processes"]] == ["master-1", "worker-1", "worker-2", "console"]
    for one in told["processes"][:3]:
        assert psutil.Process(one["pid"]).memory_info().rss < 80 * 2**20, one

    code, out, err = shell.run("apps", "--json")  # nobody says where the masters are, nor the secret
    assert (code, json.loads(out)) == (0, {"applications": []}), err
    secret_file = Path(told["secret_file"])
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    secret = secret_file.read_text().strip()
    for log in secret_file.parent.glob("*.log"):
        assert secret not in log.read_text()
    elsewhere = shell.directory / "elsewhere"
    elsewhere.mkdir()
    masters = ",".join(told["masters"])
    code, _, err = shell.run("apps", "--masters", masters, "--set", "client.timeout=3 s", cwd=elsewhere)
    assert code == 2
    assert "secret" in err
    config = shell.directory / ".drivetrain" / "cluster.toml"
    assert shell.run("apps", "--config", config, cwd=elsewhere)[0] == 0

    workers_come_and_go(told)
    os.kill(told["processes"][2]["pid"], signal.SIGKILL)
    until(lambda: "worker-2 has ended (exit code -9)" in shell.stderr, "the death is told")
    assert process.poll() is None

    assert "worker-1 has ended" not in shell.stderr, "it was asked to"

    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 0
    assert not (shell.directory / ".drivetrain" / "cluster.toml").exists()
    until(lambda: left(shell.directory) == [], "nothing is left")


@pytest.mark.nightly("the unit tests of the commands; a local cluster runs in another test of this module")
def test_the_death_of_the_command_is_the_end_of_its_cluster(shell: Shell) -> None:
    process, told = shell.local("--masters", 1, "--workers", 1)
    process.kill()
    process.wait()
    for one in told["processes"]:
        until(lambda pid=one["pid"]: not psutil.pid_exists(pid), f"{one['name']} ends")  # type: ignore[misc]
    until(lambda: left(shell.directory) == [], "nothing is left")


def test_a_port_in_use_is_one_screen_with_the_remedy(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = shell.run("local", "--port", port)
        assert code == 2
        assert f"127.0.0.1:{port}" in err
        assert "--port" in err
        code, _, err = shell.run("master", "--masters", f"127.0.0.1:{port}", *WITHOUT_SECRET)
        assert code == 2
        assert "in use" in err
        assert "Traceback" not in err


@pytest.mark.nightly("the unit tests of the commands; a local cluster runs in another test of this module")
def test_another_secret_ends_a_worker_with_the_reason(shell: Shell) -> None:
    _, told = shell.local("--masters", 1, "--workers", 0, DRIVETRAIN_SECRET=SECRET)
    arguments = ("worker", "--masters", ",".join(told["masters"]), "--directory", "another")
    code, _, err = shell.run(*arguments, DRIVETRAIN_SECRET=SECRET[::-1])
    assert code == 2
    assert "do not accept this process's secret" in err
    assert "DRIVETRAIN_SECRET" in err
    assert SECRET[::-1] not in err


MISTAKES = [
    (("worker", "--masters", "nonsense", *WITHOUT_SECRET), "HOST:PORT"),
    (("worker",), "on loopback as well"),
    (("worker", "--set", "cluster.host=10.0.0.1", *WITHOUT_SECRET), "shared secret"),
    (("worker", "--set", "worker.slot=2"), "worker.slots"),
    (("worker", "--set", "cluster.secret-file=none"), "cannot be read"),
    (("master", "--masters", "127.0.0.1:1,127.0.0.1:1", *WITHOUT_SECRET), "named twice"),
    (("local", "--set", "worker.log-size=many"), "10 MiB"),
    (("worker", "--directory", "/dev/null/worker", *WITHOUT_SECRET), "--directory"),
    (("local", "--port", "17999", "--directory", "/dev/null/cluster"), "--directory"),
]
FORKING = """
import json, os, sys
from drivetrain.cli.main import main
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        for fd, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{number}.{name}", os.O_CREAT | os.O_WRONLY), fd)
        sys.argv = ["drivetrain", *arguments]
        main()
        os._exit(0)
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status))
"""
"""Runs command lines one after the other, each in a process that has imported everything."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str, str]]:
    """Exit code, output and error output of each mistake."""
    directory = tmp_path_factory.mktemp("mistakes")
    done = subprocess.run(
        [sys.executable, "-c", FORKING, json.dumps([arguments for arguments, _ in MISTAKES])],
        cwd=directory,
        env={name: value for name, value in os.environ.items() if "DRIVETRAIN" not in name},
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    codes = map(int, done.stdout.split())
    return [
        (code, (directory / f"{n}.out").read_text(), (directory / f"{n}.err").read_text())
        for n, code in enumerate(codes)
    ]


@pytest.mark.nightly("the unit tests of the commands; a local cluster runs in another test of this module")
@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_mistakes_are_one_screen(told: list[tuple[int, str, str]], number: int) -> None:
    code, out, err = told[number]
    assert (code, out) == (2, "")
    assert MISTAKES[number][1] in err
    assert "remedy" in err
    assert "Traceback" not in err
