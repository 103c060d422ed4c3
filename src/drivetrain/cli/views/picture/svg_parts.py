"""Parts of SVG that the pictures of a plan and of a difference are made of.

Called by `cli.views.picture.drawing` and `cli.views.picture.compared_drawing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Final

from drivetrain.core.picture.labels import SMALL_SIZE
from drivetrain.core.picture.lettering import FONT_FAMILY, text_width
from drivetrain.core.picture.placed_graph import Box
from drivetrain.core.picture.shapes import Rectangle, Size

_MARGIN: Final = 24.0
_TITLE_HEIGHT: Final = 66.0
_LEGEND_ROW_HEIGHT: Final = 24.0
_TITLE_SIZE: Final = 20.0
INK: Final = "#0f172a"
PALE_INK: Final = "#475569"
LINE: Final = "#64748b"


@dataclass(frozen=True, slots=True)
class Title:
    """What stands above a picture: a heading, a line below it, and a description for screen readers."""

    heading: str
    line: str
    label: str


def page(
    title: Title, definitions: str, drawing: str, size: Size, legend: Iterable[tuple[str, float]]
) -> str:
    """A whole SVG file: the title, a drawing of that size below it, and the items of the legend."""
    title_width = max(text_width(title.heading, _TITLE_SIZE, bold=True), text_width(title.line, SMALL_SIZE))
    width = 2 * _MARGIN + max(size[0], title_width)
    rows = _in_rows(legend, width - 2 * _MARGIN)
    height = _TITLE_HEIGHT + size[1] + _LEGEND_ROW_HEIGHT * (len(rows) + 1) + _MARGIN
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"
 width="{width:.0f}" height="{height:.0f}" font-family="{FONT_FAMILY}" role="img"
 aria-label="{escape(title.label)}">
{definitions}
{rectangle(Rectangle(0, 0, width, height), 10, "#ffffff", "none", 0)}
{text_at(title.heading, _MARGIN, 32, _TITLE_SIZE, INK, bold=True, kind="title")}
{text_at(title.line, _MARGIN, 50, SMALL_SIZE, PALE_INK)}
{_moved(drawing, (width - size[0]) / 2, _TITLE_HEIGHT)}
{_moved(_legend_rows(rows), _MARGIN, _TITLE_HEIGHT + size[1] + _LEGEND_ROW_HEIGHT)}
</svg>
"""


def _legend_rows(rows: Iterable[Iterable[tuple[str, float]]]) -> str:
    parts: list[str] = []
    for number, row in enumerate(rows):
        x = 0.0
        for item, width in row:
            parts.append(_moved(item, x, number * _LEGEND_ROW_HEIGHT))
            x += width
    return "\n".join(parts)


def legend_item(swatch: str, text: str) -> tuple[str, float]:
    """An item as SVG with its upper left corner at 0, 0, and its width."""
    return f"{swatch}{text_at(text, 22, 11, SMALL_SIZE, PALE_INK)}", 22 + text_width(text, SMALL_SIZE) + 18


def _moved(svg: str, dx: float, dy: float) -> str:
    return f'<g transform="translate({dx:.1f} {dy:.1f})">{svg}</g>'


def _in_rows(items: Iterable[tuple[str, float]], width: float) -> list[list[tuple[str, float]]]:
    rows: list[list[tuple[str, float]]] = [[]]
    used = 0.0
    for item in items:
        if rows[-1] and used + item[1] > width:
            rows.append([])
            used = 0.0
        rows[-1].append(item)
        used += item[1]
    return rows


def rectangle(
    box: Rectangle | Box,
    radius: float,
    fill: str,
    stroke: str,
    width: float,
    kind: str = "shape",
    dashes: str = "",
) -> str:
    """A rectangle; `dashes` are the lengths of strokes and gaps of its border."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{width}"{dashed}/>'
    )


def text_at(
    text: str,
    x: float,
    y: float,
    size: float,
    colour: str,
    *,
    bold: bool = False,
    anchor: str = "start",
    kind: str = "note",
) -> str:
    """A line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
