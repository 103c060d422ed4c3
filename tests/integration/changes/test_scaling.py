"""The state of one fragment in another number of partitions, while messages flow, on real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from chained import KEYS, chained, program
from harness import Harness
from killed_runs import run_killed_at
from pyspark.sql import SparkSession
from shop import Feed, Stream, rows, wait_until

from drivetrain import start
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.checkpoints.state_partitions import state_partitions
from drivetrain.runtime.control_requests import ask_to_scale
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.scalings import Scalings

TIMEOUT = "5 min"


def checkpoint(drive: Harness, fragment: str) -> Path:
    return RunDirectory(str(drive.directory / "state"), "chained", {}).fragment(fragment) / "checkpoint"


def is_exact(directory: Path, messages: int) -> bool:
    """Whether every half day is shown that can be, each once and whole, and every sum of the keys."""
    halves = [row["n"] for row in rows(directory / "halves")]
    assert set(halves) <= {24}, f"a half day is not whole: {halves}"
    assert len(halves) <= messages // 24, "a half day is shown twice"
    running, wanted = Counter[int](), list[tuple[int, int]]()
    for n in range(messages):
        running[n % KEYS] += n
        wanted.append((n % KEYS, running[n % KEYS]))
    shown = [(row["k"], row["total"]) for row in rows(directory / "totals")]
    assert not Counter(shown) - Counter(wanted), "a sum is shown that is wrong, or twice"
    return len(halves) >= messages // 24 - 1 and len(shown) == messages


def test_the_state_of_one_fragment_is_divided_anew_while_the_others_run_on(
    drive: Harness, spark: SparkSession
) -> None:
    feed, place = Feed(drive.directory), drive.directory
    feed.put(60)
    with start(chained(place), drive.config()) as running:
        wait_until(lambda: is_exact(place, feed.count), lambda: running.is_running)
        before = {query.name.rpartition("/")[2]: str(query.runId) for query in spark.streams.active}
        for name, number, refused in (
            ("nothing", 3, "no such fragment"),
            ("read", 3, "keeps no state"),
            ("totals", 33, "so many partitions"),
            ("hourly", 0, "so many partitions"),
            ("hourly", state_partitions(checkpoint(drive, "hourly")) or 0, "already"),
        ):
            with pytest.raises(UserError, match=refused):
                running.scale(name, number)
        with Stream(feed):
            done = running.scale("hourly", 5, TIMEOUT)
        assert (done.fragment, done.after, done.why) == ("hourly", 5, None)
        after = {query.name.rpartition("/")[2]: str(query.runId) for query in spark.streams.active}
        assert {id for id in before if after[id] != before[id]} == {"hourly"}, "others have restarted, too"
        wait_until(lambda: is_exact(place, feed.count), lambda: running.is_running)

        def fails(point: CrashPoint) -> None:
            if point is CrashPoint.BEFORE_DIVISION:
                raise OSError("the disk is gone")

        with armed(fails), pytest.raises(UserError, match="keeps 2 state partitions"):
            running.scale("totals", 3, TIMEOUT)
        assert state_partitions(checkpoint(drive, "totals")) == 2
        assert running.scale("totals", 3, TIMEOUT).after == 3
        assert running.scale("hourly", 1, TIMEOUT).before == 5
        feed.put(48)
        wait_until(lambda: is_exact(place, feed.count), lambda: running.is_running)
        assert state_partitions(checkpoint(drive, "hourly")) == 1
        assert state_partitions(checkpoint(drive, "totals")) == 3
        running.stop()
        running.wait(TIMEOUT)
    known = Scalings(RunDirectory(str(place / "state"), "chained", {}).path).all()
    assert [(one.of.fragment, one.of.after) for one in known] == [("hourly", 5), ("totals", 3), ("hourly", 1)]


@pytest.mark.nightly("the simulated process dies at the same points, and at every file that is changed")
@pytest.mark.parametrize("point", [CrashPoint.BEFORE_DIVISION, CrashPoint.AFTER_DIVISION])
def test_a_killed_scaling_is_wholly_done_or_not_begun(drive: Harness, point: CrashPoint) -> None:
    feed, place = Feed(drive.directory), drive.directory
    feed.put(60)
    rundir = RunDirectory(str(place / "state"), "chained", {})
    with run_killed_at(program(place), place, point) as process:
        wait_until(lambda: is_exact(place, feed.count), lambda: process.poll() is None)
        feed.put(12)
        try:
            ask_to_scale(rundir, "hourly", 5)
        except UnavailableError:
            assert process.poll() is not None
    with start(chained(place), drive.config()) as running:
        feed.put(48)
        wait_until(lambda: is_exact(place, feed.count), lambda: running.is_running)
        found = state_partitions(checkpoint(drive, "hourly"))
        assert found == (5 if point is CrashPoint.AFTER_DIVISION else 2)
        running.stop()
        running.wait(TIMEOUT)
