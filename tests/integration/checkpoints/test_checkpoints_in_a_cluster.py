"""Checkpoints between two executors: killed processes, a lost state, and a savepoint that moves elsewhere."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.runtime.checkpoints.savepoint_manifest import verified
from whole_cluster import APP_MASTER, EXECUTOR, WholeCluster, wait_for, whole_cluster

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.nightly("whole clusters"),
]

ROWS = 6_000
SEED = int(os.environ.get("DRIVETRAIN_SEED", "1"))

CHAINED = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("chained")
out, rate = app.setting("out"), float(app.setting("rate", "250"))
made = app.read(
    sources.generate(
        rows=6_000,
        rate_per_s=rate or None,
        start="1970-01-01T00:00:00Z",
        every="100 ms",
        columns={"key": "element_at(array('a', 'b', 'c', 'd'), cast(id % 4 as int) + 1)"},
    ),
    name="made",
)
short = made.group_by("key").window(windows.tumbling("10 s")).aggregate(step="short", n=agg.count())
short.sink(sinks.csv(out + "/short", together=out), name="to-short")
long = short.group_by("key").window(windows.tumbling("1 min")).aggregate(step="long", n=agg.sum("n"))
long.sink(sinks.csv(out + "/long", together=out), name="to-long")
"""

SETTINGS = {
    "app.executors": "2",
    "app.executor-slots": "1",
    "checkpoint.mode": "on",
    "checkpoint.interval": "300 ms",
    "run.max-batch-rows": "200",
    "restart.strategy": "fixed-delay",
    "restart.delay": "100 ms",
    "restart.attempts": "1000",
    "restart.job-attempts": "1000",
}


def submit(cluster: WholeCluster, *more: str, **settings: str) -> str:
    given = [t for name, value in {**SETTINGS, **settings}.items() for t in ("--set", f"{name}={value}")]
    accepted = cluster.submit("chained.py", "--detached", "--json", *given, *more)
    assert accepted.returncode == 0, accepted.stderr
    return str(json.loads(accepted.stdout)["app_id"])


def wait_checkpoint(cluster: WholeCluster, app: str, behind: int = -1) -> JobStatus:
    """Wait until a checkpoint with results of both fragments is committed, behind transaction `behind`."""

    def look() -> JobStatus | None:
        view, status = cluster.status(app)
        assert not view.state.is_over, view.why
        if status is None or status.checkpoints is None or status.checkpoints.last is None:
            return None
        has_run = all(fragment.batch_id >= 0 for fragment in status.fragments)
        return status if has_run and status.checkpoints.last.txid > behind else None

    return wait_for(look, "a checkpoint", 360)


def published(out: Path, name: str) -> Counter[Any]:
    rows = [row for file in (out / name).glob("*.csv") for row in csv.DictReader(file.open(newline=""))]
    return Counter((r["key"], r["window_start"], int(r["n"])) for r in rows)


def check_output(*outs: Path) -> None:
    """Each window once, with its messages, in all outputs together."""
    for name, windows, count in (("short", ROWS * 100 // 10_000, 25), ("long", ROWS * 100 // 60_000, 150)):
        found = sum((published(out, name) for out in outs), Counter[Any]())
        assert len(found) == windows * 4, name
        assert set(found.values()) == {1}, name
        assert {n for _, _, n in found} == {count}, name


def test_executors_and_the_application_master_are_killed_and_the_output_is_whole(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(CHAINED)
    draw = random.Random(SEED)
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        app = submit(cluster, out="out")
        for part in (EXECUTOR, APP_MASTER, EXECUTOR):
            status = wait_checkpoint(cluster, app)
            assert len({fragment.executor for fragment in status.fragments}) == 2
            os.kill(draw.choice(cluster.processes(part)), signal.SIGKILL)
        assert cluster.client.wait(app, "5 min").state is ApplicationState.SUCCEEDED
        shown = cluster.command("show", app, expect=0).stdout
        assert "checkpoint" in shown
    check_output(tmp_path / "out")


def is_lost(state: Path) -> bool:
    """Delete a state; returns whether it stays deleted: Java may outlive its executor for a moment."""
    shutil.rmtree(state, ignore_errors=True)
    return not state.exists()


def test_a_lost_state_takes_the_application_back_to_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(CHAINED)
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        app = submit(cluster, out="out", rate="80")  # it must still run when its state is lost
        wait_checkpoint(cluster, app)
        victim = next((tmp_path / ".drivetrain").rglob("fragments/long"), None)
        victim = victim or next(tmp_path.rglob("fragments/long"))
        for pid in cluster.processes(EXECUTOR):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: is_lost(victim / "checkpoint"), "the state to be gone")
        notices: list[str] = []

        def went_back() -> bool:
            _, status = cluster.status(app)
            notices[:] = [] if status is None else [e.what for e in status.errors if e.code == "notice"]
            return any("went back to checkpoint" in text for text in notices)

        wait_for(went_back, "the notice that the application went back", 360)
        assert cluster.client.wait(app, "5 min").state is ApplicationState.SUCCEEDED
    check_output(tmp_path / "out")


def test_a_savepoint_of_a_cluster_goes_on_in_it_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "chained.py").write_text(CHAINED)
    with whole_cluster(tmp_path, masters=1, workers=2) as cluster:
        masters = ("--masters", ",".join(cluster.masters))
        first = submit(cluster, out="old", rate="30")  # it must still run when the command asks
        wait_checkpoint(cluster, first)
        told = cluster.command("savepoint", first, "--to", "saved", "--json", *masters, expect=0)
        saved = verified(tmp_path / "saved")
        assert json.loads(told.stdout)["checkpoint"] == saved.record.txid
        cluster.client.kill(first)
        cluster.client.wait_gone(first, "2 min")
        for name in ("short", "long"):  # what it has published since is its own
            for file in (tmp_path / "old" / name).glob("part-*.csv"):
                last = int(file.stem.rpartition("-")[2].removeprefix("to"))  # a file may join several batches
                if last > saved.record.fragments[name].sinks[f"to-{name}"]:
                    file.unlink()
        again = submit(
            cluster, "--name", "moved", "--from", "saved", out="new", rate="0", **{"app.executors": "1"}
        )
        assert cluster.client.wait(again, "5 min").state is ApplicationState.SUCCEEDED
    check_output(tmp_path / "old", tmp_path / "new")
