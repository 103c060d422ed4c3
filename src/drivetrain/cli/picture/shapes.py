"""The measures and shapes of a picture: rectangles, lines, distances in pixels.

Called by the other modules of `cli.picture`.
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
class Rectangle:
    """A rectangle by its left upper corner and its size; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, dx: float, dy: float) -> Rectangle:
        """The same rectangle elsewhere."""
        return Rectangle(self.x + dx, self.y + dy, self.width, self.height)
