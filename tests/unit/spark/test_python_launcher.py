from __future__ import annotations

import os
import stat
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from drivetrain.spark.session import python_launcher
from drivetrain.spark.session.python_launcher import socket_settings, worker_python

PROGRAM = "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


def test_workers_run_this_python_without_the_zipped_pyspark() -> None:
    path = "/x/python/lib/pyspark.zip:/a dir:/x/python/lib/py4j-0.10.9.9-src.zip:/b"
    done = subprocess.run(
        [worker_python(), "-c", PROGRAM, "two words", "*"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.splitlines() == [sys.executable, "/a dir:/b", "['two words', '*']"]


def test_an_empty_path_stays_empty() -> None:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [worker_python(), "-c", PROGRAM], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines()[1] == ""


def test_workers_have_a_daemon_that_ends_them_quietly() -> None:
    done = subprocess.run(
        [worker_python(), "-m", "pyspark.daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "true"},
    )
    assert "worker_daemon.py" in done.stderr, "without a place for its socket it does not start"


def test_there_is_one_launcher_per_process() -> None:
    assert worker_python() == worker_python()


def test_workers_survive_the_ctrl_c_that_a_terminal_sends_to_all() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    done = subprocess.run([worker_python(), "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "alive\n"


def test_sockets_are_where_only_this_user_may_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(python_launcher, "_sockets", [])
    monkeypatch.setattr(python_launcher.tempfile, "gettempdir", lambda: str(long))
    chosen = socket_settings()
    assert socket_settings() == chosen, "there is one folder per process"
    assert chosen["spark.python.unix.domain.socket.enabled"] == "true"
    folder = Path(chosen["spark.python.unix.domain.socket.dir"])
    assert folder.parent == Path("/tmp")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(f"{folder}/.{uuid.uuid4()}.sock") <= 103
    monkeypatch.setattr(python_launcher, "_sockets", [])
    monkeypatch.setattr(python_launcher, "_SHORT", str(long))
    assert socket_settings() == {}, "no path of a socket may be that long"
