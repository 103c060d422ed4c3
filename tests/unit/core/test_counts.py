"""Counts that follow from the few that are counted."""

from __future__ import annotations

from graph_shapes import (
    aggregate,
    filter_,
    flat_map,
    graph,
    graphs,
    map_,
    node,
    read,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Filter, FlatMap, JoinTable, Read, Table, Union, Write
from drivetrain.api.sources import text
from drivetrain.core.plan.counts import derive, rules_of
from nightly_run import examples


def test_counts_flow_from_the_source_through_a_map_into_a_filter() -> None:
    g = graph(
        node("in", read()), node("m", map_(), "in"), node("f", filter_(), "m"), node("out", write(), "f")
    )
    taken, given_ = derive(rules_of(g), {"in": 10, "f": 4}, {"out": 4})
    assert taken == {"in": None, "m": 10, "f": 10, "out": 4}
    assert given_ == {"in": 10, "m": 10, "f": 4, "out": None}


def test_what_a_sink_wrote_tells_what_was_given_to_it() -> None:
    g = graph(
        node("in", read()), node("a", aggregate(), "in"), node("m", map_(), "a"), node("out", write(), "m")
    )
    taken, given_ = derive(rules_of(g), {"in": 10}, {"out": 3})
    assert given_["a"] is None or given_["a"] == 3
    assert given_["m"] == 3
    assert taken["a"] == 10


def test_where_neither_end_is_known_the_count_is_unknown_and_not_zero() -> None:
    g = graph(node("in", read()), node("f", flat_map(), "in"), node("out", write(), "f"))
    taken, given_ = derive(rules_of(g), {}, {})
    assert set(taken.values()) == set(given_.values()) == {None}


def test_a_map_that_may_drop_messages_as_dead_letters_does_not_give_what_it_takes() -> None:
    g = graph(node("in", read()), node("m", map_("dead_letter"), "in"), node("out", write(), "m"))
    taken, given_ = derive(rules_of(g), {"in": 10}, {"out": 7})
    assert taken["m"] == 10
    assert given_["m"] == 7
    assert taken["out"] == 7


def test_the_rows_of_a_table_are_no_messages() -> None:
    g = graph(
        node("in", read()),
        node("names", Table(text("/names"))),
        node("j", JoinTable(("value",), "left"), "in", "names"),
        node("out", write(), "j"),
    )
    taken, _ = derive(rules_of(g), {"in": 10}, {})
    assert taken["j"] == 10


def test_a_union_takes_the_sum_of_its_inputs() -> None:
    g = graph(node("a", read()), node("b", read()), node("u", Union(), "a", "b"), node("out", write(), "u"))
    taken, given_ = derive(rules_of(g), {"a": 3, "b": 4}, {})
    assert taken["u"] == given_["u"] == taken["out"] == 7


@given(graphs(), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_counts_agree_with_a_run_of_the_graph_whatever_was_counted(g: Graph, data: st.DataObject) -> None:
    """A made-up run: every processor really gives some number; what is derived is never another one."""
    really_in: dict[str, int] = {}
    really_out: dict[str, int] = {}
    for n in g.nodes.values():
        streams = [i for i in n.inputs if not isinstance(g.nodes[i].operation, Table)]
        really_in[n.id] = sum(really_out[i] for i in streams)
        really_out[n.id] = _gives(n, really_in[n.id], data)
    counted = [n.id for n in g.nodes.values() if isinstance(n.operation, Read | Filter | FlatMap)]
    wrote = [n.id for n in g.nodes.values() if isinstance(n.operation, Write)]
    out = {i: really_out[i] for i in counted if data.draw(st.booleans())}
    into = {i: really_in[i] for i in wrote if data.draw(st.booleans())}
    taken, given_ = derive(rules_of(g), out, into)
    assert all(n is None or n == really_in[i] for i, n in taken.items())
    assert all(n is None or n == really_out[i] for i, n in given_.items())
    assert all(given_[i] == n for i, n in out.items())
    assert all(taken[i] == n for i, n in into.items())


def _gives(n: Node, taken: int, data: st.DataObject) -> int:
    kind = type(n.operation).__name__
    if kind in ("Union", "EventTime") or (kind == "Map" and n.operation.function.on_error == "fail"):  # type: ignore[union-attr]
        return taken
    return data.draw(st.integers(0, 50))
