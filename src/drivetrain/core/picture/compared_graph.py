"""Two versions of a graph in one picture, as data with coordinates: what is new, gone, changed and kept.

Design: `merged_shape` is placed as a plan is, so a processor of both versions has one place. Every part has a
mark, which `drivetrain plan --picture`, `drivetrain versions --picture` and the console show as a colour, a
sign, and the shape of the border. Y grows downwards, the unit is the pixel of a picture.

Called by the commands that show a difference, and by the console.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.version_comparison import SIGNS, Mark
from drivetrain.core.picture.fragment_layout import PlacedFragment
from drivetrain.core.picture.labels import (
    CHANNEL_HEIGHT,
    NAME_SIZE,
    Label,
    channel_name,
    channel_width,
    heading,
)
from drivetrain.core.picture.lettering import text_width
from drivetrain.core.picture.merged_shape import merged_shape
from drivetrain.core.picture.placed_graph import Box, placed_box
from drivetrain.core.picture.scene import Scene, place
from drivetrain.core.picture.shapes import svg_path


class ComparedFragment(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment of either version: its frame, and the panels of its `trunk` and `branches` inside it.

    `mark` is new, gone or kept.
    """

    fragment: str
    mark: str
    heading: str
    box: Box
    panels: dict[str, Box]
    stateful: str | None


class ComparedBox(msgspec.Struct, frozen=True, kw_only=True):
    """A processor of either version, where the newer one has it. A table has a box in each fragment that
    reads it.

    `mark` is new, gone, changed, kept or refused; `says` is the same, or what happens to the processor.
    `label` and `details` are the text in the box, cut to its size; `line` is where the processor is written.
    """

    processor: str
    fragment: str
    mark: str
    says: str
    label: str
    details: tuple[str, ...]
    line: str
    box: Box


class ComparedChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of either version; `mark` is new, gone or kept."""

    channel: str
    mark: str
    label: str
    box: Box


class ComparedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line, as the `d` of an SVG path; `channel` is null inside a fragment. `mark` is new, gone or kept."""

    mark: str
    channel: str | None
    path: str


class ComparedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of a graph, placed in one picture of `width` by `height` pixels."""

    application: str
    width: float
    height: float
    fragments: tuple[ComparedFragment, ...]
    processors: tuple[ComparedBox, ...]
    channels: tuple[ComparedChannel, ...]
    lines: tuple[ComparedLine, ...]


def compared_graph(
    old: GraphVersion, new: GraphVersion, marks: Mapping[str, tuple[Mark, str]]
) -> ComparedGraph:
    """Place two versions in one picture; `marks` are those of all processors, each with a word for it."""
    graph = merged_shape(old, new)
    labels = {id: _label(old, new, id, *marks[id]) for id in graph.inputs}
    scene = place(
        graph,
        {id: (label.width, label.height) for id, label in labels.items()},
        {each.id: (channel_width(each.id), CHANNEL_HEIGHT) for each in graph.channels},
        {each.id: text_width(heading(each.id), NAME_SIZE, bold=True) for each in graph.fragments},
    )
    versions = old, new
    channel_marks = {
        each.id: _mark(*(each.producer in _read(version, each.consumer_fragment) for version in versions))
        for each in graph.channels
    }
    return ComparedGraph(
        application=new.application,
        width=scene.width,
        height=scene.height,
        fragments=tuple(
            ComparedFragment(
                fragment=placed.fragment.id,
                mark=_mark(*(placed.fragment.id in version.fragments for version in versions)),
                heading=heading(placed.fragment.id),
                box=placed_box(placed.frame),
                panels={name: placed_box(panel) for name, panel in placed.panels.items()},
                stateful=placed.fragment.stateful,
            )
            for placed in scene.fragments
        ),
        processors=tuple(
            box for placed in scene.fragments for box in _boxes(placed, old, new, marks, labels)
        ),
        channels=tuple(
            ComparedChannel(
                channel=each.id,
                mark=channel_marks[each.id],
                label=channel_name(each.id),
                box=placed_box(scene.channels[each.id]),
            )
            for each in graph.channels
        ),
        lines=tuple(
            _lines(scene, old, new, channel_marks, {each.id: each.producer for each in graph.channels})
        ),
    )


def _mark(was: bool, is_now: bool) -> str:
    return Mark.KEPT.value if was and is_now else Mark.NEW.value if is_now else Mark.GONE.value


def _read(version: GraphVersion, fragment: str) -> set[str]:
    """What a fragment of a version reads through channels."""
    if fragment not in version.fragments:
        return set()
    return {input for inputs in version.producers(fragment).values() for input in inputs}


def _label(old: GraphVersion, new: GraphVersion, id: str, mark: Mark, says: str) -> Label:
    record = new.processors.get(id) or old.processors[id]
    name = f"{SIGNS[mark]} {id}".strip()
    return Label(name, record.shown, f"{id} ({record.line})\n{says}", "" if mark is Mark.KEPT else says)


def _boxes(
    placed: PlacedFragment,
    old: GraphVersion,
    new: GraphVersion,
    marks: Mapping[str, tuple[Mark, str]],
    labels: Mapping[str, Label],
) -> Iterator[ComparedBox]:
    for id, box in placed.processors.items():
        mark, says = marks[id]
        yield ComparedBox(
            processor=id,
            fragment=placed.fragment.id,
            mark=mark.value,
            says=says,
            label=labels[id].name,
            details=tuple(labels[id].details),
            line=(new.processors.get(id) or old.processors[id]).line,
            box=placed_box(box),
        )


def _lines(
    scene: Scene,
    old: GraphVersion,
    new: GraphVersion,
    channel_marks: Mapping[str, str],
    producers: Mapping[str, str],
) -> Iterator[ComparedLine]:
    def has(version: GraphVersion, upper: str, lower: str) -> bool:
        record = version.processors.get(lower)
        return record is not None and upper in record.inputs

    for edge in (*scene.lines, *scene.channel_lines):
        if edge.target is None:  # from a processor to the box of a channel
            mark = channel_marks[edge.channel or ""]
        else:
            upper = edge.source if edge.channel is None else producers[edge.channel]
            mark = _mark(*(has(version, upper or "", edge.target) for version in (old, new)))
        yield ComparedLine(mark=mark, channel=edge.channel, path=svg_path(edge.line))
