"""The planner: what is fused, what is cut and why, for graphs told one by one and for any graph."""

from __future__ import annotations

import itertools

import pytest
from graph_shapes import (
    STATEFUL,
    STATELESS,
    aggregate,
    chains,
    filter_,
    flat_map,
    fold,
    graph,
    graphs,
    map_,
    node,
    read,
    task,
    trees,
    write,
)
from hypothesis import given, settings

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.operations import JoinStream, JoinTable, Process, Read, Table, Union
from drivetrain.api.sources import text
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan
from nightly_run import examples


def fragments(made: Plan) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(f.trunk, f.branches) for f in made.fragments]


def channels(made: Plan) -> set[tuple[str, str]]:
    return {(c.producer, c.consumer_fragment) for c in made.channels}


# -- graphs told one by one ---------------------------------------------------------------------------


def test_the_common_job_is_one_query_with_its_state_at_the_end_of_the_trunk() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("words", flat_map(), "lines"),
            node("counts", aggregate(), "words"),
            node("out", write(), "counts"),
        )
    )
    assert fragments(made) == [(("lines", "words", "counts"), ("out",))]
    assert made.fragments[0].inputs == ("lines",)
    assert made.fragments[0].stateful == "counts"
    assert made.channels == ()


def test_only_the_source_of_a_stateless_fragment_is_trunk_so_that_all_else_can_be_swapped() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("a", map_(), "lines"),
            node("b", filter_(), "a"),
            node("out", write(), "b"),
        )
    )
    assert fragments(made) == [(("lines",), ("a", "b", "out"))]


def test_two_stateful_operators_in_a_row_have_a_channel_between_them() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("first", aggregate(), "lines"),
            node("between", map_(), "first"),
            node("second", aggregate(), "between"),
            node("out", write(), "second"),
        )
    )
    assert fragments(made) == [(("lines", "first"), ("between",)), (("second",), ("out",))]
    (channel,) = made.channels
    assert (channel.producer, channel.producer_fragment, channel.consumer_fragment) == (
        "between",
        "first",
        "second",
    )
    assert "both keep state" in channel.why
    assert made.fragments[1].inputs == (channel.id,)


def test_a_stateful_operator_whose_producer_feeds_others_is_behind_a_channel() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("words", flat_map(), "lines"),
            node("counts", aggregate(), "words"),
            node("raw", write(), "words"),
            node("out", write(), "counts"),
        )
    )
    assert channels(made) == {("words", "counts")}
    assert "also feeds other processors" in made.channels[0].why


def test_a_stateful_operator_is_behind_a_channel_when_something_before_its_producer_feeds_others() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("raw", write(), "lines"),
            node("words", flat_map(), "lines"),
            node("counts", aggregate(), "words"),
            node("out", write(), "counts"),
        )
    )
    assert channels(made) == {("words", "counts")}


def test_dead_letters_count_as_somebody_else_who_is_fed() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("words", map_("dead_letter"), "lines"),
            node("counts", aggregate(), "words"),
            node("out", write(), "counts"),
        )
    )
    assert channels(made) == {("words", "counts")}
    assert made.channels[0].why == "words also feeds the dead letters"


def test_a_cut_makes_a_channel_and_says_who_asked() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("a", map_(), "lines", cut=True),
            node("b", map_(), "a"),
            node("out", write(), "b"),
        )
    )
    assert fragments(made) == [(("lines",), ("a",)), ((), ("b", "out"))]
    assert made.channels[0].why == "the application asks for it with cut()"


def test_stateless_consumers_of_a_cut_share_the_fragment_behind_it() -> None:
    made = plan(
        graph(
            node("lines", read(), cut=True),
            node("a", map_(), "lines"),
            node("b", map_(), "lines"),
            node("out-a", write(), "a"),
            node("out-b", write(), "b"),
        )
    )
    assert fragments(made) == [(("lines",), ()), ((), ("a", "b", "out-a", "out-b"))]
    assert len(made.channels) == 1


