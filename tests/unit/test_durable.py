"""Files that appear whole and stay, and a full disk, whatever is written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drivetrain import durable, file_lock
from drivetrain.config import Config
from drivetrain.core.state.two_state import Picture
from drivetrain.durable import write_whole
from drivetrain.errors import DiskFullError, DrivetrainError, OutputError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.state_pictures import Pictures
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.measure.batch_limit import BatchLimit

HOLDER = """
import sys
from pathlib import Path
from drivetrain.file_lock import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.take(shared=sys.argv[2] == "shared"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synced and renamed, in order, by name."""
    made: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        made.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def replaced(source: Any, target: Any) -> None:
        made.append(("replace", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return made


def test_a_file_is_synced_before_it_gets_its_name_and_its_directory_afterwards(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    durable.write_whole(tmp_path / "notes", b"one")
    assert calls == [("sync", ".notes.tmp"), ("replace", "notes"), ("sync", tmp_path.name)]
    calls.clear()
    durable.write_whole(tmp_path / "notes", b"two", synced=False)
    assert calls == [("replace", "notes")]
    assert os.listdir(tmp_path) == ["notes"]
    assert (tmp_path / "notes").read_bytes() == b"two"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    durable.write_whole(tmp_path / "notes", b"one")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        notes = tmp_path / "notes"
        with (
            pytest.raises(DiskFullError, match="no space left to write notes") as raised,
            durable.writing("notes", notes),
        ):
            durable.write_whole(notes, b"two")
    assert raised.value.exit_code == 4
    assert raised.value.remedy
    assert os.listdir(tmp_path) == ["notes"]
    assert (tmp_path / "notes").read_bytes() == b"one"


def test_what_is_refused_for_another_reason_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notes = tmp_path / "file" / "notes"
    with (
        pytest.raises(OutputError, match="notes cannot be written") as raised,
        durable.writing("notes", notes, if_refused="choose another"),
    ):
        durable.write_whole(notes, b"")
    assert raised.value.remedy == "choose another"


@pytest.mark.parametrize("text", ["No space left on device", "[Errno 28] x", "Disk quota exceeded"])
def test_arrow_says_in_words_that_a_disk_is_full(text: str) -> None:
    assert durable.is_full(OSError(text))
    assert durable.is_full(pa.ArrowIOError(text))
    assert not durable.is_full(ValueError(text))
    assert not durable.is_full(OSError("no such luck"))


def _clock(home: Path) -> None:
    publish_clock(home / "clock", 5)


def _pictures(home: Path) -> None:
    Pictures(home, 0).keep([Picture(5, {})], 0, 10)


def _batches(home: Path) -> None:
    BatchLimit(home, {"in": 100}, RunningConfig(home, Config())).record([1.0], 10**9)


def _snapshot(home: Path) -> None:
    (home / "own").mkdir()
    (home / "own" / "note").write_text("x")
    Snapshots(home / "snapshots").take("f", 1, home / "own", -1)


@pytest.mark.parametrize("write", [_clock, _pictures, _batches, _snapshot])
def test_a_full_disk_is_our_error_wherever_the_state_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in ("fsync", "replace"):
        monkeypatch.setattr(os, step, full)
    with pytest.raises(DrivetrainError) as raised:
        write(tmp_path)
    assert type(raised.value) is DiskFullError


# -- locks ----------------------------------------------------------------------------------------------


def test_a_lock_excludes_others_until_its_holder_is_killed(tmp_path: Path) -> None:
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock"), "alone"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    mine = FileLock(tmp_path / "lock")
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "True\n"
        assert not mine.take()
        assert not mine.take(shared=True)
        held.send_signal(signal.SIGKILL)
        held.wait(10)
        assert mine.take()
    finally:
        held.kill()
        held.communicate(timeout=60)


def test_who_waits_for_a_lock_is_shown_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_lock, "PATIENCE_S", 0.05)
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path), "alone"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        holder.send_signal(signal.SIGSTOP)
        mine = FileLock(path)
        waiting = threading.Thread(target=mine.wait)
        waiting.start()
        deadline = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        holder.kill()
    waiting.join(60)
    assert mine.is_kept()
    held = f"held by process {holder.pid}, which is suspended: continue or end it"
    assert caplog.messages == [f"this process waits for the lock {path}, {held}"]
    mine.release()
    assert mine.holder() == "a process that cannot be seen from here; it may be on another machine"


def test_a_shared_lock_lets_others_share_and_nobody_be_alone(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.take()
    assert not second.take(shared=True)
    first.wait(shared=True)
    assert second.take(shared=True)
    assert not second.take()
    first.release()
    first.release()
    assert second.take()
    second.note("mine, and longer")
    second.note("mine")
    assert (tmp_path / "lock").read_text() == "mine"
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("shared", [False, True])
def test_a_holder_notices_that_its_lock_is_another_file_or_has_another_holder(
    tmp_path: Path, shared: bool
) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(path), FileLock(path)
    assert not first.is_kept()
    assert first.take(shared=shared)
    first.note("first")
    assert first.is_kept()
    assert not second.take()
    path.unlink()
    assert not first.is_kept()
    assert second.take(), "it was waiting for the file that is gone, and takes the one that has the name"
    assert second.is_kept()
    assert not first.is_kept()
    first.note("this is written to the file that is gone")
    assert path.read_text() == ""
    assert second.is_kept()
    fcntl.flock(second._descriptor, fcntl.LOCK_UN)  # as a server does for a machine that it no longer hears
    third = FileLock(path)
    assert third.take()
    third.note("third")
    assert not second.is_kept()
    third.release()
    assert not third.is_kept()


def test_a_file_is_not_replaced_when_its_writer_may_not_write_it_any_more(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    write_whole(path, b"the successor's")

    def require() -> None:
        assert (tmp_path / f".notes.{os.getpid()}-{threading.get_ident()}.tmp").read_bytes() == b"old"
        raise OutputError("another process has it")

    with pytest.raises(OutputError, match="another process"):
        write_whole(path, b"old", require=require)
    assert [one.name for one in tmp_path.iterdir()] == ["notes"]
    assert path.read_bytes() == b"the successor's"
