"""Places all parts of a picture: fragments, the channels between them, all lines.

Design: each fragment is laid out separately first; then the fragments are placed in bands, one below the
other, with the channels between them as boxes, by the method that places processors inside a fragment.

Invariants:
1. No two frames or channels overlap.
2. Every edge of the graph is one line, or two that meet at a channel's box.

Called by `core.picture.labels` and `core.picture.compared_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from drivetrain.core.picture.fragment_layout import Block, FragmentLayout, PlacedFragment
from drivetrain.core.picture.graph_shape import ChannelShape, GraphShape
from drivetrain.core.picture.layered import Link, arrange
from drivetrain.core.picture.shapes import (
    BAND_GAP,
    GAP,
    LANE,
    STRAIGHT,
    Edge,
    Key,
    Line,
    Point,
    Rectangle,
    Size,
)


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything placed: channels' boxes by id, lines inside fragments, and lines to and from channels."""

    width: float
    height: float
    fragments: tuple[PlacedFragment, ...]
    channels: Mapping[str, Rectangle]
    lines: tuple[Edge, ...]
    channel_lines: tuple[Edge, ...]


def place(
    graph: GraphShape,
    processor_sizes: Mapping[str, Size],
    channel_sizes: Mapping[str, Size],
    heading_widths: Mapping[str, float],
) -> Scene:
    """Place a graph, given the sizes of its processors, channels and fragments' headings by id."""
    blocks = {
        fragment.id: FragmentLayout(graph, fragment, processor_sizes).block(heading_widths[fragment.id])
        for fragment in graph.fragments
    }
    return _place_blocks(graph, blocks, channel_sizes)


def _place_blocks(graph: GraphShape, blocks: Mapping[str, Block], channel_sizes: Mapping[str, Size]) -> Scene:
    row = _band_rows(graph)
    rows: list[list[Key]] = [[] for _ in range(max(row.values()) + 1)]
    sizes: dict[Key, Size] = {}
    for key, number in row.items():
        rows[number].append(key)
        frame = blocks[key[1]].placed.frame if key[0] == "fragment" else None
        sizes[key] = (frame.width, frame.height) if frame is not None else channel_sizes[key[1]]
    links: list[Link[Key]] = []
    lanes: dict[str, list[Key]] = {}
    for channel in graph.channels:
        producer, consumer = blocks[channel.producer_fragment], blocks[channel.consumer_fragment]
        lanes[channel.id] = []
        for number in range(row["channel", channel.id] + 1, row["fragment", channel.consumer_fragment]):
            key = ("lane", channel.id, str(number))
            lanes[channel.id].append(key)
            rows[number].append(key)
            sizes[key] = (LANE, 0.0)
        path = [("channel", channel.id), *lanes[channel.id], ("fragment", channel.consumer_fragment)]
        out_dx = producer.exits[channel.id][-1][0] - producer.placed.frame.width / 2
        links.append(Link(("fragment", channel.producer_fragment), ("channel", channel.id), out_dx, 0.0))
        links += [Link(*ends, weight=STRAIGHT) for ends in pairwise(path[:-1])]
        in_dx = next(iter(consumer.entries[channel.id].values()))[0][0] - consumer.placed.frame.width / 2
        links.append(Link(path[-2], path[-1], 0.0, in_dx))
    x = arrange(rows, {key: size[0] for key, size in sizes.items()}, links, GAP)
    spans: list[tuple[float, float]] = []
    for keys in rows:
        top = spans[-1][1] + BAND_GAP if spans else 0.0
        spans.append((top, top + max(sizes[key][1] for key in keys)))
    return _Assembly(graph, blocks, row, x, spans, sizes, lanes).scene()


def _band_rows(graph: GraphShape) -> dict[Key, int]:
    row: dict[Key, int] = {}
    for fragment in graph.fragments:
        above = [row["channel", c.id] for c in graph.channels if c.consumer_fragment == fragment.id]
        row["fragment", fragment.id] = max((number + 1 for number in above), default=0)
        for channel in graph.outputs(fragment.id):
            row["channel", channel.id] = row["fragment", fragment.id] + 1
    return row


@dataclass(frozen=True, slots=True)
class _Assembly:
    """Moves the placed fragments to their positions and joins their lines with those between them."""

    graph: GraphShape
    blocks: Mapping[str, Block]
    row: Mapping[Key, int]
    x: Mapping[Key, float]
    spans: Sequence[tuple[float, float]]
    sizes: Mapping[Key, Size]
    lanes: Mapping[str, list[Key]]

    def scene(self) -> Scene:
        """The whole scene, with its upper left corner at 0, 0."""
        fragments = tuple(self.blocks[f.id].placed.moved(*self._corner(f.id)) for f in self.graph.fragments)
        channels = {channel.id: self._channel_box(channel) for channel in self.graph.channels}
        lines = [
            replace(edge, line=self._moved(edge.line, f.id))
            for f in self.graph.fragments
            for edge in self.blocks[f.id].lines
        ]
        channel_lines: list[Edge] = []
        for channel in self.graph.channels:
            box = channels[channel.id]
            middle = box.x + box.width / 2
            out = self._moved(
                self.blocks[channel.producer_fragment].exits[channel.id], channel.producer_fragment
            )
            line = (*out, out[-1], (middle, box.y))
            channel_lines.append(Edge(line, source=channel.producer, channel=channel.id))
            passed = [(self.x[key], y) for key in self.lanes[channel.id] for y in self.spans[int(key[-1])]]
            for reader, entry in self.blocks[channel.consumer_fragment].entries[channel.id].items():
                moved = self._moved(entry, channel.consumer_fragment)
                line = ((middle, box.y + box.height), *passed, moved[0], *moved)
                channel_lines.append(Edge(line, target=reader, channel=channel.id))
        width = max(self.x[key] + size[0] / 2 for key, size in self.sizes.items())
        return Scene(width, self.spans[-1][1], fragments, channels, tuple(lines), tuple(channel_lines))

    def _corner(self, fragment: str) -> Point:
        key = ("fragment", fragment)
        return self.x[key] - self.sizes[key][0] / 2, self.spans[self.row[key]][0]

    def _channel_box(self, channel: ChannelShape) -> Rectangle:
        key = ("channel", channel.id)
        return Rectangle(self.x[key] - self.sizes[key][0] / 2, self.spans[self.row[key]][0], *self.sizes[key])

    def _moved(self, line: Line, fragment: str) -> Line:
        dx, dy = self._corner(fragment)
        return tuple((x + dx, y + dy) for x, y in line)
