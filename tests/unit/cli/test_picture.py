"""Pictures of plans: everything has its place, nothing overlaps, and the text is valid SVG."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import pytest

from drivetrain.cli.views.picture import draw
from drivetrain.core.picture.graph_shape import shape_of
from drivetrain.core.picture.lettering import fitted, text_width, wrapped
from drivetrain.core.picture.scene import Scene, place
from drivetrain.core.picture.shapes import Rectangle
from drivetrain.core.plan.plan import Plan
from example_plans import PLANS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]()


def scene_of(plan: Plan) -> Scene:
    return place(
        shape_of(plan),
        {id: (60.0 + 17 * (number % 9), 50.0) for number, id in enumerate(plan.operators)},
        {channel.id: (150.0, 40.0) for channel in plan.channels},
        {fragment.id: 140.0 for fragment in plan.fragments},
    )


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return (
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def inside(inner: Rectangle, outer: Rectangle) -> bool:
    return (
        inner.x >= outer.x
        and inner.y >= outer.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


def leaves(box: Rectangle, x: float, y: float) -> bool:
    return box.x <= x <= box.x + box.width and y == pytest.approx(box.y + box.height)


def test_no_two_frames_or_channels_or_processors_overlap(plan: Plan) -> None:
    scene = scene_of(plan)
    outer = [placed.frame for placed in scene.fragments] + list(scene.channels.values())
    assert not [pair for pair in combinations(outer, 2) if overlap(*pair)]
    for placed in scene.fragments:
        assert not [pair for pair in combinations(placed.processors.values(), 2) if overlap(*pair)]


def test_every_processor_is_in_the_panel_of_its_part_and_every_panel_in_its_frame(plan: Plan) -> None:
    for placed in scene_of(plan).fragments:
        assert set(placed.fragment.processors) <= set(placed.processors)
        for panel in placed.panels.values():
            assert inside(panel, placed.frame)
        for id, box in placed.processors.items():
            part = "branches" if id in placed.fragment.branches else "trunk"
            if id in placed.fragment.processors:
                assert inside(box, placed.panels[part]), id
            else:  # a table stands with those who read it
                assert any(inside(box, panel) for panel in placed.panels.values()), id


def test_every_edge_is_a_line_from_box_to_box(plan: Plan) -> None:
    scene = scene_of(plan)
    boxes = [box for placed in scene.fragments for box in placed.processors.values()]
    boxes += scene.channels.values()
    for line in (edge.line for edge in scene.lines + scene.channel_lines):
        (x, y), (to_x, to_y) = line[0], line[-1]
        assert any(
            box.x <= x <= box.x + box.width and y == pytest.approx(box.y + box.height) for box in boxes
        )
        assert any(box.x <= to_x <= box.x + box.width and to_y == pytest.approx(box.y) for box in boxes)
        assert len(line) % 2 == 0
    assert len(scene.channel_lines) >= 2 * len(plan.channels)


def test_lines_pass_beside_processors_not_through_them(plan: Plan) -> None:
    scene = scene_of(plan)
    for placed in scene.fragments:
        for line in (edge.line for edge in scene.lines + scene.channel_lines):
            for (x, top), (_, bottom) in zip(line[1::2], line[2::2], strict=False):
                straight = Rectangle(x, top, 0.1, bottom - top)
                assert not [id for id, box in placed.processors.items() if overlap(straight, box)]


def test_picture_is_valid_svg_and_names_everything_of_the_plan(plan: Plan) -> None:
    root = ElementTree.fromstring(draw(plan))
    groups = [(g.get("class"), g.get("data-id")) for g in root.iter(f"{SVG}g") if g.get("data-id")]
    for id in plan.operators:
        assert ("processor", id) in groups
    for fragment in plan.fragments:
        assert ("fragment", fragment.id) in groups
    for channel in plan.channels:
        assert ("channel", channel.id) in groups
    assert root.get("aria-label") == f"Plan of {plan.application}"


def test_legend_explains_the_colours_that_are_used_and_no_others() -> None:
    texts = {text.text for text in ElementTree.fromstring(draw(PLANS["wordcount"]())).iter(f"{SVG}text")}
    assert {"source", "native Spark", "Python over Arrow", "sink", "keeps state"} <= texts
    assert not texts & {"Task with state", "channel"}


def test_text_that_does_not_fit_is_cut_with_an_ellipsis() -> None:
    assert fitted("short", 10, 100) == "short"
    cut = fitted("a text that is far too long", 10, 80)
    assert cut.endswith("…")
    assert text_width(cut, 10) <= 80


def test_text_is_wrapped_between_words_and_the_rest_is_cut_off() -> None:
    lines = wrapped("one two three four five six seven", 10, 70, lines=2)
    assert len(lines) == 2
    assert all(text_width(line, 10) <= 70 for line in lines)
    assert lines[0] == "one two"
    assert lines[1].endswith("…")
    assert wrapped("one", 10, 70, lines=2) == ["one"]
