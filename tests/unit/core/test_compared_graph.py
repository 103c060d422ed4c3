"""Two versions in one picture: everything of both has a place and a mark, whatever the versions are."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from graph_shapes import aggregate, filter_, graph, graphs, map_, node, read, write
from hypothesis import given, settings

from drivetrain.api import windows
from drivetrain.api.graphs.graph import Graph
from drivetrain.core.change.difference import difference
from drivetrain.core.change.graph_version import GraphVersion, version_of
from drivetrain.core.change.version_comparison import Mark, compare_versions, marks_of
from drivetrain.core.picture.compared_graph import ComparedGraph, compared_graph
from drivetrain.core.picture.merged_shape import merged_shape
from drivetrain.core.picture.placed_graph import Box
from drivetrain.core.plan.planner import plan
from nightly_run import examples


def version(of: Graph) -> GraphVersion:
    return version_of(plan(of), lambda operation: type(operation).__name__)


def compared(old: GraphVersion, new: GraphVersion) -> ComparedGraph:
    return compared_graph(old, new, compare_versions(old, new).marks)


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


@settings(max_examples=examples(80))
@given(graphs(), graphs())
def test_any_two_versions_have_a_picture_in_which_nothing_overlaps_and_nothing_is_missing(
    one: Graph, other: Graph
) -> None:
    old, new = version(one), version(other)
    picture = compared(old, new)
    for boxes in (
        [each.box for each in picture.fragments] + [each.box for each in picture.channels],
        [each.box for each in picture.processors],
    ):
        assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    placed = [each.processor for each in picture.processors if each.processor != "table"]
    assert sorted(placed) == sorted({*old.processors, *new.processors} - {"table"})
    assert compared(old, new) == picture, "the same picture each time"


@settings(max_examples=examples(80))
@given(graphs(), graphs())
def test_a_merged_graph_leads_forward_and_has_all_edges_of_the_newer_version(
    one: Graph, other: Graph
) -> None:
    old, new = version(one), version(other)
    shape = merged_shape(old, new)
    home = {id: each.id for each in shape.fragments for id in each.processors}
    seen: set[str] = set()
    for id, inputs in shape.inputs.items():
        assert seen.issuperset(inputs)
        seen.add(id)
    order = {each.id: number for number, each in enumerate(shape.fragments)}
    for channel in shape.channels:
        assert order[channel.producer_fragment] < order[channel.consumer_fragment]
    for id, record in new.processors.items():
        assert set(record.inputs) <= set(shape.inputs[id])
    for id, inputs in shape.inputs.items():
        for upper in set(inputs) & home.keys():
            if id in home and home[upper] != home[id]:
                assert [c for c in shape.channels if (c.producer, c.consumer_fragment) == (upper, home[id])]


@settings(max_examples=examples(60))
@given(graphs(), graphs())
def test_marks_agree_with_the_versions_and_mirror_each_other(one: Graph, other: Graph) -> None:
    old, new = version(one), version(other)
    there, back = compare_versions(old, new), compare_versions(new, old)
    mirrored = {Mark.NEW: Mark.GONE, Mark.GONE: Mark.NEW, Mark.CHANGED: Mark.CHANGED, Mark.KEPT: Mark.KEPT}
    assert {each.id: mirrored[each.mark] for each in there.processors} == {
        each.id: each.mark for each in back.processors
    }
    for each in there.processors:
        assert (each.mark is Mark.CHANGED) == bool(each.why)
    assert compare_versions(new, new).is_empty
    picture = compared(old, new)
    for fragment in picture.fragments:
        assert (fragment.mark == "new") == (fragment.fragment not in old.fragments)


BEFORE = graph(
    node("read", read()),
    node("large", filter_(), "read"),
    node("counted", aggregate(), "large"),
    node("upper", map_(), "counted"),
    node("out", write(), "upper"),
)
AFTER = graph(
    node("read", read()),
    node("counted", aggregate(), "read"),
    node("upper", map_(), "counted"),
    node("hourly", aggregate(), "upper"),
    node("hourly_out", write(), "hourly"),
    node("out", write(), "upper"),
)


def test_what_differs_is_said_part_by_part() -> None:
    old, new = version(BEFORE), version(AFTER)
    code = msgspec.structs.replace(new.processors["upper"], fingerprint="another", line="app.py:9")
    moved = msgspec.structs.replace(new.processors["out"], line="app.py:100")
    new = msgspec.structs.replace(new, processors={**new.processors, "upper": code, "out": moved})
    found = {each.id: each for each in compare_versions(old, new).processors}
    assert {id: each.mark.value for id, each in found.items()} == {
        "read": "kept",
        "counted": "changed",
        "upper": "changed",
        "hourly": "new",
        "hourly_out": "new",
        "out": "kept",
        "large": "gone",
    }
    assert found["counted"].why == "it reads from read, no longer from large"
    assert found["upper"].why == "its code has changed"
    assert found["hourly"].fragment_after == "hourly"


def test_lines_and_channels_have_marks_and_gone_lines_are_drawn() -> None:
    picture = compared(version(BEFORE), version(AFTER))
    assert {each.channel: each.mark for each in picture.channels} == {"upper--hourly": "new"}
    marks = [each.mark for each in picture.lines]
    assert marks.count("gone") == 2, "from read to large, and on to counted"
    assert marks.count("new") == 4, "to counted, into the channel and out of it, to hourly_out"
    signs = {each.processor: each.label[0] for each in picture.processors if each.mark != "kept"}
    assert signs == {"counted": "~", "hourly": "+", "hourly_out": "+", "large": "−"}
    assert picture.processors[0].details[0] != picture.processors[0].mark, "what is kept says nothing"


@pytest.mark.parametrize("word", ["started", "refused", "restarted", "swapped"])
def test_a_difference_colours_the_same_picture_with_what_happens(word: str) -> None:
    old, new = version(BEFORE), version(AFTER)
    if word == "swapped":
        new = version(BEFORE)
        changed = msgspec.structs.replace(new.processors["upper"], fingerprint="another")
        new = msgspec.structs.replace(new, processors={**new.processors, "upper": changed})
    if word == "refused":
        nodes = {**BEFORE.nodes, "counted": node("counted", aggregate(windows.tumbling("2 h")), "large")}
        new = version(Graph(BEFORE.name, nodes))
    picture = compared_graph(old, new, marks_of(difference(old, new)))
    says = {each.says: each.mark for each in picture.processors}
    assert says[word] == {"started": "new", "refused": "refused"}.get(word, "changed")
