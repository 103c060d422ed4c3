"""Early results in the graph and the plan, and which windows have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivetrain import Application, Stream, agg, sinks, sources, windows
from drivetrain.api.operations import EarlyResults
from drivetrain.core.plan.planner import plan
from drivetrain.errors import GraphError


def sales() -> tuple[Application, Stream[Any]]:
    app = Application("sales")
    return app, app.read(sources.csv("in/", schema="item string, sold timestamp", event_time="sold"))


def test_early_results_are_a_query_of_their_own_beside_the_window() -> None:
    app, stream = sales()
    patient = windows.tumbling("1 h", emission="accumulating", allowed_lateness="1 h")
    hourly = stream.group_by("item").window(patient).count(name="hourly")
    hourly.sink(sinks.none(), name="out")
    assert hourly.early.id == "hourly-early"
    hourly.early.sink(sinks.none(), name="screen")
    made = plan(app.graph())
    operation = made.graph.nodes["hourly-early"].operation
    assert isinstance(operation, EarlyResults)
    assert operation.aggregate.window == windows.tumbling("1 h"), (
        "late messages change no window that is open"
    )
    assert made.fragment_of("hourly-early").stateful == "hourly-early"
    shown = made.operators["hourly-early"]
    assert (shown.how, shown.text) == ("native", "so far, count=count() by item in tumbling(1 h)")


def test_early_results_in_intervals_wait_behind_a_channel_of_their_own() -> None:
    app, stream = sales()
    hourly = stream.filter("item <> ''").window(windows.tumbling("1 h")).count(name="hourly")
    slow = hourly.early_every("10 s")
    hourly.sink(sinks.none(), name="out")
    slow.sink(sinks.none(), name="screen")
    assert (slow.id, hourly.early_every("10000 ms").id) == ("hourly-early", "hourly-early")
    made = plan(app.graph())
    assert made.fragment_of("hourly-early").trunk == ("hourly-early",)
    channel = next(c for c in made.channels if c.consumer_fragment == "hourly-early")
    assert (channel.producer, channel.why) == (
        "filter",
        "hourly-early waits between its batches, so messages wait in front of it",
    )
    assert (
        made.operators["hourly-early"].text
        == "so far every 10 s, count=count() by everything in tumbling(1 h)"
    )


@pytest.mark.parametrize("interval", ["0 s", "99 ms", "soon"])
def test_an_interval_is_long_enough_for_a_batch(interval: str) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match=r"interval needs a length|cannot read every"):
        stream.window(windows.tumbling("1 h")).count().early_every(interval)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda s: s.window(windows.session("1 h")).count(), "sessions have no early results"),
        (lambda s: s.window(windows.everything()).count(), "the global window has no early results"),
        (lambda s: s.filter("item = 'tea'"), "only a native aggregation in a window"),
        (
            lambda s: s.window(windows.tumbling("1 h")).fold(int, lambda n, _: n + 1, returns=int),
            "only a native",
        ),
        (lambda s: s.window(windows.tumbling("1 h")).top(3, by="item"), "only a native"),
    ],
)
def test_other_streams_have_no_early_results(
    made: Callable[[Stream[Any]], Stream[Any]], message: str
) -> None:
    _, stream = sales()
    with pytest.raises(GraphError, match=message) as caught:
        made(stream).early  # noqa: B018 - it raises
    assert __file__.rsplit("/", 1)[-1] in str(caught.value)


def test_early_results_are_those_of_one_aggregation() -> None:
    app, stream = sales()
    hourly = stream.window(windows.tumbling("1 h"))
    first, second = hourly.count(name="first"), hourly.aggregate(n=agg.count("item"), step="second")
    assert [first.early.id, second.early.id] == ["first-early", "second-early"]
    assert app.graph(unfinished=True).nodes["second-early"].inputs == ("read",)