def test_a_branch_behind_a_cut_does_not_join_a_fragment_that_has_become_stateful() -> None:
    made = plan(
        graph(
            node("lines", read(), cut=True),
            node("a", map_(), "lines"),
            node("counts", aggregate(), "a"),
            node("out-a", write(), "counts"),
            node("b", map_(), "lines"),
            node("out-b", write(), "b"),
        )
    )
    assert fragments(made) == [
        (("lines",), ()),
        (("a", "counts"), ("out-a",)),
        ((), ("b", "out-b")),
    ]
    assert channels(made) == {("lines", "counts"), ("lines", "b")}


def test_a_branch_behind_a_cut_is_not_lost_when_its_neighbour_was_fused_into_a_union() -> None:
    made = plan(
        graph(
            node("other", read()),
            node("lines", read(), cut=True),
            node("a", map_(), "lines"),
            node("both", Union(), "other", "a"),
            node("out-a", write(), "both"),
            node("b", map_(), "lines"),
            node("out-b", write(), "b"),
        )
    )
    fused = made.fragment_of("both")
    assert fused is made.fragment_of("a")
    assert fused.trunk == ("other", "a", "both")
    assert set(fused.inputs) == {"other", *(c.id for c in made.channels if c.consumer_fragment == fused.id)}
    assert made.fragment_of("b") is not fused


def test_two_readers_of_one_cut_do_not_become_one_query_with_two_channels_of_the_same_messages() -> None:
    made = plan(
        graph(
            node("lines", read(), cut=True),
            node("other", read(), cut=True),
            node("a", map_(), "lines"),
            node("both", Union(), "lines", "other"),
            node("all", Union(), "a", "both"),
            node("out", write(), "all"),
        )
    )
    assert channels(made) == {
        ("lines", "a"),
        ("lines", "both"),
        ("other", "both"),
        ("a", "all"),
        ("both", "all"),
    }


def test_two_sources_unioned_into_one_aggregate_are_one_query() -> None:
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("both", Union(), "left", "right"),
            node("counts", aggregate(), "both"),
            node("out", write(), "counts"),
        )
    )
    assert fragments(made) == [(("left", "right", "both", "counts"), ("out",))]
    assert set(made.fragments[0].inputs) == {"left", "right"}


def test_a_union_of_sources_that_feed_others_reads_channels() -> None:
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("aside", write(), "left"),
            node("both", Union(), "left", "right"),
            node("out", write(), "both"),
        )
    )
    assert channels(made) == {("left", "both"), ("right", "both")}
    assert made.fragment_of("both").trunk == ("both",)


def test_a_second_union_inside_a_joined_fragment_is_a_branch() -> None:
    """What feeds a sink on the way must not be inside the trunk: only its end is at hand per batch."""
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("both", Union(), "left", "right"),
            node("a", filter_(), "both"),
            node("aside", write(), "a"),
            node("b", filter_(), "both"),
            node("again", Union(), "a", "b"),
            node("out", write(), "again"),
        )
    )
    assert fragments(made) == [(("left", "right", "both"), ("a", "aside", "b", "again", "out"))]


def test_a_union_with_dead_letters_on_one_side_reads_channels() -> None:
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("risky", map_("dead_letter"), "left"),
            node("both", Union(), "risky", "right"),
            node("out", write(), "both"),
        )
    )
    assert channels(made) == {("risky", "both"), ("right", "both")}


def test_a_task_of_two_sources_joins_them_in_its_trunk() -> None:
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("task", task(2), "left", "right"),
            node("out", write(), "task"),
        )
    )
    assert fragments(made) == [(("left", "right", "task"), ("out",))]


def test_a_task_of_two_inputs_that_feed_others_gets_a_channel_from_each() -> None:
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("aside", write(), "left"),
            node("task", task(2), "left", "right"),
            node("out", write(), "task"),
        )
    )
    assert channels(made) == {("left", "task"), ("right", "task")}


def test_a_join_of_two_sources_is_one_query_and_a_self_join_through_branches_is_not() -> None:
    join = JoinStream(("value",), 1000, "inner")
    made = plan(
        graph(
            node("left", read()),
            node("right", read()),
            node("join", join, "left", "right"),
            node("out", write(), "join"),
        )
    )
    assert fragments(made) == [(("left", "right", "join"), ("out",))]
    diamond = plan(
        graph(
            node("left", read()),
            node("a", filter_(), "left"),
            node("b", filter_(), "left"),
            node("join", join, "a", "b"),
            node("out", write(), "join"),
        )
    )
    assert channels(diamond) == {("a", "join"), ("b", "join")}


