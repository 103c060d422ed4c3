"""Edits of the graph of an application that runs."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.graph_edits import attached, removed, replaced
from drivetrain.api.graphs.graph import Graph
from drivetrain.errors import GraphError, UserError


def shop() -> Graph:
    app = Application("shop")
    read = app.read(sources.json("in", schema="at timestamp, n bigint", event_time="at"), name="read")
    big = read.filter("n > 5", name="big")
    big.sink(sinks.none(), name="big_out")
    hourly = big.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    hourly.sink(sinks.none(), name="hourly_out")
    return app.graph()


def test_a_part_is_attached_with_the_streams_that_a_file_would_have() -> None:
    def attach(big: Any, app: Application) -> None:
        kinds = app.table(sources.csv("kinds.csv", schema="n bigint, kind string"), name="kinds")
        joined = big.join(kinds, on="n", name="joined")
        joined.sink(sinks.none(), name="kinds_out")

    made = attached(shop(), "big", attach)
    assert made.nodes.keys() - shop().nodes.keys() == {"kinds", "joined", "kinds_out"}
    assert made.nodes["joined"].inputs[0] == "big"
    assert {id: node.inputs for id, node in shop().nodes.items()}.items() <= {
        id: node.inputs for id, node in made.nodes.items()
    }.items()


def test_what_cannot_be_attached_says_why() -> None:
    with pytest.raises(UserError, match="no processor bigg") as unknown:
        attached(shop(), "bigg", lambda stream: stream.sink(sinks.none()))
    assert "perhaps big" in str(unknown.value.remedy)
    with pytest.raises(UserError, match="nothing can be attached to big_out"):
        attached(shop(), "big_out", lambda stream: stream)
    with pytest.raises(UserError, match="nothing was attached"):
        attached(shop(), "big", lambda stream: None)
    with pytest.raises(GraphError, match="no successor"):
        attached(shop(), "big", lambda stream: stream.filter("n > 7", name="left"))
    with pytest.raises(GraphError, match="another number of arguments"):
        attached(shop(), "big", lambda: None)


def test_a_processor_goes_with_what_reads_from_it_and_with_what_leads_nowhere_then() -> None:
    assert list(removed(shop(), "hourly").nodes) == ["read", "big", "big_out"]
    assert list(removed(shop(), "hourly_out").nodes) == ["read", "big", "big_out"]
    with pytest.raises(UserError, match="nothing would be left"):
        removed(shop(), "read")
    with pytest.raises(UserError, match="no processor other"):
        removed(shop(), "other")


def test_the_late_messages_of_a_window_go_with_it() -> None:
    app = Application("late")
    read = app.read(sources.json("in", schema="at timestamp, n bigint", event_time="at"), name="read")
    read.sink(sinks.none(), name="all")
    window = read.window(windows.tumbling("1 h")).aggregate(n=agg.count(), step="hourly")
    window.sink(sinks.none(), name="out")
    window.late.sink(sinks.none(), name="late_out")
    assert list(removed(app.graph(), "hourly").nodes) == ["read", "all"]


def test_a_replacement_keeps_the_name_and_the_readers() -> None:
    made = replaced(shop(), "big", lambda read: read.filter("n > 3", name="bigger").filter("n < 100"))
    assert list(made.nodes) == ["read", "bigger", "big", "big_out", "hourly", "hourly_out"]
    assert made.nodes["big"].inputs == ("bigger",)
    assert made.nodes["hourly"].inputs == ("big",)
    sink = replaced(shop(), "big_out", lambda big: big.sink(sinks.console(), name="shown"))
    assert "big_out" not in sink.nodes
    assert sink.nodes["shown"].inputs == ("big",)


def test_what_cannot_replace_says_why() -> None:
    with pytest.raises(UserError, match="cannot be replaced"):
        replaced(shop(), "read", lambda stream: stream)
    with pytest.raises(UserError, match="returns no stream"):
        replaced(shop(), "big", lambda read: read)
    with pytest.raises(UserError, match="returns no stream"):
        replaced(shop(), "big", lambda read: None)
