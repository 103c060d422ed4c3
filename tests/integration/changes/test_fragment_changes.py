"""Fragments that start in, and leave, an application while messages flow, on real Spark.

The application marks every message with the version that took it. A model counts the messages of the versions
that have the window, by two hours; what the window's sink shows is compared with that, exactly.
"""

from __future__ import annotations

from collections import Counter

import pytest
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from shop import Feed, Stream, marks, program, rows, shop, wait_until

from drivetrain import start
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UserError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.run.running_application import RunningApplication

TIMEOUT = "5 min"
OF_A_WINDOW = 4
"""Messages in two hours."""


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "shop", {})


def window_of(n: int) -> int:
    return n // OF_A_WINDOW


def modelled(versions: dict[int, int], span: set[int]) -> Counter[int]:
    """The messages in each window that a fragment shows which only the versions of `span` have.

    Its first window is the first one that starts after every message before.
    """
    taken = [n for n, version in versions.items() if version in span]
    before = [n for n in versions if n < min(taken)]
    first = window_of(max(before)) + 1 if before else 0
    return Counter(window_of(n) for n in taken if window_of(n) >= first)


def shown(drive: Harness) -> Counter[int]:
    """What the window's sink shows: the count of each window, each once."""
    found = [(window_of(row["last"]), row["n"]) for row in rows(drive.directory / "pairs")]
    assert len(dict(found)) == len(found), "a window is shown twice"
    return Counter(dict(found))


def is_gone(drive: Harness) -> bool:
    state = of_state(drive).path
    return not (state / "fragments" / "pairs").exists() and not (state / "channels" / "read--pairs").exists()


def taken_all(drive: Harness, feed: Feed, running: RunningApplication) -> dict[int, int]:
    """Wait until every message was taken; which version took it."""
    wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
    return marks(drive.directory)


@pytest.mark.nightly(
    "test_shells_under_kills and test_attempts_under_faults; test_histories starts a fragment on Spark"
)
def test_a_window_starts_and_leaves_while_messages_flow_and_counts_what_its_versions_took(
    drive: Harness,
) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    with start(shop(drive.directory, 1), drive.config()) as running, Stream(feed, 1.0) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 9, lambda: running.is_running)
        assert running.update(shop(drive.directory, 2, pairs=True), TIMEOUT) == 2
        wait_until(lambda: len(shown(drive)) >= 2, lambda: running.is_running)
        assert running.update(shop(drive.directory, 3), TIMEOUT) == 3
        wait_until(lambda: is_gone(drive), lambda: running.is_running)
        until_3 = {n: version for n, version in marks(drive.directory).items() if version < 3}
        assert shown(drive) == modelled(until_3, {2})
        assert running.update(shop(drive.directory, 4, pairs=True), TIMEOUT) == 4
        with pytest.raises(UserError, match="nothing changes"):
            running.update(shop(drive.directory, 4, pairs=True), TIMEOUT)
        wait_until(lambda: len(shown(drive)) >= len(modelled(until_3, {2})) + 2, lambda: running.is_running)
        stream.is_over.set()
        stream.thread.join()
        versions = taken_all(drive, feed, running)
        again = modelled(versions, {4})
        fired = {window: n for window, n in again.items() if window < window_of(feed.count - 1)}
        wanted = modelled(versions, {2}) + Counter(fired)
        wait_until(lambda: len(shown(drive)) >= len(wanted), lambda: running.is_running)
        running.stop()
        result = running.wait(TIMEOUT)
    taken = next(processor.messages_out for processor in result.processors if processor.processor == "read")
    assert taken == feed.count
    assert shown(drive) == wanted
    assert {row["n"] for row in rows(drive.directory / "hourly")} == {2}, "the other fragment went on"


@pytest.mark.nightly(
    "test_shells_under_kills and test_attempts_under_faults; test_histories starts a fragment on Spark"
)
def test_a_window_whose_code_fails_is_rolled_back_and_nothing_of_it_stays(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(6)
    rundir = of_state(drive)
    with start(shop(drive.directory, 1), drive.config()) as running, Stream(feed, 1.0) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 6, lambda: running.is_running)
        with pytest.raises(RolledBackError, match="version 2 has failed") as failed:
            running.update(shop(drive.directory, 2, fails=True, pairs=True), TIMEOUT)
        assert "cannot be marked" in str(failed.value.user_traceback)
        wait_until(lambda: is_gone(drive), lambda: running.is_running)
        stream.is_over.set()
        stream.thread.join()
        versions = taken_all(drive, feed, running)
        running.stop()
        running.wait(TIMEOUT)
    assert set(versions.values()) == {1}
    assert not shown(drive), "a window of a version that failed is shown"
    ending = rundir.versions.ending(2)
    assert ending is not None
    assert (ending.outcome, dict(ending.leaving)) == (Outcome.ROLLED_BACK, {})


KILLED_AT = pytest.mark.nightly("the other point; test_changes_of_a_run has every one")


@pytest.mark.nightly("test_changes_of_a_run and test_shells_under_kills have every point")
@pytest.mark.parametrize(
    "point", [pytest.param(CrashPoint.AFTER_VERSION, marks=KILLED_AT), CrashPoint.CHANNEL_BEGINS]
)
def test_after_a_kill_while_a_window_starts_it_takes_every_message_of_its_version(
    drive: Harness, point: CrashPoint
) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    kill_at(drive, feed, point, from_pairs=False)
    with start(shop(drive.directory, 2, pairs=True), drive.config()) as running:
        feed.put(12)
        versions = taken_all(drive, feed, running)
        fired = {w: n for w, n in modelled(versions, {2}).items() if w < window_of(feed.count - 1)}
        wait_until(lambda: len(shown(drive)) >= len(fired), lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert shown(drive) == Counter(fired)
    assert fired


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(CrashPoint.CHANNEL_ENDS, marks=KILLED_AT),
        pytest.param(CrashPoint.FRAGMENT_LEAVES, marks=KILLED_AT),
    ],
)
def test_after_a_kill_while_a_window_leaves_it_goes_on_leaving(drive: Harness, point: CrashPoint) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    kill_at(drive, feed, point, from_pairs=True)
    with start(shop(drive.directory, 2), drive.config()) as running:
        wait_until(lambda: is_gone(drive), lambda: running.is_running)
        feed.put(3)
        versions = taken_all(drive, feed, running)
        running.stop()
        running.wait(TIMEOUT)
    assert shown(drive) == modelled(versions, {1})


def kill_at(drive: Harness, feed: Feed, point: CrashPoint, *, from_pairs: bool) -> None:
    """Run version 1 in a process of its own, with the window or without, and change to version 2, which is
    the other way round; the process dies at a point."""
    file = program(drive.directory, 1, pairs=from_pairs)
    with run_killed_at(file, drive.directory, point) as process:
        wait_until(lambda: len(marks(drive.directory)) == 9, lambda: process.poll() is None)
        ask_to_change(of_state(drive), shop(drive.directory, 2, pairs=not from_pairs))
        feed.put(3)
