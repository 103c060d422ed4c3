"""Which former messages the new fragments of a change can get, and how fast they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.operations import Operation
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.difference import ChangeKind, Difference, difference
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.history_pace import HistoryPace
from drivetrain.core.change.message_history import (
    HistoryState,
    histories,
    history_given,
    read_again,
    require_histories,
)
from drivetrain.core.plan.planner import plan
from drivetrain.core.replay.replay import ReplayError, replay_of_way
from drivetrain.errors import UserError

FROM_MS = 1_000
WITH = ChangeOptions(history_ms=FROM_MS)
SCHEMA = "at timestamp, n bigint"


def app(
    *,
    pairs: bool = False,
    again: bool = False,
    after_state: bool = False,
    far: bool = False,
    sink: bool = False,
    own: bool = False,
    timed: bool = True,
) -> Application:
    """Orders, counted by the hour; and what a change adds."""
    app = Application("shop")
    at = "at" if timed else None
    orders = app.read(sources.json("in", schema=SCHEMA, event_time=at, watch=True), name="orders")
    if not timed:
        orders = orders.filter("n > 0", name="some")
    orders.sink(sinks.json("all"), name="all_out")
    late = orders if timed else orders.event_time("at", max_disorder="1 min", name="times")
    hourly = late.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.sink(sinks.json("hourly"), name="hourly_out")
    behind = orders.cut().filter("n > 1", name="behind") if far else None
    if pairs:
        two = late.filter("n > 2", name="large").window(windows.tumbling("2 h"))
        counted = two.aggregate(n=agg.count(), step="pairs")
        counted.sink(sinks.json("pairs"), name="pairs_out")
        if again:
            day = counted.window(windows.tumbling("1 d")).aggregate(n=agg.sum("n"), step="days")
            day.sink(sinks.json("days"), name="days_out")
    if after_state:
        half = hourly.window(windows.tumbling("12 h")).aggregate(n=agg.sum("n"), step="halves")
        half.sink(sinks.json("halves"), name="halves_out")
    if behind is not None:
        behind.sink(sinks.json("behind"), name="behind_out")
    if sink:
        orders.filter("n > 5", name="more").sink(sinks.json("more"), name="more_out")
    if own:
        other = app.read(sources.json("in2", schema=SCHEMA, event_time="at"), name="other")
        other.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="others").sink(
            sinks.json("others"), name="others_out"
        )
    return app


def version(*, trunk: bool = False, **parts: bool) -> GraphVersion:
    """With `trunk` the code of the source has changed."""

    def fingerprint(operation: Operation) -> str:
        return f"{type(operation).__name__} {trunk and operation.stream_source is not None}"

    return version_of(plan(app(**parts).graph()), fingerprint)


def refused(found: Difference) -> dict[str, str]:
    return {change.id: change.why for change in found.refused}


def test_a_new_window_gets_the_messages_of_the_running_fragment_that_reads_the_source() -> None:
    old, new = version(), version(pairs=True, again=True)
    assert histories(old, new) == {"large--pairs": "large"}
    assert read_again(old, new) == {"pairs": ("orders",), "days": ("orders",)}
    found = difference(old, new, options=WITH)
    assert not found.refused
    why = {change.id: change.why for change in found.changes if change.fate is ChangeKind.STARTED}
    assert "with the messages from 1970-01-01T00:00:01+00:00 on: orders is read again" in why["days"]
    plain = {change.id: change.why for change in difference(old, new).changes}
    assert plain["pairs"].endswith("with the messages from then on")


def test_what_follows_a_state_cannot_get_former_results() -> None:
    found = refused(difference(version(), version(after_state=True), options=WITH))
    assert set(found) == {"halves"}
    assert "follows the state of hourly" in found["halves"]
    assert not difference(version(), version(after_state=True)).refused


def test_a_new_sink_of_a_running_fragment_is_refused_and_the_remedy_is_a_cut() -> None:
    found = refused(difference(version(), version(sink=True, pairs=True), options=WITH))
    assert set(found) == {"more", "more_out"}
    assert ".cut() before it" in found["more"]


def test_a_query_that_restarts_with_the_change_has_no_history() -> None:
    found = refused(difference(version(), version(pairs=True, trunk=True), options=WITH))
    assert any("restarts with this change" in why for why in found.values()), found


def test_a_change_without_anything_that_could_get_former_messages_is_refused() -> None:
    with pytest.raises(UserError, match="nothing in this change can get"):
        require_histories(version(), version(own=True), WITH)
    require_histories(version(), version(own=True), ChangeOptions())
    require_histories(version(), version(pairs=True), WITH)
    with pytest.raises(UserError, match="not at an event time"):
        require_histories(version(), version(pairs=True), ChangeOptions(at=5, history_ms=FROM_MS))


def test_the_messages_are_selected_by_their_time_which_they_need_where_the_fragment_begins() -> None:
    found = replay_of_way(app(pairs=True).graph(), FROM_MS, ["orders"], "large")
    assert found.sources["orders"].places == ("orders",)
    assert found.drops_at("orders")
    timed = replay_of_way(app(timed=False).graph(), FROM_MS, ["orders"], "times")
    assert timed.sources["orders"].places == ("times",)
    with pytest.raises(ReplayError, match="no timestamp where a new fragment begins"):
        replay_of_way(app(timed=False).graph(), FROM_MS, ["orders"], "some")
    assert not replay_of_way(app(own=True).graph(), FROM_MS, ["other"], "orders").sources


def test_progress_is_shown_in_words() -> None:
    state = HistoryState(0, ("pairs",), 3, 60_000, 120_000)
    assert state.in_words == (
        "the messages from 1970-01-01T00:00:00+00:00 on are read again: 3 messages so far, up to "
        "1970-01-01T00:01:00+00:00 of 1970-01-01T00:02:00+00:00"
    )
    assert history_given("1970-01-01T00:01") == 60_000
    with pytest.raises(UserError):
        history_given("yesterday")


@given(
    st.floats(0.01, 1.0),
    st.integers(1, 100_000),
    st.lists(st.integers(0, 1_000_000), max_size=40),
)
def test_reading_takes_at_most_its_share_of_the_time(share: float, target: int, spans: list[int]) -> None:
    pace, quickest = HistoryPace(share, target), 1_000_000
    for span in spans:
        before = pace.fraction
        pause = pace.record(span)
        assert span <= share * (span + pause + 1) + 1e-6 * span
        quickest = min(span, quickest)
        if span > max(target, 2 * quickest):
            assert pace.fraction < before or before <= 1 / 4096
        else:
            assert pace.fraction >= before
        pace.check()


def test_parts_grow_though_each_takes_longer_than_wanted_to_begin() -> None:
    """Else a busy machine would read less in each part, and never catch up."""
    pace, messages = HistoryPace(0.5, 1_000), 0.0
    for _ in range(20):
        messages += pace.fraction
        pace.record(7_000 + int(3_000 * pace.fraction))
    assert pace.fraction == 1.0
    assert messages > 10
