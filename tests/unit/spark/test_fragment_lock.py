"""One attempt of a fragment at a time, whatever of its predecessor is still alive."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.errors import UnavailableError
from drivetrain.runtime.fragment_lock import FragmentLock

HOLDER = """
import sys
from pathlib import Path
from drivetrain.runtime.fragment_lock import FragmentLock
lock = FragmentLock(Path(sys.argv[1]), "app/f")
lock.acquire(0, int(sys.argv[2]))
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def java() -> Iterator[subprocess.Popen[bytes]]:
    """Something that stands for a holder's Java process."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate(timeout=60)


def test_a_held_lock_is_waited_for_and_named_and_free_once_released(tmp_path: Path) -> None:
    first, second = (FragmentLock(tmp_path / "lock", "app/f") for _ in range(2))
    assert first.acquire(0) == ""
    held = first.mark
    with pytest.raises(UnavailableError, match="still runs this fragment") as caught:
        second.acquire(0.1)
    assert str(os.getpid()) in str(caught.value)
    first.release()
    first.release()
    assert second.mark != held, "who runs it, and that nobody does any more, are two marks"
    before = second.mark
    assert second.acquire(0) == before
    assert second.mark != before


def test_waiting_ends_when_it_is_given_up(tmp_path: Path) -> None:
    first, second = (FragmentLock(tmp_path / "lock", "app/f") for _ in range(2))
    first.acquire(0)
    asked = iter([False, True])
    with pytest.raises(UnavailableError):
        second.acquire(1_000_000, given_up=lambda: next(asked))


def test_a_killed_holder_has_the_lock_until_its_java_process_has_ended(
    tmp_path: Path, java: subprocess.Popen[bytes]
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock"), str(java.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        lock = FragmentLock(tmp_path / "lock", "app/f")
        with pytest.raises(UnavailableError):
            lock.acquire(0.2)
        java.kill()  # not waited for: it is a zombie, which writes nothing any more
        lock.acquire(30)
    finally:
        holder.kill()
        holder.communicate(timeout=60)


@pytest.mark.parametrize("change", ["host", "java_started", "no java", "torn"])
def test_whoever_cannot_be_alive_here_is_not_waited_for(
    tmp_path: Path, java: subprocess.Popen[bytes], change: str
) -> None:
    path = tmp_path / "lock"
    told = {"host": socket.gethostname(), "pid": 1, "id": "x", "java": java.pid, "java_started": "1"}
    if change == "host":
        told["host"] = "elsewhere"
    if change == "no java":
        del told["java"]
    text = json.dumps(told)
    path.write_text(text[:-9] if change == "torn" else text)
    FragmentLock(path, "app/f").acquire(0)
