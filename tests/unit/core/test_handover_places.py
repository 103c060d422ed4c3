"""Where messages are divided by time, and at which times a change can take effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api import Application, agg, sinks, sources, windows
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.handover_places import (
    HandoverError,
    Places,
    earliest_ms,
    places,
    require_same_places,
    require_time,
    window_sizes,
)
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan

SCHEMA = "at timestamp, k string, n bigint"


def made(build: Callable[[Application], None]) -> Plan:
    app = Application("shop")
    build(app)
    return plan(app.graph())


def timed(app: Application, **more: Any) -> Any:
    return app.read(sources.json("in", schema=SCHEMA, event_time="at", watch=True, **more), name="read")


def untimed(app: Application) -> Any:
    return app.read(sources.json("in", schema=SCHEMA, watch=True), name="read")


def fragment(of: Plan, id: str) -> Any:
    return next(f for f in of.fragments if f.id == id)


def refused(of: Plan, id: str) -> str:
    with pytest.raises(HandoverError) as error:
        window_sizes(of, fragment(of, id))
    return str(error.value.got)


def test_messages_that_arrive_with_event_time_are_divided_at_the_root() -> None:
    of = made(lambda app: timed(app).filter("n > 1", name="f").sink(sinks.none(), name="out"))
    assert places(of, fragment(of, "read")) == Places(frozenset({"read"}))
    assert window_sizes(of, fragment(of, "read")) == frozenset()


def late_time(app: Application, least: int = 0, more: bool = False) -> None:
    read = untimed(app)
    read.sink(sinks.none(), name="raw")
    kept = read.filter(f"n > {least}", name="kept").event_time("at", name="at_time")
    kept.filter("n > 1", name="f").sink(sinks.none(), name="out")
    if more:
        read.filter("n > 7", name="g").sink(sinks.none(), name="more")


def test_what_comes_before_event_time_is_shared() -> None:
    of = made(late_time)
    assert places(of, fragment(of, "read")) == Places(
        frozenset({"at_time"}), frozenset({"raw", "kept", "at_time"})
    )


def same(old: Plan, new: Plan, id: str = "read") -> Places:
    versions = (version_of(old, lambda op: repr(op)), version_of(new, lambda op: repr(op)))
    return require_same_places(old, new, versions, id)


def test_what_differs_before_messages_have_event_time_is_refused() -> None:
    before = made(late_time)
    assert same(before, made(late_time)).at == {"at_time"}
    with pytest.raises(HandoverError, match="kept") as error:
        same(before, made(lambda app: late_time(app, least=1)))
    assert "have no event time yet" in str(error.value.got)
    with pytest.raises(HandoverError, match=r"(more|g) "):
        same(before, made(lambda app: late_time(app, more=True)))


def test_a_sink_that_differs_is_refused() -> None:
    before = made(lambda app: timed(app).sink(sinks.json("a"), name="out"))
    with pytest.raises(HandoverError, match="out") as error:
        same(before, made(lambda app: timed(app).sink(sinks.json("b"), name="out")))
    assert "both ways in one batch" in str(error.value.got)
    same(before, made(lambda app: timed(app).filter("n > 1", name="f").sink(sinks.json("a"), name="out")))


def test_a_second_event_time_is_refused() -> None:
    def again(app: Application) -> None:
        timed(app).event_time("at", name="again").sink(sinks.none(), name="out")

    of = made(again)
    with pytest.raises(HandoverError, match="again") as error:
        places(of, fragment(of, "read"))
    assert "another event time" in str(error.value.got)


def test_messages_of_which_some_have_no_event_time_are_refused() -> None:
    def half(app: Application) -> None:
        read = untimed(app)
        both = read.event_time("at", name="at_time").union(read.filter("n > 1", name="f"), name="both")
        both.sink(sinks.none(), name="out")

    of = made(half)
    with pytest.raises(HandoverError, match="both") as error:
        places(of, fragment(of, "read"))
    assert "some messages without event time" in str(error.value.got)


def windowed(window: Any, *, cut: bool = False) -> Plan:
    def build(app: Application) -> None:
        counts = timed(app).group_by("k").window(window).aggregate(n=agg.count(), step="counts")
        if cut:
            counts = counts.cut()
        counts.filter("n > 1", name="shown").sink(sinks.none(), name="out")

    return made(build)


def test_results_of_windows_are_divided_at_their_boundaries_also_behind_a_channel() -> None:
    of = windowed(windows.tumbling("1 h"))
    assert window_sizes(of, fragment(of, "counts")) == {3_600_000}
    assert places(of, fragment(of, "counts")) == Places(frozenset({"counts"}))
    behind = windowed(windows.tumbling("1 h"), cut=True)
    last = behind.fragments[-1].id
    assert window_sizes(behind, fragment(behind, last)) == {3_600_000}


@pytest.mark.parametrize(
    ("window", "why"),
    [
        (windows.sliding("1 h", "10 min"), "overlap"),
        (windows.session("10 min"), "no boundaries"),
        (windows.everything(), "no boundaries"),
    ],
)
def test_windows_without_boundaries_are_refused(window: Any, why: str) -> None:
    assert why in refused(windowed(window), "counts")


def test_late_results_and_other_states_are_refused() -> None:
    assert "late messages" in refused(windowed(windows.tumbling("1 h", allowed_lateness="1 h")), "counts")
    deduplicated = made(
        lambda app: timed(app).deduplicate("k", within="1 h", name="once").sink(sinks.none(), name="out")
    )
    assert "different times" in refused(deduplicated, "once")


SIZES = st.sets(st.sampled_from((1, 2, 3, 4, 6, 10, 15)), max_size=3)


@given(st.integers(-100, 200), SIZES)
def test_the_earliest_time_is_the_first_that_is_no_refusal(newest_ms: int, sizes: set[int]) -> None:
    allowed = [
        at_ms
        for at_ms in range(newest_ms - 50, newest_ms + 200)
        if at_ms > newest_ms and all(at_ms % size == 0 for size in sizes)
    ]
    assert earliest_ms(newest_ms, sizes) == allowed[0]
    for at_ms in range(newest_ms - 50, allowed[0] + 1):
        if at_ms in allowed:
            require_time(at_ms, newest_ms, sizes)
            continue
        with pytest.raises(HandoverError) as error:
            require_time(at_ms, newest_ms, sizes)
        assert error.value.remedy
    require_time(math.lcm(1, *sizes) * 7, None, sizes)


def test_times_that_are_none_and_a_window_before_any_message_are_refused() -> None:
    with pytest.raises(HandoverError, match="at that time"):
        require_time(10**18, 5, ())
    with pytest.raises(HandoverError, match="no message has come"):
        earliest_ms(None, (5,))
