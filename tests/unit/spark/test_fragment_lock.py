"""One attempt of a fragment at a time, whatever of its predecessor is still alive."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drivetrain.runtime.fragment_lock import FragmentLock
from drivetrain.runtime.lock_marks import LostLockError

HOLDER = """
import sys
from pathlib import Path
from drivetrain.runtime.fragment_lock import FragmentLock
lock = FragmentLock(Path(sys.argv[1]), "app/f")
assert lock.take(int(sys.argv[2])) is not None
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_held_lock_is_waited_for_and_named_and_free_once_released(tmp_path: Path) -> None:
    first, second = (FragmentLock(tmp_path / "lock", "app/f") for _ in range(2))
    assert first.take() == ""
    held = first.mark
    assert second.take() is None
    assert "still runs this fragment" in str(second.refusal())
    assert str(os.getpid()) in str(second.refusal())
    second.release()
    assert second.mark == held, "whoever only waits does not write that it ran"
    first.release()
    first.release()
    assert second.mark != held, "who runs it, and that nobody does any more, are two marks"
    before = second.mark
    assert second.take() == before
    assert second.mark != before


def test_whoever_gives_up_waiting_for_a_java_process_leaves_the_lock_to_others(
    tmp_path: Path, java: subprocess.Popen[bytes]
) -> None:
    first, second, third = (FragmentLock(tmp_path / "lock", "app/f") for _ in range(3))
    assert first.take(java.pid) == ""
    mark = first.mark
    first._lock.release()  # its process is killed, and its Java process ends later
    assert second.take() is None
    second.release()
    java.kill()
    java.wait(30)
    assert third.take() == mark


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
        assert lock.take() is None
        java.kill()  # not waited for: it is a zombie, which writes nothing any more
        deadline = time.monotonic() + 30
        while lock.take() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
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
    assert FragmentLock(path, "app/f").take() is not None


def test_a_holder_whose_lock_was_given_to_another_is_refused_and_leaves_that_ones_mark(
    tmp_path: Path,
) -> None:
    first, second = (FragmentLock(tmp_path / "lock", "app/f") for _ in range(2))
    assert first.take() is not None
    first.require_own()
    fcntl.flock(first._lock._descriptor, fcntl.LOCK_UN)
    first.require_own()  # nobody has taken it yet
    assert second.take() is not None
    mark = second.mark
    with pytest.raises(LostLockError, match="another process has this fragment") as lost:
        first.require_own()
    assert mark in str(lost.value)
    first.release()
    assert second.mark == mark
    second.require_own()
    (tmp_path / "lock").unlink()
    with pytest.raises(LostLockError, match="its lock's file was deleted"):
        second.require_own()
