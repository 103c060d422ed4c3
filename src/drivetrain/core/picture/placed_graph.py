"""The graph of a plan as data, with the coordinates that its picture has.

Problem: a page shows the graph that `drivetrain plan --picture` draws. If the page placed the nodes itself,
they would be at other places, and would move when the page is drawn again.

Design: records of what is drawn and where, made from a plan. Y grows downwards, the unit is the pixel of a
picture.

Called by the console, which plans the code of an application in a process of its own, and by an embedded run,
for its own console.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from drivetrain.core.picture.fragment_layout import PlacedFragment
from drivetrain.core.picture.labels import Picture, channel_name, heading, picture_of
from drivetrain.core.picture.shapes import Rectangle, svg_path
from drivetrain.core.plan.plan import Plan


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle by its left upper corner; y grows downwards, the unit is the pixel of a picture."""

    x: float
    y: float
    width: float
    height: float


class GraphFragment(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment: its frame, and the panels of its `trunk` and `branches` inside it.

    `stateful` is the processor that keeps state; `obstacles` are what keeps it from Spark's real-time mode.
    """

    fragment: str
    heading: str
    box: Box
    panels: dict[str, Box]
    stateful: str | None
    is_realtime: bool
    obstacles: tuple[str, ...]


class GraphProcessor(msgspec.Struct, frozen=True, kw_only=True):
    """A processor in a fragment. A table that several fragments read has a box in each of them.

    `how` is source, native, lowered, arrow, task or sink, and `why` the reason; `place` is state, trunk or
    branch; `line` is where it was written. `label` and `details` are cut to the size of the box.
    """

    processor: str
    fragment: str
    kind: str
    how: str
    why: str
    text: str
    line: str
    place: str
    columns: str | None
    label: str
    details: tuple[str, ...]
    box: Box


class GraphChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, from the processor `producer` in the fragment `producer_fragment`."""

    channel: str
    producer: str
    producer_fragment: str
    subscriber_fragment: str
    why: str
    label: str
    box: Box


class GraphLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line, as the `d` of an SVG path. It joins two processors; or a processor and the box of a channel
    (`target` null); or that box and a processor (`source` null)."""

    source: str | None
    target: str | None
    channel: str | None
    path: str


class GraphSink(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink guarantees in this application, and why not more."""

    processor: str
    target: str
    guarantee: str
    why: str


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A planned graph, placed in a picture of `width` by `height` pixels."""

    application: str
    guarantee: str
    delivery: str
    latency: str
    is_bounded: bool
    width: float
    height: float
    fragments: tuple[GraphFragment, ...]
    processors: tuple[GraphProcessor, ...]
    channels: tuple[GraphChannel, ...]
    lines: tuple[GraphLine, ...]
    sinks: tuple[GraphSink, ...]


def graph_of(plan: Plan) -> Graph:
    """The graph of a plan, with the coordinates that its picture has."""
    picture = picture_of(plan)
    scene = picture.scene
    return Graph(
        application=plan.application,
        guarantee=plan.guarantee,
        delivery=plan.delivery,
        latency=plan.latency,
        is_bounded=plan.bounded,
        width=scene.width,
        height=scene.height,
        fragments=tuple(_fragment(plan, placed) for placed in scene.fragments),
        processors=tuple(each for placed in scene.fragments for each in _processors(plan, picture, placed)),
        channels=tuple(
            GraphChannel(
                channel=channel.id,
                producer=channel.producer,
                producer_fragment=channel.producer_fragment,
                subscriber_fragment=channel.consumer_fragment,
                why=channel.why,
                label=channel_name(channel.id),
                box=placed_box(scene.channels[channel.id]),
            )
            for channel in plan.channels
        ),
        lines=tuple(
            GraphLine(source=edge.source, target=edge.target, channel=edge.channel, path=svg_path(edge.line))
            for edge in (*scene.lines, *scene.channel_lines)
        ),
        sinks=tuple(
            GraphSink(processor=sink.id, target=sink.target, guarantee=sink.guarantee, why=sink.why)
            for sink in plan.sinks
        ),
    )


def _fragment(plan: Plan, placed: PlacedFragment) -> GraphFragment:
    id = placed.fragment.id
    return GraphFragment(
        fragment=id,
        heading=heading(id),
        box=placed_box(placed.frame),
        panels={name: placed_box(panel) for name, panel in placed.panels.items()},
        stateful=placed.fragment.stateful,
        is_realtime=plan.is_realtime(id),
        obstacles=tuple(map(str, plan.obstacles.get(id, ()))),
    )


def _processors(plan: Plan, picture: Picture, placed: PlacedFragment) -> Iterator[GraphProcessor]:
    fragment = placed.fragment
    for id, box in placed.processors.items():
        operator, label = plan.operators[id], picture.labels[id]
        yield GraphProcessor(
            processor=id,
            fragment=fragment.id,
            kind=operator.kind,
            how=operator.how,
            why=operator.why,
            text=operator.text,
            line=operator.where,
            place="state" if id == fragment.stateful else "trunk" if id in fragment.trunk else "branch",
            columns=operator.columns,
            label=label.name,
            details=tuple(label.details),
            box=placed_box(box),
        )


def placed_box(box: Rectangle) -> Box:
    """A rectangle as data."""
    return Box(x=box.x, y=box.y, width=box.width, height=box.height)
