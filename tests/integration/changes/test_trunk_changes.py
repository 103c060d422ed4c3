"""Another trunk for a fragment with state, while messages flow, on real Spark.

The trunk marks every message with its version. The windows have to show what the versions counted, each
the messages of its span: exactly one split of the messages fits, and it is looked for.
"""

from __future__ import annotations

import pytest
from counted import counted, modelled, program, shown
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from pyspark.sql import SparkSession
from shop import Feed, Stream, wait_until

from drivetrain import start
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UserError
from drivetrain.runtime.run_directory import RunDirectory

TIMEOUT = "5 min"
FILE = 3
"""Messages in a file, which one batch takes whole."""


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "counted", {})


def fits_a_split(drive: Harness, feed: Feed, clean: set[int]) -> bool:
    """Whether version 1 took the first messages, and version 2 the others."""
    splits = range(FILE, feed.count, FILE)
    found = shown(drive.directory)
    return any(found == modelled({1: split, 2: feed.count}, clean, feed.count) for split in splits)


@pytest.mark.nightly("test_dropped_states restarts a query; test_changes_of_a_run has every point")
def test_a_fragment_restarts_alone_with_another_trunk_and_keeps_its_state(
    drive: Harness, spark: SparkSession
) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(counted(drive.directory, 1), drive.config()) as running, Stream(feed) as stream:
        wait_until(lambda: shown(drive.directory), lambda: running.is_running)
        before = {str(query.runId) for query in spark.streams.active}
        with pytest.raises(UserError, match="made of other columns") as refused:
            running.update(counted(drive.directory, 2, named=True), TIMEOUT)
        assert "newest string" in str(refused.value.got)
        with pytest.raises(UserError, match="restarts between two batches, not at an event time"):
            running.update(counted(drive.directory, 2), TIMEOUT, at="2024-02-01")
        assert {str(query.runId) for query in spark.streams.active} == before, "nothing has changed"
        assert running.update(counted(drive.directory, 2, clean=True), TIMEOUT) == 2
        assert not before & {str(query.runId) for query in spark.streams.active}, "it is another query"
        stream.is_over.set()
        stream.thread.join()
        wait_until(lambda: fits_a_split(drive, feed, {2}), lambda: running.is_running)
        with pytest.raises(RolledBackError, match="version 3 has failed") as failed, Stream(feed):
            running.update(counted(drive.directory, 3, fails=True), TIMEOUT)
        assert "cannot be marked" in str(failed.value.user_traceback)
        wait_until(lambda: fits_a_split(drive, feed, {2}), lambda: running.is_running)
        assert running.version == 2
        running.stop()
        running.wait(TIMEOUT)


@pytest.mark.nightly("test_changes_of_a_run has every point")
@pytest.mark.parametrize("point", [CrashPoint.AFTER_VERSION, CrashPoint.BEFORE_COMMIT])
def test_a_batch_that_a_kill_interrupts_runs_again_with_the_trunk_that_it_began_with(
    drive: Harness, point: CrashPoint
) -> None:
    feed, rundir = Feed(drive.directory), of_state(drive)
    feed.put(9)
    times = 1 if point is CrashPoint.AFTER_VERSION else 3  # in the batch after that which fired windows
    with run_killed_at(program(drive.directory, 1), drive.directory, point, times=times) as process:
        wait_until(lambda: shown(drive.directory), lambda: process.poll() is None)
        if point is CrashPoint.AFTER_VERSION:
            ask_to_change(rundir, counted(drive.directory, 2))
        else:
            feed.put(3)
            wait_until(lambda: process.poll() is not None)
    with start(counted(drive.directory, 2), drive.config()) as running:
        feed.put(12)
        wait_until(lambda: fits_a_split(drive, feed, set()), lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