def test_a_table_is_in_no_fragment() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("names", Table(text("/names"))),
            node("named", JoinTable(("value",), "left"), "lines", "names"),
            node("out", write(), "named"),
        )
    )
    assert fragments(made) == [(("lines",), ("named", "out"))]
    assert made.operators["names"].how == "source"


def test_state_after_a_table_that_is_read_again_is_behind_a_channel() -> None:
    made = plan(
        graph(
            node("lines", read()),
            node("names", Table(text("/names"), refresh_ms=60_000)),
            node("named", JoinTable(("value",), "left", refreshed=True), "lines", "names"),
            node("kept", filter_(), "named"),
            node("s", aggregate(), "kept"),
            node("out", write(), "s"),
        )
    )
    assert channels(made) == {("kept", "s")}
    assert made.channels[0].why == "the table of named is read again, for batches of a query of its own"
    assert made.operators["names"].text.endswith(", read again every 1 min")


@pytest.mark.parametrize("stateful", [aggregate, fold, lambda: task(stateful=True)])
def test_every_stateful_operator_names_its_fragment(stateful: object) -> None:
    made = plan(graph(node("in", read()), node("s", stateful(), "in"), node("out", write(), "s")))  # type: ignore[operator]
    assert [f.id for f in made.fragments] == ["s"]


# -- exact answers for simple shapes ------------------------------------------------------------------


@given(chains())
@settings(max_examples=examples(150), deadline=None)
def test_a_chain_is_cut_exactly_where_it_must_be(chain: Graph) -> None:
    """One pass along the chain: cut on request, and before a state when there is one or dead letters."""
    nodes = list(chain.nodes.values())
    expected, state, letters = [], False, False
    for up, down in itertools.pairwise(nodes):
        state, letters = state or up.operation.keeps_state, letters or up.operation.sets_aside
        if up.cut or (down.operation.keeps_state and (state or letters)):
            expected.append(up.id)
            state = letters = False
    assert [c.producer for c in plan(chain).channels] == expected


@given(trees())
@settings(max_examples=examples(150), deadline=None)
def test_a_tree_is_cut_exactly_where_it_must_be(tree: Graph) -> None:
    expected: set[str] = set()
    # Of every node: what stands between the last channel and it (itself included).
    above: dict[str, list[str]] = {}
    for n in tree.nodes.values():
        path = above[n.inputs[0]] if n.inputs else []
        if n.operation.keeps_state and any(
            tree.nodes[i].operation.keeps_state
            or tree.nodes[i].operation.sets_aside
            or len(tree.consumers(i)) > 1
            for i in path
        ):
            expected.add(n.id)
            path = []
        above[n.id] = [*path, n.id]
    made = plan(tree)
    assert {c.consumer_fragment for c in made.channels} == expected
    assert len(made.fragments) == len(expected) + 1


