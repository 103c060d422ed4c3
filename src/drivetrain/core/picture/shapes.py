"""The measures and shapes of a picture: rectangles, lines, distances in pixels.

Called by the other modules of `core.picture`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

GAP: Final = 28.0
ROW_GAP: Final = 34.0
BAND_GAP: Final = 36.0
LANE: Final = 16.0
STRAIGHT: Final = 8.0
PADDING: Final = 14.0
GUTTER: Final = 24.0
HEADING: Final = 38.0

Point: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[float, float]
Line: TypeAlias = tuple[Point, ...]
"""An even number of points: the line bends from the first to the second, is straight to the third …"""

Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A line with what it joins: two processors; or a processor `source` and the box of `channel`; or that
    box and a processor `target`."""

    line: Line
    source: str | None = None
    target: str | None = None
    channel: str | None = None


def svg_path(line: Line) -> str:
    """The line as the `d` of a path in SVG."""
    (x, y), *rest = line
    path = [f"M{x:.1f},{y:.1f}"]
    for number, (to_x, to_y) in enumerate(rest):
        if number % 2:
            path.append(f"L{to_x:.1f},{to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            path.append(f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle by its upper left corner and its size; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, dx: float, dy: float) -> Rectangle:
        """The same rectangle at another position."""
        return Rectangle(self.x + dx, self.y + dy, self.width, self.height)
