"""The plan: its look-ups, its plain form, and that a broken one is found out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from graph_shapes import aggregate, flat_map, graph, graphs, map_, node, read, write
from hypothesis import given, settings

from drivetrain.api.graphs.graph import Graph
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.core.plan.planner import plan
from drivetrain.errors import InternalError
from nightly_run import examples


def two_windows() -> Plan:
    return plan(
        graph(
            node("lines", read()),
            node("words", flat_map(), "lines"),
            node("first", aggregate(), "words"),
            node("second", aggregate(), "first"),
            node("again", map_(), "second"),
            node("out", write(), "again"),
        )
    )


def test_a_plan_finds_its_fragments_and_channels() -> None:
    made = two_windows()
    (channel,) = made.channels
    assert made.fragment_of("words").id == "first"
    assert made.fragment_of("out").processors == ("second", "again", "out")
    assert made.channel(channel.id) is channel
    assert made.outputs("first") == (channel,)
    assert made.outputs("second") == ()
    assert ("words", "first") in made.edges()


@given(graphs())
@settings(max_examples=examples(50), deadline=None)
def test_the_plain_form_is_json_and_has_every_part(any_graph: Graph) -> None:
    made = plan(any_graph)
    plain = json.loads(json.dumps(made.as_dict()))
    assert [f["id"] for f in plain["fragments"]] == [f.id for f in made.fragments]
    assert {o["id"] for o in plain["operators"]} == set(made.graph.nodes)
    assert [c["id"] for c in plain["channels"]] == [c.id for c in made.channels]
    assert {tuple(e) for e in plain["edges"]} == set(made.edges())


def _without_channels(made: Plan) -> Plan:
    return dataclasses.replace(made, channels=())


def _backwards(made: Plan) -> Plan:
    return dataclasses.replace(made, fragments=made.fragments[::-1])


def _second(made: Plan, change: Callable[[Fragment], Fragment]) -> Plan:
    return dataclasses.replace(made, fragments=(made.fragments[0], change(made.fragments[1])))


def _placed_twice(made: Plan) -> Plan:
    return _second(made, lambda f: dataclasses.replace(f, branches=(*f.branches, "words")))


def _lost(made: Plan) -> Plan:
    return _second(made, lambda f: dataclasses.replace(f, branches=()))


def _state_not_last(made: Plan) -> Plan:
    return _second(made, lambda f: dataclasses.replace(f, trunk=("second", "again"), branches=("out",)))


def _no_such_input(made: Plan) -> Plan:
    return _second(made, lambda f: dataclasses.replace(f, inputs=("first--another",)))


def _state_in_a_branch(made: Plan) -> Plan:
    return _second(
        made, lambda f: dataclasses.replace(f, trunk=("again",), branches=("second", "out"), stateful=None)
    )


@pytest.mark.parametrize(
    "broken",
    [
        _without_channels,
        _backwards,
        _placed_twice,
        _lost,
        _state_not_last,
        _no_such_input,
        _state_in_a_branch,
    ],
)
def test_a_broken_plan_is_found_out(broken: Callable[[Plan], Plan]) -> None:
    made = two_windows()
    made.check()
    with pytest.raises(InternalError):
        broken(made).check()
