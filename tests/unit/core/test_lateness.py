"""Allowed lateness, rewritten into processors that exist anyway."""

from __future__ import annotations

import dataclasses

import pytest
from graph_shapes import aggregate, fold, graph, graphs, node, read, write
from hypothesis import given, settings

from drivetrain.api import windows
from drivetrain.api.graphs.graph import Graph
from drivetrain.api.operations import Aggregate, LateMessages, LatePanes, Refine, Union
from drivetrain.core.plan.lateness import with_lateness
from drivetrain.core.plan.planner import plan
from drivetrain.errors import GraphError
from nightly_run import examples

PATIENT = windows.tumbling("1 h", allowed_lateness="5 min")
ACCUMULATING = windows.tumbling("1 h", allowed_lateness="5 min", emission="accumulating")


def windowed(window: windows.Window) -> Graph:
    return graph(
        node("in", read()),
        node("hourly", aggregate(window), "in"),
        node("too_late", LateMessages("hourly"), "in"),
        node("out", write(), "hourly"),
        node("aside", write(), "too_late"),
    )


def test_a_graph_without_lateness_is_left_alone() -> None:
    plain = windowed(windows.tumbling("1 h"))
    assert with_lateness(plain) == plain


@pytest.mark.parametrize(("window", "kind"), [(PATIENT, LatePanes), (ACCUMULATING, Refine)])
def test_a_window_with_lateness_becomes_a_prompt_window_and_one_for_the_late(
    window: windows.Window, kind: type
) -> None:
    made = with_lateness(windowed(window))
    on_time, late, union = (made.nodes[i] for i in ("hourly-on-time", "hourly-late", "hourly"))
    assert isinstance(on_time.operation, Aggregate)
    assert on_time.operation.window == windows.tumbling("1 h"), "fired once, at its end"
    assert isinstance(late.operation, kind)
    assert on_time.inputs == late.inputs == ("in",)
    assert isinstance(union.operation, Union)
    assert union.inputs == ("hourly-on-time", "hourly-late")
    made.check()


def test_messages_are_too_late_only_after_the_lateness() -> None:
    operation = with_lateness(windowed(PATIENT)).nodes["too_late"].operation
    assert operation == LateMessages("hourly-on-time", 300_000)
    plain = with_lateness(windowed(windows.tumbling("1 h"))).nodes["too_late"].operation
    assert plain == LateMessages("hourly", 0)


def test_the_late_and_the_prompt_window_both_stand_behind_the_fragment_that_decides() -> None:
    made = plan(windowed(PATIENT))
    assert made.fragment_of("hourly-late") is made.fragment_of("in")
    assert {(c.producer, c.consumer_fragment) for c in made.channels} >= {("in", "hourly-on-time")}


def test_a_python_aggregation_cannot_allow_lateness_and_the_error_names_it() -> None:
    operation = dataclasses.replace(fold(), window=PATIENT)
    made = graph(node("in", read()), node("hourly", operation, "in"), node("o", write(), "hourly"))
    with pytest.raises(GraphError, match=r"hourly \(app.py:1\): a Python aggregation cannot allow lateness"):
        with_lateness(made)


@pytest.mark.parametrize("taken", ["hourly-late", "hourly-on-time"])
def test_a_processor_is_never_overwritten_by_a_made_one_of_its_name(taken: str) -> None:
    clash = graph(
        node("in", read()), node("hourly", aggregate(PATIENT), "in"), node(taken, write(), "hourly")
    )
    with pytest.raises(GraphError, match=taken):
        with_lateness(clash)


@given(graphs())
@settings(max_examples=examples(50), deadline=None)
def test_every_processor_is_still_there_and_none_allows_lateness(any_graph: Graph) -> None:
    made = with_lateness(any_graph)
    made.check()
    assert set(any_graph.nodes) <= set(made.nodes)
    for n in made.nodes.values():
        if isinstance(n.operation, Aggregate):
            assert n.operation.window.allowed_lateness_ms == 0
