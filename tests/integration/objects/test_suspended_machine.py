"""A process is suspended, taken for lost, and wakes while another one has continued its application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from object_store import S3Server

HERE = Path(__file__).parent
ROWS = 900
KINDS = ("plain", "rolled", "parted")
TAKEN_OVER = LOST_LOCK = 4


class Started:
    """`drivetrain run` in a process group of its own."""

    def __init__(self, sets: dict[str, str], settings: dict[str, str], log: Path) -> None:
        command = [str(Path(sys.executable).with_name("drivetrain")), "run"]
        command.append(str(HERE / "suspended_application.py"))
        for name, value in (sets | settings).items():
            command += ["--set", f"{name}={value}"]
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it has started."""
        os.killpg(self.process.pid, number)

    def wait_until(self, what: Callable[[], bool]) -> None:
        until_s = time.monotonic() + 180
        while not what():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until_s, self.log.read_text()
            time.sleep(0.05)

    def end(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()


def ids_in(folder: Path) -> list[int]:
    return sorted(
        id for file in folder.rglob("part-*.parquet") for id in pq.read_table(file)["id"].to_pylist()
    )


@pytest.mark.nightly("test_suspended_file_sink suspends processes at every request to a store")
@pytest.mark.parametrize(
    ("shown", "place"), [(1, "store"), (3, "store"), (6, "store"), (3, "disk"), (3, "state")]
)
def test_a_process_that_wakes_when_another_has_continued_changes_nothing(
    s3: S3Server, tmp_path: Path, shown: int, place: str
) -> None:
    """Its results are in an object store, or on a disk that both machines share; or its state is in the
    store, too, and its lease expires."""
    bucket = s3.bucket(f"suspended-{shown}-{place}")
    output = tmp_path / "out" if place == "disk" else bucket
    settings = {"rows": str(ROWS), "bucket": str(output) if place == "disk" else f"s3://{bucket.name}"}

    def sets(state: str) -> dict[str, str]:
        copied = {"state.dir": str(tmp_path / state), "checkpoint.copy-to": f"s3://{bucket.name}/copies"}
        remote = {"state.dir": f"s3://{bucket.name}/states", "state.work-dir": str(tmp_path / state)}
        chosen = remote if place == "state" else copied
        return {
            **s3.sets(),
            **chosen,
            "checkpoint.interval": "300 ms",
            "spark.master": "local[1]",
            "run.max-batch-rows": "40",
        }

    def files() -> int:
        return len(list((output / "plain").glob("part-*")))

    former = Started(sets("former"), settings, tmp_path / "former.log")
    try:
        former.wait_until(lambda: files() >= shown)
        former.signal(signal.SIGSTOP)
        before = files()
        successor = Started(sets("successor"), settings, tmp_path / "successor.log")
        try:
            successor.wait_until(lambda: files() > before + 1)
            former.signal(signal.SIGCONT)
            assert successor.process.wait(timeout=240) == 0, successor.log.read_text()
        finally:
            successor.end()
        assert former.process.wait(timeout=60) == TAKEN_OVER, former.log.read_text()
    finally:
        former.end()
    for kind in KINDS:
        assert ids_in(output / kind) == list(range(ROWS)), kind


@pytest.mark.nightly("test_lost_locks suspends a process at every effect, and takes its lock away")
@pytest.mark.parametrize("mode", ["off", "on"])
def test_a_run_that_wakes_without_its_lock_changes_nothing(tmp_path: Path, mode: str) -> None:
    sets = {
        "state.dir": str(tmp_path / "state"),
        "checkpoint.mode": mode,
        "checkpoint.interval": "300 ms",
        "spark.master": "local[1]",
        "run.max-batch-rows": "40",
    }
    settings = {"rows": str(ROWS), "bucket": str(tmp_path / "out")}

    def files() -> int:
        return len(list((tmp_path / "out" / "plain").glob("part-*")))

    former = Started(sets, settings, tmp_path / "former.log")
    try:
        former.wait_until(lambda: files() >= 3)
        former.signal(signal.SIGSTOP)
        locks = [*(tmp_path / "state").glob("suspended-*/lock"), *(tmp_path / "out").rglob("*.lock")]
        for lock in locks:
            lock.unlink()  # as if a network file system had given them to others
        before = files()
        successor = Started(sets, settings, tmp_path / "successor.log")
        try:
            successor.wait_until(lambda: files() > before + 1)
            former.signal(signal.SIGCONT)
            assert former.process.wait(timeout=60) == LOST_LOCK, former.log.read_text()
            assert successor.process.poll() is None
            assert successor.process.wait(timeout=240) == 0, successor.log.read_text()
        finally:
            successor.end()
        assert "another process has this application" in former.log.read_text()
    finally:
        former.end()
    for kind in KINDS:
        assert ids_in(tmp_path / "out" / kind) == list(range(ROWS)), kind
