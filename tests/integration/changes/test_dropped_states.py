"""A state that a change drops, while messages flow, on real Spark: windows of the new length begin whole."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from shop import Feed, Stream, rows, wait_until
from totals import PROGRAM, totals

from drivetrain import start
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UserError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state.dropped_state import DroppedState

TIMEOUT = "5 min"
HOUR_MS = 3_600_000
DAY_MS = 1_704_067_200_000
"""2024-01-01, when the feed begins."""
OF_AN_HOUR = 2
"""Messages."""


def shown(directory: Path) -> dict[tuple[int, int], int]:
    """The messages of each window that is shown: by its length and its first hour."""
    found: dict[tuple[int, int], int] = {}
    for row in rows(directory / "hourly"):
        start_ms, end_ms = (_ms(row[name]) for name in ("window_start", "window_end"))
        key = (end_ms - start_ms) // HOUR_MS, (start_ms - DAY_MS) // HOUR_MS
        assert key not in found, f"the window {key} is shown twice"
        found[key] = row["n"]
    return found


def _ms(text: object) -> int:
    return int(dt.datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)


def of_length(directory: Path, hours: int) -> list[int]:
    """The first hours of the windows of a length, each of which is whole; none is missing between them."""
    found = {first: n for (length, first), n in shown(directory).items() if length == hours}
    partial = {first: n for first, n in found.items() if n != hours * OF_AN_HOUR}
    assert not partial, f"{partial} of {sorted(found)}"
    firsts = sorted(found)
    assert firsts == list(range(firsts[0], firsts[-1] + 1, hours)) if firsts else True
    return firsts


def fragment_of(drive: Harness) -> Path:
    rundir = RunDirectory(str(drive.directory / "state"), "totals", {})
    return next((rundir.path / "fragments").iterdir())


def first_whole(drive: Harness, hours: int) -> int:
    """The first hour of the first window of a length that began after the state was dropped."""
    known = DroppedState(fragment_of(drive)).read()
    assert known is not None
    assert known.newest_ms is not None
    return ((known.newest_ms - DAY_MS) // (hours * HOUR_MS) + 1) * hours


def ended(feed: Feed, hours: int) -> int:
    """The first hour of the last window of a length that the feed has ended."""
    return ((feed.count - 1) // OF_AN_HOUR // hours - 1) * hours


def test_windows_of_another_length_begin_empty_and_a_rollback_has_the_former_state(drive: Harness) -> None:
    feed, place = Feed(drive.directory), drive.directory
    feed.put(12)
    with start(totals(place, 1), drive.config()) as running:
        wait_until(lambda: of_length(place, 1), lambda: running.is_running)
        with pytest.raises(UserError, match="does not fit") as refused:
            running.update(totals(place, 2), TIMEOUT)
        assert "--drop-state hourly drops that state" in str(refused.value.got)
        with pytest.raises(UserError, match="no processor of that name keeps a state"):
            running.update(totals(place, 2), TIMEOUT, drop_state=["hourl"])
        with Stream(feed):
            assert running.update(totals(place, 2), TIMEOUT, drop_state=["hourly"]) == 2
            first = first_whole(drive, 2)
            wait_until(lambda: len(of_length(place, 2)) > 2, lambda: running.is_running)
            with pytest.raises(RolledBackError, match="version 3 has failed"):
                running.update(totals(place, 3, fails=True), TIMEOUT, drop_state=["hourly"])
        wait_until(lambda: of_length(place, 2)[-1:] == [ended(feed, 2)], lambda: running.is_running)
        assert of_length(place, 2)[0] == first
        assert of_length(place, 1)[0] == 0
        assert of_length(place, 3) == []
        assert not DroppedState(fragment_of(drive)).has_former
        running.stop()
        running.wait(TIMEOUT)


@pytest.mark.nightly("test_dropped_state has every moment; a start of Spark for each point")
@pytest.mark.parametrize(
    "point", [CrashPoint.AFTER_VERSION, CrashPoint.STATE_EMPTIED, CrashPoint.BEFORE_COMMIT]
)
def test_a_kill_leaves_the_former_state_or_an_empty_one(drive: Harness, point: CrashPoint) -> None:
    feed, place = Feed(drive.directory), drive.directory
    feed.put(12)
    file = place / "totals.py"
    file.write_text(PROGRAM.format(folder=str(Path(__file__).parent), directory=str(place), hours=1))
    rundir = RunDirectory(str(place / "state"), "totals", {})
    times = 6 if point is CrashPoint.BEFORE_COMMIT else 1
    with run_killed_at(file, place, point, times=times) as process:
        wait_until(lambda: of_length(place, 1), lambda: process.poll() is None)
        ask_to_change(rundir, totals(place, 2), ChangeOptions(drops=("hourly",)))
        if point is CrashPoint.BEFORE_COMMIT:
            with Stream(feed):
                wait_until(lambda: process.poll() is not None)
    with start(totals(place, 2), drive.config()) as running, Stream(feed):
        wait_until(lambda: len(of_length(place, 2)) > 2, lambda: running.is_running)
        assert of_length(place, 2)[0] == first_whole(drive, 2)
        assert of_length(place, 1)[0] == 0
        running.stop()
        running.wait(TIMEOUT)
