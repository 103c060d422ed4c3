"""The state of one fragment in another number of partitions, while messages flow, on real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from chained import KEYS, chained, program
from harness import Harness
from killed_runs import run_killed_at
from pyspark.sql import SparkSession
from shop import SCHEMA, Feed, Stream, rows, wait_until

from drivetrain import Application, sinks, sources, start
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.control_requests import ask_to_scale
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.scalings import Scalings
from drivetrain.runtime.state.state_partitions import state_partitions

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


def dry_run(place: Path, fragment: str, partitions: int) -> dict[str, object]:
    """What `drivetrain scale --dry-run --json` plans."""
    line = [
        sys.executable,
        "-m",
        "drivetrain.cli",
        "scale",
        "chained",
        fragment,
        "--partitions",
        str(partitions),
    ]
    line += ["--partitions", str(partitions), "--dry-run", "--json", "--state-dir", str(place / "state")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["planned"]
    return found


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
            with pytest.raises(UserError, match=refused):
                running.plan_scaling(name, number)
        planned = running.plan_scaling("hourly", 5)
        assert (planned.fragment, planned.after, planned.likely_pause_ms) == ("hourly", 5, None)
        assert planned.bytes > 0
        assert dry_run(place, "hourly", 5) == msgspec.to_builtins(planned)
        assert state_partitions(checkpoint(drive, "hourly")) == planned.before, "a dry run changes nothing"
        with Stream(feed):
            done = running.scale("hourly", 5, TIMEOUT)
        assert (running.plan_scaling("hourly", 6).likely_pause_ms or 0) > 0, "judged by the first one"
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


def kinds(place: Path) -> Application:
    """Messages of even and odd numbers meet, by three operators, each in a fragment of its own."""
    app = Application("kinds")
    read = app.read(sources.json(place / "in", schema=SCHEMA, event_time="at", watch=True), name="read")
    paired = read.with_columns(k="n div 2", step="paired")
    even = paired.filter("n % 2 = 0", name="even").select("k", step="evens", a="n")
    odd = paired.filter("n % 2 = 1", name="odd").select("k", step="odds", b="n")
    even.cut().join(odd.cut(), on="k", within="2 h", name="near").sink(
        sinks.json(place / "near"), name="near_out"
    )
    odd.cut().join_as_of(even.cut(), on="k", name="newest").sink(
        sinks.json(place / "newest"), name="newest_out"
    )
    paired.cut().deduplicate("k", within="1 d", name="once").sink(sinks.json(place / "once"), name="once_out")
    return app


def shows_kinds(place: Path, messages: int) -> bool:
    """Whether all pairs are shown of which the clock has passed, each once."""
    pairs = [(k, 2 * k, 2 * k + 1) for k in range(messages // 2)]
    done = True
    for name in ("near", "newest"):
        shown = sorted((row["k"], row["a"], row["b"]) for row in rows(place / name))
        assert len(set(shown)) == len(shown), "a pair is shown twice"
        assert set(shown) <= set(pairs), name
        done = done and len(shown) >= len(pairs) - 2
    once = [row["k"] for row in rows(place / "once")]
    assert len(set(once)) == len(once), "a key is shown twice"
    return done and len(once) >= len(pairs) - 2


@pytest.mark.nightly("the same steps for every state; this one tries the kinds that Spark keeps")
def test_states_of_joins_and_of_deduplication_are_divided_too(drive: Harness) -> None:
    feed, place = Feed(drive.directory), drive.directory
    feed.put(40)
    with start(kinds(place), drive.config()) as running:
        wait_until(lambda: shows_kinds(place, feed.count), lambda: running.is_running)
        for number in (5, 1):
            for fragment in ("near", "newest", "once"):
                assert running.scale(fragment, number, TIMEOUT).why is None
            feed.put(24)
            wait_until(lambda: shows_kinds(place, feed.count), lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
