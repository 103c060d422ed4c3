"""Logs of a worker's processes: bounded, readable at any position, and only where they belong."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from drivetrain.cluster.worker import worker_logs
from drivetrain.cluster.worker.worker_logs import WorkerLogs, is_plain_name


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_log_is_cut_into_files_named_by_their_position_and_the_oldest_go(tmp_path: Path) -> None:
    logs = WorkerLogs(tmp_path, size_bytes=10, count=2)
    writer = logs.writer("app-1", "executor-1")
    for number in range(6):
        writer.write(f"{number:04d}\n".encode())
    assert files(tmp_path / "app-1") == ["executor-1.000000000010.log", "executor-1.000000000020.log"]
    assert logs.read("app-1", "executor-1", 0, 100).offset == 10
    piece = logs.read("app-1", "executor-1", 12, 11)
    assert (piece.data, piece.next_offset) == (b"02\n0003\n000", 23)
    assert logs.read("app-1", "executor-1", None, 7).data == b"4\n0005\n"
    assert logs.read("app-1", "executor-1", 999, 10).data == b""
    assert logs.read("app-1", "nobody", None, 10).data == b""


@pytest.mark.parametrize("seed", range(30))
def test_what_is_read_is_what_was_written_there(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    logs = WorkerLogs(tmp_path, size_bytes=rng.randint(1, 50), count=rng.randint(2, 4))
    writer = logs.writer("app", "p")
    written = b""
    for _ in range(60):
        if rng.random() < 0.1:
            writer.close()
            writer = logs.writer("app", "p")  # a new worker goes on behind what is there
        data = rng.randbytes(rng.randint(1, 40))
        writer.write(data)
        written += data
        offset = rng.choice([None, rng.randint(0, len(written) + 10)])
        piece = logs.read("app", "p", offset, rng.randint(1, 60))
        assert piece.data == written[piece.offset : piece.next_offset]
        if offset is not None and piece.data:
            assert piece.offset >= offset
    assert writer.dropped_bytes == 0


def test_reading_while_another_thread_writes_and_rotates_never_fails(tmp_path: Path) -> None:
    logs = WorkerLogs(tmp_path, size_bytes=64, count=2)
    line = b"0123456789abcdef"

    def write() -> None:
        writer = logs.writer("app", "p")
        for _ in range(3_000):
            writer.write(line)

    thread = threading.Thread(target=write)
    thread.start()
    offset = 0
    while thread.is_alive():
        piece = logs.read("app", "p", offset, 1_000)
        assert piece.offset >= offset
        whole = line * (len(piece.data) // len(line) + 2)
        assert whole[piece.offset % len(line) :].startswith(piece.data)
        offset = piece.next_offset
        logs.processes("app")
    thread.join()
    assert logs.read("app", "p", None, 1_000).next_offset == 3_000 * len(line)


@pytest.mark.parametrize("deleted", [1, 2, 3])
@pytest.mark.parametrize("offset", [0, 25, None])
def test_files_that_are_deleted_while_the_log_is_read_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: int, offset: int | None
) -> None:
    logs = WorkerLogs(tmp_path, size_bytes=10, count=3)
    writer = logs.writer("app", "p")
    for tens in range(3):
        writer.write(bytes(range(tens * 10, tens * 10 + 10)))
    listed = worker_logs._files(tmp_path / "app", "p")
    for _, path in listed[:deleted]:
        path.unlink()
    monkeypatch.setattr(worker_logs, "_files", lambda *_: listed)
    for most in (7, 100):
        piece = logs.read("app", "p", offset, most)
        assert piece.offset >= min(deleted, 2) * 10
        assert piece.data == bytes(range(piece.offset, piece.next_offset))
        assert piece.data or deleted == 3


def test_a_full_disk_drops_output_and_raises_nothing(tmp_path: Path) -> None:
    logs = WorkerLogs(tmp_path, size_bytes=10, count=2)
    writer = logs.writer("app", "p")
    (tmp_path / "app").rmdir()
    (tmp_path / "app").write_text("no directory, so nothing can be created in it")
    writer.write(b"lost")
    writer.write(b"lost too")
    assert writer.dropped_bytes == len(b"lostlost too")
    (tmp_path / "app").unlink()
    (tmp_path / "app").mkdir()
    writer.write(b"there again")
    assert logs.read("app", "p", 0, 100).data == b"there again"


def test_processes_are_listed_by_who_wrote_last_and_old_logs_go(tmp_path: Path) -> None:
    logs = WorkerLogs(tmp_path, size_bytes=100, count=2)
    for process in ("b", "a"):
        logs.writer("app", process).write(b"x")
    for name, age in (("b", 100), ("a", 50)):
        path = tmp_path / "app" / f"{name}.000000000000.log"
        time_ns = path.stat().st_mtime_ns - age * 10**9
        os.utime(path, ns=(time_ns, time_ns))
    assert logs.processes("app") == ["b", "a"]
    logs.remove_old(70, frozenset({("app", "b")}))
    assert logs.processes("app") == ["b", "a"]
    logs.remove_old(70, frozenset())
    assert logs.processes("app") == ["a"]
    logs.remove_old(10, frozenset())
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("name", ["..", "../x", "/etc", "", "a/b", ".hidden", "a\0b", "-", "x" * 201])
def test_names_that_are_no_files_are_refused(tmp_path: Path, name: str) -> None:
    assert not is_plain_name(name)
    assert WorkerLogs(tmp_path / "logs", 10, 2).processes(name) == []


def test_a_log_is_rotated_beyond_a_million_megabytes(tmp_path: Path) -> None:
    logs = WorkerLogs(tmp_path, 10, 2)
    (tmp_path / "app-1").mkdir()
    (tmp_path / "app-1" / "executor-1.999999999995.log").write_bytes(b"12345")
    writer = logs.writer("app-1", "executor-1")
    for _ in range(4):
        writer.write(b"0123456789")
    writer.close()
    names = sorted((tmp_path / "app-1").iterdir())
    assert [path.name for path in names] == [
        "executor-1.1000000000020.log",
        "executor-1.1000000000030.log",
    ]
    assert logs.processes("app-1") == ["executor-1"]
    assert logs.read("app-1", "executor-1", None, 5).offset == 1_000_000_000_035
    assert logs.read("app-1", "executor-1", 0, 100).offset == 1_000_000_000_020
