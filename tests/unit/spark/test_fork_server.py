"""A module that Spark starts runs in a fork, as it would in a Python of its own; see `fork_server`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drivetrain.spark.session.python_launcher import worker_python

TELLS = """
import json, os, random, sys
import numpy
told = {
    "name": __name__, "spec": __spec__.name, "words": sys.argv[1:], "directory": os.getcwd(),
    "path": sys.path, "variable": os.environ.get("MARK"), "given": sys.stdin.read(),
    "hash": hash("a text"), "is_fork": "pyspark.worker" in sys.modules,
    "drawn": [random.random(), numpy.random.random()],
}
print(json.dumps(told))
print("on standard error", file=sys.stderr)
sys.exit(int(os.environ.get("CODE", "0")))
"""
WAITS = """
import os, pathlib, time
pathlib.Path(os.environ["MARK"]).write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "telling.py").write_text(TELLS)
    (folder / "waiting.py").write_text(WAITS)
    (folder / "failing.py").write_text("raise ValueError('told')")
    (folder / "killed.py").write_text("import os; os.kill(os.getpid(), 9)")
    (folder / "interrupted.py").write_text("import os; os.kill(os.getpid(), 2); print('alive')")
    return folder


def environment(modules: Path, **variables: str) -> dict[str, str]:
    known = {"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": str(modules)}
    return known | variables


def ran(modules: Path, module: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [worker_python(), "-m", module, *words],
        capture_output=True,
        text=True,
        input="given",
        timeout=120,
        check=False,
        cwd=modules.parent,
        env=environment(modules, **variables),
    )


def told(modules: Path, *words: str, **variables: str) -> dict[str, Any]:
    done = ran(modules, "telling", *words, **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def path_of_a_python(modules: Path) -> list[str]:
    """The import path of a Python of its own, as `python -m` has it."""
    (modules / "listing.py").write_text("import json, sys; print(json.dumps(sys.path))")
    line = [sys.executable, "-m", "listing"]
    done = subprocess.run(
        line, capture_output=True, check=True, cwd=modules.parent, env=environment(modules), timeout=120
    )
    found: list[str] = json.loads(done.stdout)
    return found


def pid_in(file: Path) -> int:
    deadline = time.monotonic() + 100
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(file.read_text())


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} has not ended")


def test_a_fork_has_what_its_client_has_and_nothing_of_another(modules: Path) -> None:
    for mark in ("one", "an\nother=one"):
        found = told(modules, "two words", "*", MARK=mark)
        assert found["is_fork"]
        assert (found["name"], found["spec"]) == ("__main__", "telling")
        assert found["words"] == ["two words", "*"]
        assert found["directory"] == str(modules.parent)
        assert found["path"] == path_of_a_python(modules)
        assert (found["variable"], found["given"]) == (mark, "given")
    assert told(modules)["variable"] is None


def test_output_and_exit_codes_are_those_of_the_fork(modules: Path) -> None:
    done = ran(modules, "telling", CODE="7")
    assert (done.returncode, done.stderr) == (7, "on standard error\n")
    failed = ran(modules, "failing")
    assert failed.returncode == 1
    assert failed.stderr.endswith("ValueError: told\n")
    assert ran(modules, "killed").returncode == 128 + signal.SIGKILL
    assert ran(modules, "interrupted").stdout == "alive\n"


def test_forks_draw_different_numbers(modules: Path) -> None:
    first, second = told(modules)["drawn"], told(modules)["drawn"]
    assert all(a != b for a, b in zip(first, second, strict=True))


def test_another_seed_of_hashes_gets_a_python_of_its_own(modules: Path) -> None:
    found = told(modules, "word", PYTHONHASHSEED="7")
    assert not found["is_fork"]
    assert found["words"] == ["word"]
    assert found["hash"] != told(modules)["hash"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_a_client_ends_the_fork(modules: Path, how: signal.Signals) -> None:
    mark = modules / "pid"
    client = subprocess.Popen(
        [worker_python(), "-m", "waiting"], env=environment(modules, MARK=str(mark)), stdin=subprocess.DEVNULL
    )
    fork = pid_in(mark)
    assert fork != client.pid
    client.send_signal(how)
    client.wait(100)
    wait_gone(fork)


OWNER = """
import subprocess, sys
from drivetrain.spark.session import python_launcher
started = []
class Noting(subprocess.Popen):
    def __init__(self, *given, **more):
        super().__init__(*given, **more)
        started.append(self.pid)
python_launcher.subprocess.Popen = Noting
print(python_launcher.worker_python(), *started, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner() -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_without_its_server_a_client_runs_the_module_itself(modules: Path, owner: Any) -> None:
    program, server = owner.stdout.readline().split()
    os.kill(int(server), signal.SIGKILL)
    wait_ended(int(server))
    line = [program, "-m", "telling", "word"]
    done = subprocess.run(
        line, capture_output=True, text=True, input="", check=True, env=environment(modules), timeout=120
    )
    found = json.loads(done.stdout)
    assert not found["is_fork"]
    assert found["words"] == ["word"]


def test_the_server_ends_with_its_owner_however_that_ends(owner: Any) -> None:
    _, server = owner.stdout.readline().split()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait(100)
    wait_gone(int(server))


def wait_ended(pid: int) -> None:
    """Until it has ended; nobody has reaped it perhaps."""
    deadline = time.monotonic() + 100
    while "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
