"""Draws two versions of a graph as one SVG picture: what is new, gone, changed and kept.

Each mark has a colour, a sign before the name, a word below it, and a border of its own kind: thick for new,
dashed for gone, double for changed, thin for kept. So the picture can be read without colours.

Called by `drivetrain plan --against --picture` and `drivetrain versions --between --picture`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from drivetrain.cli.views.picture.svg_parts import (
    INK,
    LINE,
    PALE_INK,
    Title,
    legend_item,
    page,
    rectangle,
    text_at,
)
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.version_comparison import SIGNS, Mark
from drivetrain.core.picture.compared_graph import (
    ComparedBox,
    ComparedChannel,
    ComparedFragment,
    ComparedGraph,
    compared_graph,
)
from drivetrain.core.picture.labels import CHANNEL_HEIGHT, DETAIL_LINE_HEIGHT, NAME_SIZE, SMALL_SIZE
from drivetrain.core.picture.shapes import GUTTER, HEADING, PADDING, Rectangle


@dataclass(frozen=True, slots=True)
class _Style:
    """How a mark looks: colour of line and fill, width and dashes of the border, whether it is double."""

    line: str
    fill: str
    width: float
    dashes: str = ""
    is_double: bool = False


_STYLES: Final = {
    Mark.NEW: _Style("#15803d", "#dcfce7", 3),
    Mark.GONE: _Style("#b91c1c", "#fee2e2", 1.6, "6 4"),
    Mark.CHANGED: _Style("#b45309", "#fef3c7", 1.4, is_double=True),
    Mark.KEPT: _Style("#94a3b8", "#ffffff", 1.2),
    Mark.REFUSED: _Style("#7f1d1d", "#fecaca", 4, "2 3"),
}
_LINES: Final = {Mark.NEW: "#15803d", Mark.GONE: "#b91c1c", Mark.KEPT: LINE}


def draw_compared(
    old: GraphVersion, new: GraphVersion, marks: Mapping[str, tuple[Mark, str]], against: str
) -> str:
    """Two versions as the text of an SVG file; `marks` are those of all processors, each with a word.

    `against` is the name of the older one.
    """
    graph = compared_graph(old, new, marks)
    counts = {mark: sum(each is mark for each, _ in marks.values()) for mark in Mark}
    counted = ", ".join(f"{count} {mark}" for mark, count in counts.items() if count)
    title = Title(
        f"{graph.application} against {against}", counted, f"{graph.application} against {against}: {counted}"
    )
    return page(title, _DEFINITIONS, "\n".join(_parts(graph)), (graph.width, graph.height), _legend(marks))


def _arrow(mark: Mark, colour: str) -> str:
    return (
        f'<marker id="arrow-{mark}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 Z" fill="{colour}"/>'
        "</marker>"
    )


_DEFINITIONS: Final = f"<defs>{''.join(_arrow(*each) for each in _LINES.items())}</defs>"


def _parts(graph: ComparedGraph) -> Iterator[str]:
    for fragment in graph.fragments:
        yield _fragment(fragment)
    for line in graph.lines:
        mark = Mark(line.mark)
        width = (1.6 if line.channel is None else 3) + (0.8 if mark is Mark.NEW else 0)
        dashed = ' stroke-dasharray="6 4"' if mark is Mark.GONE else ""
        yield (
            f'<path class="{mark}" d="{line.path}" fill="none" stroke="{_LINES[mark]}" '
            f'stroke-width="{width:.1f}" marker-end="url(#arrow-{mark})"{dashed}/>'
        )
    for channel in graph.channels:
        yield _channel(channel)
    for box in graph.processors:
        yield _processor(box)


def _fragment(one: ComparedFragment) -> str:
    style = _STYLES[Mark(one.mark)]
    sign = f"{SIGNS[Mark(one.mark)]} {one.heading}".strip()
    panels = "".join(_panel(name, one, "#e2e8f0" if name == "trunk" else "#f1f5f9") for name in one.panels)
    x, y = one.box.x + PADDING, one.box.y + HEADING - 13
    return (
        f'<g class="fragment" data-id="{escape(one.fragment)}" data-mark="{one.mark}">'
        f"{rectangle(one.box, 12, '#f8fafc', style.line, style.width, 'box', style.dashes)}{panels}"
        f"{text_at(sign, x, y, NAME_SIZE, INK, bold=True, kind='label')}</g>"
    )


def _panel(name: str, one: ComparedFragment, fill: str) -> str:
    panel = one.panels[name]
    x, middle = panel.x + GUTTER / 2, panel.y + panel.height / 2
    caption = text_at(name, x, middle + 4, SMALL_SIZE, PALE_INK, anchor="middle")
    return (
        f'{rectangle(panel, 8, fill, "none", 0)}<g transform="rotate(-90 {x:.1f} {middle:.1f})">{caption}</g>'
    )


def _processor(one: ComparedBox) -> str:
    mark = Mark(one.mark)
    left, top = one.box.x + 14, one.box.y
    details = "".join(
        text_at(line, left, top + 38 + number * DETAIL_LINE_HEIGHT, SMALL_SIZE, PALE_INK, kind="detail")
        for number, line in enumerate(one.details)
    )
    return (
        f'<g class="processor" data-id="{escape(one.processor)}" data-mark="{mark}">'
        f"<title>{escape(f'{one.processor} ({one.line})')}\n{escape(one.says)}</title>"
        f"{_bordered(one.box.x, top, one.box.width, one.box.height, mark)}"
        f"{text_at(one.label, left, top + 21, NAME_SIZE, INK, bold=True, kind='label')}{details}</g>"
    )


def _bordered(x: float, y: float, width: float, height: float, mark: Mark) -> str:
    style = _STYLES[mark]
    outer = rectangle(
        Rectangle(x, y, width, height), 7, style.fill, style.line, style.width, "box", style.dashes
    )
    inner = Rectangle(x + 3, y + 3, width - 6, height - 6)
    return outer + (rectangle(inner, 5, "none", style.line, style.width) if style.is_double else "")


def _channel(one: ComparedChannel) -> str:
    mark = Mark(one.mark)
    style, middle = _STYLES[mark], one.box.x + one.box.width / 2
    fill, y = "#e0e7ff" if mark is Mark.KEPT else style.fill, one.box.y
    name = text_at(one.label, middle, y + 17, SMALL_SIZE, INK, bold=True, anchor="middle", kind="label")
    return (
        f'<g class="channel" data-id="{escape(one.channel)}" data-mark="{mark}">'
        f"{rectangle(one.box, CHANNEL_HEIGHT / 2, fill, style.line, style.width, 'box', style.dashes)}"
        f"{name}{text_at(mark.value, middle, y + 31, SMALL_SIZE - 1, PALE_INK, anchor='middle')}</g>"
    )


def _legend(marks: Mapping[str, tuple[Mark, str]]) -> Iterable[tuple[str, float]]:
    used = {mark for mark, _ in marks.values()}
    for mark in Mark:
        if mark in used:
            yield legend_item(_bordered(0, 0, 16, 14, mark), f"{SIGNS[mark]} {mark}".strip())
