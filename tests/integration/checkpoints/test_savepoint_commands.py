"""`drivetrain savepoint` of a run in another process; `drivetrain run --from` with another Spark master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_checkpoints_in_a_cluster import CHAINED, check_output

from drivetrain.runtime.checkpoints.savepoint_manifest import read_manifest

SPARK = ("--set", "spark.driver-memory=512 MiB", "--set", "run.max-batch-rows=200")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "drivetrain.cli", *arguments]


@pytest.mark.timeout(600)
@pytest.mark.nightly("three processes")
def test_a_run_is_saved_by_a_command_and_goes_on_with_other_cores(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(CHAINED)
    settings = ("--set", "checkpoint.mode=on", "--set", "checkpoint.interval=300 ms", *SPARK)
    old = ("--set", "out=old", "--set", "spark.master=local[2]", "--set", "spark.shuffle-partitions=3")
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(
            command("run", "chained.py", *old, *settings), cwd=tmp_path, stdout=log, stderr=log
        )
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("old/short/part-*.csv")):
        assert running.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.1)
    saved = subprocess.run(
        command("savepoint", "chained", "--to", "saved", "--json", "--timeout", "2 min"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert saved.returncode == 0, saved.stderr
    manifest = read_manifest(tmp_path / "saved")
    assert json.loads(saved.stdout)["checkpoint"] == manifest.record.txid
    assert manifest.shuffle_partitions["short"] == 3
    for name in ("short", "long"):  # what it has published since is its own
        last = manifest.record.fragments[name].sinks[f"to-{name}"]
        for file in (tmp_path / "old" / name).glob("part-*.csv"):
            if int(file.stem.rpartition("-")[2]) > last:
                file.unlink()
    new = ("--set", "out=new", "--set", "rate=0", "--set", "spark.master=local[1]")
    moved = subprocess.run(
        command("run", "chained.py", *new, *settings, "--state-dir", "elsewhere", "--from", "saved"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert moved.returncode == 0, moved.stderr
    assert "continues from the savepoint" in moved.stderr
    assert "short in 3" in moved.stderr
    check_output(tmp_path / "old", tmp_path / "new")
