"""What the plan says of processors and sinks."""

from __future__ import annotations

from typing import Any

import pytest
from graph_shapes import STATEFUL, STATELESS, aggregate, fold, graph, graphs, map_, node, read, task, write
from hypothesis import given, settings

from drivetrain.api import sinks, sources
from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import (
    Filter,
    Function,
    JoinStream,
    JoinTable,
    LateMessages,
    LatePanes,
    Log,
    Process,
    Read,
    Refine,
    Select,
    Write,
    sink_text,
)
from drivetrain.api.types import message_type
from drivetrain.api.windows import tumbling
from drivetrain.core.plan.explain import describe, guarantees
from drivetrain.core.plan.planner import plan
from nightly_run import examples

A_FUNCTION = Function(bool, message_type(bool), ("value",))
PATIENT = aggregate(tumbling("1 h", allowed_lateness="5 min"))


def told(operation: Any) -> tuple[str, str]:
    described = describe(node("x", operation))
    return described.how, described.text


@pytest.mark.parametrize(
    ("operation", "how", "text"),
    [
        (read(), "source", "TextFiles /in"),
        (map_(), "arrow", "→ value string"),
        (Filter(A_FUNCTION), "arrow", "by a function"),
        (STATELESS["filter"](), "native", "(value != '')"),
        (Select((("n", A_FUNCTION),)), "arrow", "n"),
        (aggregate(), "native", "n=count() by value in tumbling(1 h)"),
        (fold(), "task", "ReduceMonoid by value in tumbling(1 h)"),
        (task(), "arrow", "Echo × 1, by shuffle"),
        (task(stateful=True), "task", "Echo × 1, by shuffle"),
        (STATEFUL["deduplicate"](), "task", "first of value within 1 s"),
        (JoinStream(("k",), 1000, "left"), "native", "left on k within 1 s"),
        (JoinTable(("k",), "inner"), "native", "inner on k"),
        (LateMessages("hourly"), "native", "messages too late for hourly"),
        (LatePanes(PATIENT), "native", "late messages of each batch, up to 5 min late"),
        (Refine(PATIENT), "native", "whole results again, up to 5 min late"),
        (Log(7), "sink", "up to 7 messages a batch"),
        (Write(sinks.csv("out/")), "sink", "FileSink out/ (csv)"),
    ],
)
def test_every_kind_of_processor_is_told_in_a_line(operation: Any, how: str, text: str) -> None:
    assert told(operation) == (how, text)


@given(graphs())
@settings(max_examples=examples(50), deadline=None)
def test_every_processor_of_any_graph_is_told_with_its_reason(any_graph: Graph) -> None:
    made = plan(any_graph)
    for operator in made.operators.values():
        assert operator.why
        assert operator.text
        assert operator.where == "app.py:1"
        assert (operator.parallelism is None) != isinstance(made.graph.nodes[operator.id].operation, Process)


@pytest.mark.parametrize(
    ("operation", "may"),
    [
        (map_(), False),
        (map_("dead_letter"), True),
        (Filter(Function(bool, message_type(bool), ("value",), "dead_letter")), True),
        (read(), False),
        (Read(sources.json("/in", schema="a int", on_bad_record="dead_letter")), True),
        (aggregate(), False),
    ],
)
def test_who_may_send_dead_letters(operation: Any, may: bool) -> None:
    assert operation.sets_aside is may


def test_the_functions_of_keys_and_columns_are_found() -> None:
    keyed = fold()
    keyed = type(keyed)((("k", A_FUNCTION),), keyed.window, keyed.monoid, keyed.result, keyed.name)
    assert keyed.functions == (A_FUNCTION,)
    assert Select((("a", A_FUNCTION), (None, PATIENT.keys[0][1]))).functions == (A_FUNCTION,)
    assert write().functions == ()


def test_the_weakest_sink_is_what_the_application_guarantees() -> None:
    nodes: list[Node] = [
        node("in", read()),
        node("files", Write(sinks.parquet("out/")), "in"),
        node("shown", Write(sinks.console()), "in"),
    ]
    each, all_ = guarantees(graph(*nodes))
    assert {s.id: s.guarantee for s in each} == {"files": "exactly once", "shown": "at least once"}
    assert all_ == "at least once"
    assert guarantees(graph(*nodes[:2]))[1] == "exactly once"


def test_a_source_that_cannot_be_read_again_limits_what_sinks_give() -> None:
    made = graph(node("wire", Read(sources.socket("localhost", 9))), node("out", write(), "wire"))
    (sink,), _ = guarantees(made)
    assert "wire: what was not stored yet" in sink.why


def test_a_sink_is_named_with_its_place_and_format() -> None:
    assert sink_text(sinks.json("out/late")) == "FileSink out/late (json)"
    assert sink_text(sinks.none()) == "NullSink"
