"""The graph of an application with coordinates, as `drivetrain plan --picture` draws it.

Called by `console.planning.answers`, which makes these in a process of its own.
"""

from __future__ import annotations

import msgspec


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


class ApplicationSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that an application declares; `value` is the one it was planned with (`***` for a secret)."""

    name: str
    kind: str
    value: str | None
    is_required: bool
    description: str


class PlannedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload as it would run: the name it would have, its settings and its graph.

    `graph` is null for an application with an application master of its own.
    """

    name: str
    settings: tuple[ApplicationSetting, ...]
    graph: Graph | None
