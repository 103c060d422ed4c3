"""The machine of an executor and its application master is suspended, loses its locks, and wakes while their
successors run: nothing that it still writes counts.

The machine is a worker with all that it has started. Deleting the files of the locks stands for a network
file system that gives the locks of a machine that it no longer hears to others.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from whole_cluster import APP_MASTER, WholeCluster, wait_for, whole_cluster

pytestmark = pytest.mark.timeout(1800)

APPLICATION = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("woken")
place = app.setting("place")
source = sources.json(place + "/in", schema="ts timestamp, n bigint", event_time="ts", watch=True)
read = app.read(source, name="read")
read.sink(sinks.parquet(place + "/plain"), name="plain")
read.sink(sinks.parquet(place + "/rolled", roll=("8 KiB", "2 s")), name="rolled")
minutes = read.with_columns(key="n % 3").group_by("key").window(windows.tumbling("1 min"))
counted = minutes.aggregate(step="minutes", count=agg.count(), largest=agg.max("n"))
counted.cut().filter("count > 0", name="kept").sink(sinks.parquet(place + "/minutes"), name="out")
"""
FILES, ROWS = 60, 10
"""How many files are read, each with as many messages, of a second each."""


class Fed:
    """The application's input: one file after the other."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = 0
        (place / "in").mkdir(parents=True)

    def feed(self, *, is_last: bool = False) -> None:
        numbers = range(self.files * ROWS, self.files * ROWS + ROWS)
        rows = [{"ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(n)), "n": n} for n in numbers]
        if is_last:
            rows = [{"ts": "2100-01-01T00:00:00Z", "n": -1}]
        aside = self.place / "aside"
        aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
        aside.rename(self.place / "in" / f"{self.files:05d}.jsonl")
        self.files += 1

    def shown(self, sink: str) -> list[dict[str, object]]:
        files = (self.place / sink).glob("part-*.parquet")
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def numbers(self, sink: str) -> list[int]:
        return sorted(int(str(row["n"])) for row in self.shown(sink) if row["n"] != -1)


def machine_of(cluster: WholeCluster, pid: int) -> tuple[str, list[psutil.Process]]:
    """The worker that has started a process, and all its processes."""
    for name, box in cluster.pids.items():
        processes = [psutil.Process(box), *psutil.Process(box).children(recursive=True)]
        if pid in [process.pid for process in processes]:
            return name, processes
    raise AssertionError(f"nobody has started process {pid}")


def send(machine: list[psutil.Process], number: int) -> None:
    for process in machine:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            os.kill(process.pid, number)


@pytest.fixture
def cluster(tmp_path: Path) -> object:
    (tmp_path / "woken.py").write_text(APPLICATION)
    with whole_cluster(tmp_path, masters=1, workers=3) as made:
        yield made


@pytest.mark.nightly("test_lost_locks suspends processes at every effect; test_attempts_under_faults")
@pytest.mark.parametrize(("suspended", "mode"), [("executor", "off"), ("both", "on"), ("both", "off")])
def test_a_machine_that_wakes_when_others_have_its_application_changes_nothing(
    cluster: WholeCluster, tmp_path: Path, suspended: str, mode: str
) -> None:
    fed = Fed(tmp_path / "place")
    fed.feed()
    cluster.submit(
        "woken.py",
        "--detached",
        *("--set", f"place={fed.place}", "--set", f"checkpoint.mode={mode}"),
        *("--set", "checkpoint.interval=1 s", "--set", "restart.delay=100 ms"),
        *("--set", f"state.dir={tmp_path / 'state'}"),
    )
    app_id = wait_for(
        lambda: next((v.app_id for v in cluster.client.applications() if v.name == "woken"), None),
        "the application",
    )
    epoch, pid = cluster.wait_running(app_id)
    while len(fed.numbers("plain")) < 100:
        fed.feed()
        time.sleep(0.2)
    worker, machine = machine_of(cluster, pid)
    (app_master,) = cluster.processes(APP_MASTER)
    if suspended == "both":
        machine += machine_of(cluster, app_master)[1]
        epoch += 1
    send(machine, signal.SIGSTOP)
    try:
        for lock in [*(tmp_path / "state").rglob("*lock"), *fed.place.rglob("*.lock")]:
            lock.unlink()
        cluster.wait_running(app_id, epoch=epoch, other_than=pid)
        before = len(fed.numbers("plain"))
        while len(fed.numbers("plain")) < before + 80:
            fed.feed()
            time.sleep(0.2)
    finally:
        send(machine, signal.SIGCONT)
    while fed.files < FILES:
        fed.feed()
        time.sleep(0.2)
    wait_for(lambda: not psutil.pid_exists(pid), "the executor that woke to end")
    fed.feed(is_last=True)
    expected = list(range((fed.files - 1) * ROWS))
    windows = Counter((n % 3, n // 60) for n in expected)

    def is_whole() -> bool:
        minutes = [row for row in fed.shown("minutes") if row["largest"] != -1]
        return len(fed.numbers("rolled")) >= len(expected) and len(minutes) >= len(windows)

    wait_for(is_whole, "all results", 300)
    cluster.command("kill", app_id, "--wait", expect=0)
    assert fed.numbers("plain") == expected
    assert fed.numbers("rolled") == expected
    minutes = [row for row in fed.shown("minutes") if row["largest"] != -1]
    found = Counter({(row["key"], int(str(row["largest"])) // 60): int(str(row["count"])) for row in minutes})
    assert len(minutes) == len(windows)
    assert found == windows
    logs = (tmp_path / "boxes" / worker / "logs").rglob("executor-*.log")
    assert any(" ending: " in log.read_text() for log in logs), "it has said why it ends"
