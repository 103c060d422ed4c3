"""Which windows are whole of a fragment that was added while the application ran."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.state.dropped_state import DroppedState
from drivetrain.spark.prepare.whole_windows import first_whole_ms, is_late, window_size_ms

HOUR_MS = 3_600_000


def shop() -> Plan:
    """Messages that are counted by the hour, and these counts by the day; and by session."""
    app = Application("shop")
    read = app.read(sources.json("in", schema="at timestamp, n bigint", event_time="at"), name="read")
    hourly = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.sink(sinks.none(), name="hourly_out")
    daily = hourly.window(windows.tumbling("1 d")).aggregate(n=agg.sum("n"), step="daily")
    daily.sink(sinks.none(), name="daily_out")
    visits = read.window(windows.session("1 h")).aggregate(n=agg.count(), step="visits")
    visits.sink(sinks.none(), name="visits_out")
    return plan(app.graph())


def in_directory(directory: Path) -> Any:
    return SimpleNamespace(channel=lambda id: str(directory / id), fragment=lambda id: directory / "f" / id)


def begin(directory: Path, channel: str, newest_ms: int | None) -> None:
    begins = ChannelBeginning(str(directory / channel))
    begins.prepare()
    begins.begin(ChannelStore(str(directory / channel), fragment="any"), 3, 0, newest_ms)


def test_an_application_that_was_begun_with_all_its_fragments_lacks_nothing(tmp_path: Path) -> None:
    rundir = in_directory(tmp_path)
    assert not is_late(shop(), "hourly", rundir)
    assert first_whole_ms(shop(), "daily", rundir) is None


def test_windows_are_whole_after_the_newest_message_before_the_channel(tmp_path: Path) -> None:
    rundir, made = in_directory(tmp_path), shop()
    begin(tmp_path, "read--hourly", 5_000)
    assert is_late(made, "hourly", rundir)
    assert first_whole_ms(made, "hourly", rundir) == 5_000
    assert not is_late(made, "visits", rundir)


def test_a_window_of_windows_lacks_what_those_lack_that_are_left_out(tmp_path: Path) -> None:
    rundir, made = in_directory(tmp_path), shop()
    begin(tmp_path, "read--hourly", 5_000)
    begin(tmp_path, "hourly--daily", 4_000)
    assert first_whole_ms(made, "daily", rundir) == HOUR_MS - 1, "the end of the hour that begins at 0"


def test_a_day_is_whole_if_all_its_hours_are(tmp_path: Path) -> None:
    rundir, made = in_directory(tmp_path), shop()
    begin(tmp_path, "read--hourly", -1)
    begin(tmp_path, "hourly--daily", None)
    assert first_whole_ms(made, "daily", rundir) == -1


def test_nothing_is_known_before_a_channel_begins_and_where_no_timestamp_was_seen(tmp_path: Path) -> None:
    rundir, made = in_directory(tmp_path), shop()
    ChannelBeginning(str(tmp_path / "read--hourly")).prepare()
    assert is_late(made, "hourly", rundir)
    assert first_whole_ms(made, "hourly", rundir) is None
    begin(tmp_path, "read--hourly", None)
    assert first_whole_ms(made, "hourly", rundir) is None


def test_a_dropped_state_lacks_what_came_before_it_and_so_do_windows_of_its_windows(tmp_path: Path) -> None:
    rundir, made = in_directory(tmp_path), shop()
    own = rundir.fragment("hourly")
    (own / "checkpoint" / "commits").mkdir(parents=True)
    DroppedState(own).drop(2, 7_000, None)
    begin(tmp_path, "hourly--daily", 4_000)
    assert is_late(made, "hourly", rundir)
    assert first_whole_ms(made, "hourly", rundir) == 7_000
    assert first_whole_ms(made, "daily", rundir) == HOUR_MS - 1


def test_only_windows_of_a_fixed_size_can_be_recognised_by_their_end() -> None:
    made = shop()
    sizes = {fragment.id: window_size_ms(made, fragment) for fragment in made.fragments}
    assert sizes == {"read": None, "hourly": HOUR_MS, "daily": 24 * HOUR_MS, "visits": None}
