"""Places the processors of one fragment, and the lines between them.

Design: the processors are placed in rows, trunk above branches. A line that crosses a row, or comes from or
leads to a channel, gets its own position in each row that it crosses, and so passes between the boxes. A
table that a join reads is drawn inside each fragment that reads it.

Invariants:
1. No two processors overlap, and each lies inside the panel of its part.
2. Incoming lines do not cross the fragment's heading.

Called by `core.picture.scene`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from drivetrain.core.picture.graph_shape import FragmentShape, GraphShape
from drivetrain.core.picture.layered import Link, arrange
from drivetrain.core.picture.shapes import (
    GAP,
    GUTTER,
    HEADING,
    LANE,
    PADDING,
    ROW_GAP,
    STRAIGHT,
    Edge,
    Key,
    Line,
    Point,
    Rectangle,
    Size,
)


@dataclass(frozen=True, slots=True)
class PlacedFragment:
    """A fragment's frame, the panels of its trunk and its branches, and its processors by id."""

    fragment: FragmentShape
    frame: Rectangle
    panels: Mapping[str, Rectangle]
    processors: Mapping[str, Rectangle]

    def moved(self, dx: float, dy: float) -> PlacedFragment:
        """The same fragment at another position."""
        return PlacedFragment(
            self.fragment,
            self.frame.moved(dx, dy),
            {name: panel.moved(dx, dy) for name, panel in self.panels.items()},
            {id: box.moved(dx, dy) for id, box in self.processors.items()},
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A single fragment placed at 0, 0.

    `entries` are its lines to readers, by channel and processor, `exits` those from producers, by channel.
    """

    placed: PlacedFragment
    lines: tuple[Edge, ...]
    entries: Mapping[str, Mapping[str, Line]]
    exits: Mapping[str, Line]


class FragmentLayout:
    """The rows of one fragment: row 0 holds the entries of channels, the last row their exits."""

    def __init__(self, graph: GraphShape, fragment: FragmentShape, sizes: Mapping[str, Size]) -> None:
        self._fragment = fragment
        self._sizes = sizes
        read = graph.inputs
        inside = set(fragment.processors)
        tables = {i for id in inside for i in read[id] if i in graph.tables}
        self._members = [id for id in read if id in inside | tables]
        self._edges = [(i, id) for id in self._members for i in read[id] if i in inside | tables]
        self._incoming = [c for c in graph.channels if c.consumer_fragment == fragment.id]
        self._outgoing = [c for c in graph.channels if c.producer_fragment == fragment.id]
        self._readers = {
            channel.id: [id for id in self._members if channel.producer in read[id] and id in inside]
            for channel in self._incoming
        }
        self._row, self._trunk_rows = self._assign_rows()
        self._last = max(self._row.values()) + 1

    def block(self, heading_width: float) -> Block:
        """Place the fragment at 0, 0."""
        rows: list[list[Key]] = [[] for _ in range(self._last + 1)]
        widths: dict[Key, float] = {}
        links: list[Link[Key]] = []
        for id in self._members:
            self._add(("box", id), self._row[id], self._sizes[id][0], rows, widths)
        paths: dict[Key, list[Key]] = {
            ("edge", *edge): [("box", edge[0]), ("box", edge[1])] for edge in self._edges
        }
        for channel in self._incoming:
            port = ("in", channel.id)
            self._add(port, 0, LANE, rows, widths)
            paths |= {("in", channel.id, id): [port, ("box", id)] for id in self._readers[channel.id]}
        for channel in self._outgoing:
            port = ("out", channel.id)
            self._add(port, self._last, LANE, rows, widths)
            paths["out", channel.id] = [("box", channel.producer), port]
        full = {name: self._with_lanes(name, ends, rows, widths, links) for name, ends in paths.items()}
        x = arrange(rows, widths, links, GAP)
        return self._draw(x, widths, full, heading_width)

    def _assign_rows(self) -> tuple[dict[str, int], int]:
        row: dict[str, int] = {}
        trunk = set(self._fragment.trunk)
        feeds_trunk = trunk | {upper for upper, lower in self._edges if lower in trunk}
        for part in (feeds_trunk, set(self._members) - feeds_trunk):
            first = max(row.values(), default=0) + 1
            for id in self._members:
                if id in part:
                    above = [row[upper] for upper, lower in self._edges if lower == id]
                    row[id] = max([first, *(number + 1 for number in above)])
        return row, max((row[id] for id in feeds_trunk), default=0)

    @staticmethod
    def _add(key: Key, row: int, width: float, rows: Sequence[list[Key]], widths: dict[Key, float]) -> None:
        rows[row].append(key)
        widths[key] = width

    def _row_of(self, key: Key) -> int:
        return {"in": 0, "out": self._last}[key[0]] if key[0] != "box" else self._row[key[1]]

    def _with_lanes(
        self,
        name: Key,
        ends: list[Key],
        rows: Sequence[list[Key]],
        widths: dict[Key, float],
        links: list[Link[Key]],
    ) -> list[Key]:
        lanes: list[Key] = []
        for row in range(self._row_of(ends[0]) + 1, self._row_of(ends[1])):
            lanes.append(("lane", *name, str(row)))
            self._add(lanes[-1], row, LANE, rows, widths)
        path = [ends[0], *lanes, ends[1]]
        links += [
            Link(upper, lower, weight=self._straightness(upper, lower)) for upper, lower in pairwise(path)
        ]
        return path

    def _straightness(self, upper: Key, lower: Key) -> float:
        """The weight of a link: highest for lanes, high for chains of processors."""
        if "lane" in (upper[0], lower[0]):
            return STRAIGHT
        only_upper = sum(edge[0] == upper[-1] for edge in self._edges) <= 1
        only_lower = sum(edge[1] == lower[-1] for edge in self._edges) <= 1
        return STRAIGHT / 2 if only_upper and only_lower else 1.0

    def _draw(
        self,
        x: Mapping[Key, float],
        widths: Mapping[Key, float],
        paths: Mapping[Key, list[Key]],
        heading_width: float,
    ) -> Block:
        left, right = PADDING + GUTTER, max(x[key] + widths[key] / 2 for key in x)
        ports = [x[key] for key in x if key[0] == "in"]
        if ports:  # incoming lines must not cross the heading
            left = max(left, heading_width + PADDING + LANE - min(ports))
        width = max(left + right + 2 * PADDING, heading_width + 2 * PADDING)
        spans, panels, height = self._heights(width)
        processors = {
            id: Rectangle(
                left + x["box", id] - self._sizes[id][0] / 2,
                sum(spans[self._row[id]]) / 2 - self._sizes[id][1] / 2,
                *self._sizes[id],
            )
            for id in self._members
        }
        spans = {**spans, 0: (0.0, 0.0), self._last: (height, height)}

        def line(path: Sequence[Key]) -> Line:
            points: list[Point] = []
            for key in path:
                top, bottom = spans[int(key[-1]) if key[0] == "lane" else self._row_of(key)]
                if key[0] == "box":
                    top, bottom = processors[key[1]].y, processors[key[1]].y + processors[key[1]].height
                points += [(left + x[key], top), (left + x[key], bottom)]
            return tuple(points[1:-1])

        placed = PlacedFragment(self._fragment, Rectangle(0, 0, width, height), panels, processors)
        return Block(
            placed,
            tuple(Edge(line(path), *name[1:]) for name, path in paths.items() if name[0] == "edge"),
            {
                channel.id: {id: line(paths["in", channel.id, id]) for id in self._readers[channel.id]}
                for channel in self._incoming
            },
            {channel.id: line(paths["out", channel.id]) for channel in self._outgoing},
        )

    def _heights(self, width: float) -> tuple[dict[int, tuple[float, float]], dict[str, Rectangle], float]:
        """Top and bottom of every row, the panels, and the height of the whole."""
        spans: dict[int, tuple[float, float]] = {}
        panels: dict[str, Rectangle] = {}
        y = HEADING
        parts = {
            "trunk": range(1, self._trunk_rows + 1),
            "branches": range(self._trunk_rows + 1, self._last),
        }
        for name, rows in parts.items():
            if not rows:
                continue
            top = y
            y += PADDING
            for row in rows:
                tallest = max(self._sizes[id][1] for id in self._members if self._row[id] == row)
                spans[row] = (y, y + tallest)
                y += tallest + ROW_GAP
            y += PADDING - ROW_GAP
            panels[name] = Rectangle(PADDING / 2, top, width - PADDING, y - top)
            y += PADDING
        return spans, panels, y - PADDING / 2
