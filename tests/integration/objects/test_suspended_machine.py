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
TAKEN_OVER = 4


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
@pytest.mark.parametrize("shown", [1, 3, 6])
def test_a_process_that_wakes_when_another_has_continued_changes_nothing(
    s3: S3Server, tmp_path: Path, shown: int
) -> None:
    bucket = s3.bucket(f"suspended-{shown}")
    settings = {"rows": str(ROWS), "bucket": f"s3://{bucket.name}"}

    def sets(state: str) -> dict[str, str]:
        return s3.sets() | {
            "state.dir": str(tmp_path / state),
            "checkpoint.copy-to": f"s3://{bucket.name}/copies",
            "checkpoint.interval": "300 ms",
            "spark.master": "local[1]",
            "run.max-batch-rows": "40",
        }

    def files() -> int:
        return len(list((bucket / "plain").glob("part-*")))

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
        assert ids_in(bucket / kind) == list(range(ROWS)), kind
