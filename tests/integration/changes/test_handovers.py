"""Versions that hand over at an event time, on real Spark: exact, whatever comes in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from pyspark.sql import SparkSession
from shop import marks, rows, wait_until
from timed import HOUR_MS, START_MS, Disordered, check, program, time_of_ms, timed

from drivetrain import start
from drivetrain.api.moments import moment_text
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.handover_places import HandoverError
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.control_requests import asked_state
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.run.running_application import RunningApplication

TIMEOUT = "5 min"
FRAGMENTS = ("read", "hourly")


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "timed", {})


def is_past(running: RunningApplication, feed: Disordered, at_ms: int) -> None:
    """Send messages until each fragment runs the new version alone, and all are shown."""
    rundir = RunDirectory(str(Path(feed.directory).parent / "state"), "timed", {})
    while time_of_ms(min(feed.sent[-9:])) < at_ms + 6 * HOUR_MS:
        feed.put(3)

    def has_ended() -> bool:
        if len(marks(Path(feed.directory).parent)) < len(feed.sent):
            return False
        if not any(row["start"] >= at_ms for row in rows(Path(feed.directory).parent / "hourly")):
            return False
        ending = rundir.versions.ending(2)
        return not asked_state(rundir).both and ending is not None and ending.outcome is Outcome.DONE

    wait_until(has_ended, lambda: running.is_running)


def test_each_version_gets_the_messages_of_its_span_however_disordered_they_come(
    drive: Harness, spark: SparkSession
) -> None:
    feed = Disordered(drive.directory, seed=1)
    feed.put(6)
    with start(timed(drive.directory, 1), drive.config()) as running:
        wait_until(lambda: len(marks(drive.directory)) == len(feed.sent), lambda: running.is_running)
        before = {str(query.name): str(query.runId) for query in spark.streams.active}
        changed = timed(drive.directory, 2, more=True, less=True)
        newest_ms = max(map(time_of_ms, feed.sent))
        with pytest.raises(HandoverError, match="processed already") as early:
            running.update(changed, TIMEOUT, at=START_MS + HOUR_MS)
        assert early.value.expected is not None
        next_hour = moment_text((newest_ms // HOUR_MS + 1) * HOUR_MS)
        assert next_hour in early.value.expected
        with pytest.raises(HandoverError, match="within a window of 1 h") as cut:
            running.update(changed, TIMEOUT, at=newest_ms + 1)
        assert next_hour in str(cut.value.expected)
        assert running.version == 1
        at_ms = START_MS + 14 * HOUR_MS
        feed.put(1)
        with pytest.raises(UnavailableError, match="has not ended"):
            running.update(changed, "3 s", at=at_ms)
        state = asked_state(of_state(drive))
        assert (state.version, state.at_ms, set(state.both)) == (2, at_ms, set(FRAGMENTS))
        assert "takes effect at 2024-01-01T14:00:00" in str(state.handing_over)
        with pytest.raises(UserError, match="under way"):
            running.update(timed(drive.directory, 3), TIMEOUT)
        is_past(running, feed, at_ms)
        assert {str(query.name): str(query.runId) for query in spark.streams.active} == before
        for fragment in FRAGMENTS:
            directory = of_state(drive).fragment(fragment)
            wait_until(lambda directory=directory: runs_alone(directory), lambda: running.is_running)
        running.stop()  # the sinks of the last batch are written one after the other
        running.wait(TIMEOUT)
    check(drive.directory, feed, at_ms, more=True, less=True)


def runs_alone(directory: Path) -> bool:
    noted = BatchVersions(directory).newest_since()
    return noted is not None and (noted.version, noted.before) == (2, 0)


@pytest.mark.nightly("test_handovers_of_a_run, with kills at every step")
def test_a_handover_goes_on_exactly_after_kills_and_replays(drive: Harness) -> None:
    feed, rundir = Disordered(drive.directory, seed=2), of_state(drive)
    feed.put(6)
    at_ms = START_MS + 10 * HOUR_MS
    changed = program(drive.directory, 2, more=True, less=True)
    with run_killed_at(program(drive.directory, 1), drive.directory, CrashPoint.AFTER_VERSION) as first:
        wait_until(lambda: len(marks(drive.directory)) == len(feed.sent), lambda: first.poll() is None)
        wanted = timed(drive.directory, 2, more=True, less=True)
        ask_to_change(rundir, wanted, ChangeOptions(at=at_ms))
        feed.put(12)  # on both sides of the time: Spark plans a batch that Python has not begun
    version = rundir.versions.in_force()
    assert version is not None
    assert (version.number, version.at_ms) == (2, at_ms)
    with run_killed_at(changed, drive.directory, CrashPoint.BEFORE_COMMIT, times=3):
        feed.put(6)
    with start(timed(drive.directory, 2, more=True, less=True), drive.config()) as running:
        feed.put(3)
        is_past(running, feed, at_ms)
        check(drive.directory, feed, at_ms, more=True, less=True)
        running.stop()
        running.wait(TIMEOUT)