# -- what holds for any graph -------------------------------------------------------------------------


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_every_processor_but_tables_runs_in_one_fragment(any_graph: Graph) -> None:
    made = plan(any_graph)
    placed = sorted(p for f in made.fragments for p in f.processors)
    assert placed == sorted(n.id for n in made.graph.nodes.values() if not isinstance(n.operation, Table))
    assert len({f.id for f in made.fragments}) == len(made.fragments)


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_fragment_keeps_one_state_at_most_and_at_the_end_of_its_trunk(any_graph: Graph) -> None:
    made = plan(any_graph)
    for f in made.fragments:
        states = [p for p in f.processors if made.graph.nodes[p].operation.keeps_state]
        assert states == ([] if f.stateful is None else [f.stateful])
        assert f.stateful is None or f.trunk[-1] == f.stateful


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_an_edge_is_inside_a_fragment_or_has_one_channel_that_leads_forward(any_graph: Graph) -> None:
    made = plan(any_graph)
    order = {f.id: i for i, f in enumerate(made.fragments)}
    needed: set[tuple[str, str]] = set()
    for up, down in made.edges():
        if isinstance(made.graph.nodes[up].operation, Table):
            continue
        ours, theirs = made.fragment_of(up), made.fragment_of(down)
        if ours is not theirs:
            needed.add((up, theirs.id))
            assert order[ours.id] < order[theirs.id]
        elif made.graph.nodes[up].cut:
            raise AssertionError(f"{up} is cut, and {down} is in its fragment")
    assert channels(made) == needed
    assert len({c.id for c in made.channels}) == len(made.channels)


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_the_inputs_of_a_fragment_are_its_sources_and_the_channels_into_it(any_graph: Graph) -> None:
    made = plan(any_graph)
    for f in made.fragments:
        reads = [p for p in f.processors if isinstance(made.graph.nodes[p].operation, Read)]
        into = [c.id for c in made.channels if c.consumer_fragment == f.id]
        assert sorted(f.inputs) == sorted(reads + into)
        for id in into:
            assert made.channel(id).producer_fragment == made.fragment_of(made.channel(id).producer).id


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_trunk_feeds_nothing_but_its_own_end(any_graph: Graph) -> None:
    """Per batch only the result of the trunk is at hand: nobody else may read what is inside it."""
    made = plan(any_graph)
    for f in made.fragments:
        for p in f.trunk[:-1]:
            assert {n.id for n in made.graph.consumers(p)} <= set(f.trunk)
            assert not made.graph.nodes[p].operation.sets_aside
            assert p not in {c.producer for c in made.channels}


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_branch_reads_the_end_of_the_trunk_or_another_branch(any_graph: Graph) -> None:
    made = plan(any_graph)
    for f in made.fragments:
        if f.trunk:
            at_hand = {f.trunk[-1], *f.branches}
        else:
            (channel,) = f.inputs
            at_hand = {made.channel(channel).producer, *f.branches}
        for p in f.branches:
            ups = made.graph.nodes[p].inputs
            assert {u for u in ups if not isinstance(made.graph.nodes[u].operation, Table)} <= at_hand


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_fragment_of_several_inputs_joins_them_in_its_trunk(any_graph: Graph) -> None:
    made = plan(any_graph)
    for f in made.fragments:
        if len(f.inputs) < 2:
            continue
        end = made.graph.nodes[f.trunk[-1]]
        assert end.operation.keeps_state or isinstance(end.operation, Union | Process)
        reached, stack = set(), [end.id]
        while stack:
            for up in made.graph.nodes[stack.pop()].inputs:
                if up in f.trunk and up not in reached:
                    reached.add(up)
                    stack.append(up)
        assert reached == set(f.trunk[:-1])


@given(graphs())
@settings(max_examples=examples(100), deadline=None)
def test_every_channel_has_one_of_the_four_reasons(any_graph: Graph) -> None:
    made = plan(any_graph)
    nodes = made.graph.nodes
    for c in made.channels:
        producer = made.fragment_of(c.producer)
        readers = [
            n for n in made.graph.consumers(c.producer) if made.fragment_of(n.id).id == c.consumer_fragment
        ]
        stateful = any(n.operation.keeps_state for n in readers)
        joins = any(
            len({u for u in n.inputs if not isinstance(nodes[u].operation, Table)}) > 1 for n in readers
        )
        roots = [made.channel(i).producer for i in producer.inputs if not producer.trunk]
        fed = [len(made.graph.consumers(p)) > 1 or nodes[p].operation.sets_aside for p in producer.processors]
        fed += [len(made.graph.consumers(p)) > 1 for p in roots]
        assert (
            nodes[c.producer].cut
            or (stateful and producer.stateful is not None)
            or (stateful and any(fed))
            or joins
        ), c


def test_the_shapes_that_are_drawn_cover_every_kind() -> None:
    assert {*STATELESS, *STATEFUL} == {
        "map", "letters", "flat_map", "filter", "event_time", "task",
        "aggregate", "fold", "deduplicate", "match", "stateful_task",
    }  # fmt: skip
