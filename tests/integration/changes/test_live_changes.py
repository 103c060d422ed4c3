"""Changes of an application while messages flow, on real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from pyspark.sql import SparkSession
from shop import Feed, Stream, marks, program, rows, shop, wait_until

from drivetrain import start
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_state import ChangeUnderwayError, RolledBackError
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.plan.planner import plan
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.control_requests import ask_change, asked_state
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code
from drivetrain.spark.run.running_application import RunningApplication

TIMEOUT = "5 min"
LARGE_BYTES = 2 << 20
"""More than PySpark sends with a task."""


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "shop", {})


def run_ids(spark: SparkSession) -> dict[str, str]:
    return {str(query.name): str(query.runId) for query in spark.streams.active}


def finish(drive: Harness, feed: Feed, running: RunningApplication) -> dict[int, int]:
    """Have all messages processed, stop the application; the versions of the messages.

    The windows that have ended hold what a count of all messages says, whatever was changed.
    """

    def is_shown() -> bool:
        hours = rows(drive.directory / "hourly")
        return len(marks(drive.directory)) == feed.count and len(hours) == (feed.count - 1) // 2

    wait_until(is_shown, lambda: running.is_running)
    running.stop()
    running.wait(TIMEOUT)
    assert {row["n"] for row in rows(drive.directory / "hourly")} == {2}
    return marks(drive.directory)


def test_branches_are_swapped_while_messages_flow_and_the_query_goes_on(
    drive: Harness, spark: SparkSession
) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(shop(drive.directory, 1), drive.config()) as running, Stream(feed) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 9, lambda: running.is_running)
        before = run_ids(spark)
        assert running.update(shop(drive.directory, 2, more=True), TIMEOUT) == 2
        assert running.update(shop(drive.directory, 3), TIMEOUT) == 3
        assert running.version == 3
        assert run_ids(spark) == before, "a query was started again"
        with pytest.raises(UserError, match="nothing changes"):
            running.update(shop(drive.directory, 3), TIMEOUT)
        stream.is_over.set()
        stream.thread.join()
        versions = finish(drive, feed, running)
    assert list(versions) == list(range(feed.count)), "every message is there"
    assert set(versions.values()) == {1, 2, 3}
    assert list(versions.values()) == sorted(versions.values()), (
        "each version has the messages of its batches"
    )
    even = [file.read_text().splitlines() for file in (drive.directory / "even").glob("*.csv")]
    shown = {int(line.split(",")[1]) for lines in even for line in lines if not line.startswith("at")}
    assert shown == {n for n, version in versions.items() if version == 2 and n % 2 == 0}


@pytest.mark.nightly("test_changes_of_a_run rolls back; other tests of this module swap branches on Spark")
def test_code_that_fails_is_rolled_back_and_its_batch_runs_with_the_version_before(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(6)
    with start(shop(drive.directory, 1), drive.config()) as running, Stream(feed) as stream:
        with pytest.raises(RolledBackError, match="version 2 has failed") as failed:
            running.update(shop(drive.directory, 2, fails=True, more=True), TIMEOUT)
        assert "cannot be marked" in str(failed.value.user_traceback)
        assert failed.value.where == "fragment read"
        assert running.version == 1
        wait_until(lambda: len(marks(drive.directory)) >= 6, lambda: running.is_running)
        assert running.update(shop(drive.directory, 3), TIMEOUT) == 3
        stream.is_over.set()
        stream.thread.join()
        versions = finish(drive, feed, running)
    assert list(versions) == list(range(feed.count))
    assert set(versions.values()) == {1, 3}
    assert not list((drive.directory / "even").glob("*.csv")), "a version that failed has published something"
    ending = of_state(drive).versions.ending(2)
    assert ending is not None
    assert ending.outcome is Outcome.ROLLED_BACK


@pytest.mark.nightly("test_kept_parts frees the functions of a run")
def test_the_large_function_of_a_version_is_freed_when_another_version_has_begun(
    drive: Harness, spark: SparkSession
) -> None:
    """PySpark sends it by a file, and keeps it in memory on every executor."""

    def sent() -> set[Path]:
        return set(Path(str(spark.sparkContext._temp_dir)).iterdir()) - before

    before, feed = set(Path(str(spark.sparkContext._temp_dir)).iterdir()), Feed(drive.directory)
    feed.put(3)
    with start(shop(drive.directory, 1, size=LARGE_BYTES), drive.config()) as running:
        wait_until(lambda: len(marks(drive.directory)) == 3, lambda: running.is_running)
        of_first = sent()
        with Stream(feed):
            assert running.update(shop(drive.directory, 2, size=LARGE_BYTES + 1), TIMEOUT) == 2
        wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        of_second = sent()
        assert len(of_first) == len(of_second) == 1
        assert of_first != of_second
        finish(drive, feed, running)
    assert not sent()


def test_what_cannot_change_changes_nothing_and_a_second_change_names_the_first(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(6)
    rundir = of_state(drive)
    with start(shop(drive.directory, 1), drive.config()) as running:
        wait_until(lambda: len(marks(drive.directory)) == 6, lambda: running.is_running)
        other = shop(drive.directory, 1)
        other.name = "other"
        with pytest.raises(UserError, match="name of an application"):
            running.update(other)
        graph = shop(drive.directory, 2).graph()
        record = version_of(plan(graph), fingerprint)
        with pytest.raises(UserError, match="meanwhile"):
            ask_change(rundir, record, graph_as_code(graph), against=7)
        assert ask_change(rundir, record, graph_as_code(graph), against=1) == 2  # no message comes: on trial
        with pytest.raises(ChangeUnderwayError, match="under way") as refused:
            running.update(shop(drive.directory, 3))
        assert "version 2" in str(refused.value.got)
        feed.put(3)
        wait_until(lambda: asked_state(rundir).outcome is Outcome.DONE, lambda: running.is_running)
        versions = finish(drive, feed, running)
    assert versions == {**dict.fromkeys(range(6), 1), **dict.fromkeys(range(6, 9), 2)}
    with pytest.raises(UnavailableError, match="does not run"):
        asked_state(rundir)


@pytest.mark.nightly("test_changes_of_a_run and test_shells_under_kills have every point")
@pytest.mark.parametrize(
    ("point", "in_force"),
    [(CrashPoint.BEFORE_VERSION, 1), (CrashPoint.AFTER_VERSION, 2), (CrashPoint.BEFORE_OUTCOME, 2)],
)
def test_after_a_kill_between_two_stages_the_application_is_wholly_one_version(
    drive: Harness, point: CrashPoint, in_force: int
) -> None:
    feed, rundir = Feed(drive.directory), of_state(drive)
    feed.put(6)
    with run_killed_at(program(drive.directory, 1), drive.directory, point) as process:
        wait_until(lambda: len(marks(drive.directory)) == 6, lambda: process.poll() is None)
        ask_to_change(rundir, shop(drive.directory, 2))
        feed.put(3)
    version = rundir.versions.in_force()
    assert version is not None
    assert version.number == in_force
    with start(shop(drive.directory, in_force), drive.config()) as running:
        feed.put(3)
        versions = finish(drive, feed, running)
        assert running.version == in_force
    assert list(versions) == list(range(feed.count))
    assert list(versions.values()) == sorted(versions.values())
    assert versions[0] == 1
    assert versions[feed.count - 1] == in_force
    noted = BatchVersions(rundir.fragment("read"))
    assert noted.newest() == in_force
