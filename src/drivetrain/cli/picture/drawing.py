"""Draws a plan as an SVG picture that any browser, editor or README shows.

The picture: each fragment is a frame with a panel for its trunk and one for its branches; inside are the
processors, coloured by how they run; between fragments are the channels, as thick lines with a label. A thick
border marks the processor that keeps state. A tooltip on each element shows its details from the plan.

Called by `drivetrain plan --picture`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from drivetrain.api.operations import How
from drivetrain.core.picture.fragment_layout import PlacedFragment
from drivetrain.core.picture.labels import (
    CHANNEL_HEIGHT,
    CHANNEL_NOTE,
    DETAIL_LINE_HEIGHT,
    NAME_SIZE,
    SMALL_SIZE,
    Label,
    channel_name,
    heading,
    picture_of,
)
from drivetrain.core.picture.lettering import FONT_FAMILY, text_width
from drivetrain.core.picture.scene import Scene
from drivetrain.core.picture.shapes import GUTTER, HEADING, PADDING, Rectangle, svg_path
from drivetrain.core.plan.plan import Plan, PlannedChannel

MARGIN: Final = 24.0
TITLE_HEIGHT: Final = 66.0
LEGEND_ROW_HEIGHT: Final = 24.0
TITLE_SIZE: Final = 20.0


@dataclass(frozen=True, slots=True)
class _Colours:
    """The colours of one way to run: line and fill, with the text for the legend."""

    line: str
    fill: str
    legend: str


_HOW: Final[dict[How, _Colours]] = {
    "source": _Colours("#0e7490", "#ecfeff", "source"),
    "native": _Colours("#15803d", "#f0fdf4", "native Spark"),
    "lowered": _Colours("#4d7c0f", "#f7fee7", "Python lowered to Spark"),
    "arrow": _Colours("#b45309", "#fffbeb", "Python over Arrow"),
    "task": _Colours("#7e22ce", "#faf5ff", "Task with state"),
    "sink": _Colours("#1d4ed8", "#eff6ff", "sink"),
}
_INK: Final = "#0f172a"
_PALE_INK: Final = "#475569"
_LINE: Final = "#64748b"
_CHANNEL: Final = "#4338ca"
_CHANNEL_FILL: Final = "#e0e7ff"
_PANELS: Final = {"trunk": "#e2e8f0", "branches": "#f1f5f9"}


def draw(plan: Plan) -> str:
    """The plan as the text of an SVG file."""
    picture = picture_of(plan)
    scene = picture.scene
    subtitle = _subtitle(plan)
    title_width = max(text_width(plan.application, TITLE_SIZE, bold=True), text_width(subtitle, SMALL_SIZE))
    width = 2 * MARGIN + max(scene.width, title_width)
    legend = _wrapped(_legend(plan), width - 2 * MARGIN)
    height = TITLE_HEIGHT + scene.height + LEGEND_ROW_HEIGHT * (len(legend) + 1) + MARGIN
    drawing = "\n".join(_scene(plan, scene, picture.labels))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"
 width="{width:.0f}" height="{height:.0f}" font-family="{FONT_FAMILY}" role="img"
 aria-label="{escape(f"Plan of {plan.application}")}">
{_DEFINITIONS}
{_rectangle(Rectangle(0, 0, width, height), 10, "#ffffff", "none", 0)}
{_text(plan.application, MARGIN, 32, TITLE_SIZE, _INK, bold=True, kind="title")}
{_text(subtitle, MARGIN, 50, SMALL_SIZE, _PALE_INK)}
{_moved(drawing, (width - scene.width) / 2, TITLE_HEIGHT)}
{_moved(_legend_rows(legend), MARGIN, TITLE_HEIGHT + scene.height + LEGEND_ROW_HEIGHT)}
</svg>
"""


_DEFINITIONS: Final = f"""<defs>
<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0.5 L8,4 L0,7.5 Z" fill="{_LINE}"/></marker>
<marker id="channel-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="3.4" markerHeight="3.4"
 orient="auto"><path d="M0,0 L8,4 L0,8 Z" fill="{_CHANNEL}"/></marker>
</defs>"""


def _scene(plan: Plan, scene: Scene, labels: Mapping[str, Label]) -> Iterable[str]:
    for placed in scene.fragments:
        yield from _frame(placed)
    for edge in scene.lines:
        yield (
            f'<path d="{svg_path(edge.line)}" fill="none" stroke="{_LINE}" stroke-width="1.6" '
            f'marker-end="url(#arrow)"/>'
        )
    for edge in scene.channel_lines:
        yield (
            f'<path class="channel-line" d="{svg_path(edge.line)}" fill="none" stroke="{_CHANNEL}" '
            f'stroke-width="4" marker-end="url(#channel-arrow)"/>'
        )
    for channel in plan.channels:
        yield _channel(channel, scene.channels[channel.id])
    for placed in scene.fragments:
        for id, box in placed.processors.items():
            yield _processor(plan, id, box, labels[id], keeps_state=id == placed.fragment.stateful)


def _frame(placed: PlacedFragment) -> Iterable[str]:
    frame = placed.frame
    title = heading(placed.fragment.id)
    yield f'<g class="fragment" data-id="{escape(placed.fragment.id)}">'
    yield _rectangle(frame, 12, "#f8fafc", "#94a3b8", 1.2, kind="box")
    yield _text(title, frame.x + PADDING, frame.y + HEADING - 13, NAME_SIZE, _INK, bold=True, kind="label")
    for name, panel in placed.panels.items():
        yield _rectangle(panel, 8, _PANELS[name], "none", 0)
        x, middle = panel.x + GUTTER / 2, panel.y + panel.height / 2
        caption = _text(name, x, middle + 4, SMALL_SIZE, _PALE_INK, anchor="middle")
        yield f'<g transform="rotate(-90 {x:.1f} {middle:.1f})">{caption}</g>'
    yield "</g>"


def _processor(plan: Plan, id: str, box: Rectangle, label: Label, *, keeps_state: bool) -> str:
    colours = _HOW[plan.operators[id].how]
    left = box.x + 18
    details = [
        _text(line, left, box.y + 38 + number * DETAIL_LINE_HEIGHT, SMALL_SIZE, _PALE_INK, kind="detail")
        for number, line in enumerate(label.details)
    ]
    stripe = Rectangle(box.x + 6, box.y + 9, 4, box.height - 18)
    return (
        f'<g class="processor" data-id="{escape(id)}" data-how="{plan.operators[id].how}">'
        f"<title>{escape(label.tip)}</title>"
        f"{_rectangle(box, 7, colours.fill, colours.line, 3 if keeps_state else 1.4, kind='box')}"
        f"{_rectangle(stripe, 2, colours.line, 'none', 0)}"
        f"{_text(label.name, left, box.y + 21, NAME_SIZE, _INK, bold=True, kind='label')}"
        f"{''.join(details)}</g>"
    )


def _channel(channel: PlannedChannel, box: Rectangle) -> str:
    middle = box.x + box.width / 2
    name = channel_name(channel)
    return (
        f'<g class="channel" data-id="{escape(channel.id)}">'
        f"<title>{escape(f'channel {channel.id}: {channel.why}')}</title>"
        f"{_rectangle(box, CHANNEL_HEIGHT / 2, _CHANNEL_FILL, _CHANNEL, 2, kind='box')}"
        f"{_text(name, middle, box.y + 17, SMALL_SIZE, _CHANNEL, bold=True, anchor='middle', kind='label')}"
        f"{_text(CHANNEL_NOTE, middle, box.y + 31, SMALL_SIZE - 1, _PALE_INK, anchor='middle')}</g>"
    )


def _subtitle(plan: Plan) -> str:
    def counted(count: int, noun: str) -> str:
        return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

    return (
        f"{counted(len(plan.fragments), 'fragment')} · {counted(len(plan.channels), 'channel')} · "
        f"{'bounded' if plan.bounded else 'unbounded'} input · {plan.guarantee}"
    )


def _legend(plan: Plan) -> Iterable[tuple[str, float]]:
    """Every item as SVG with its upper left corner at 0, 0, and its width."""
    used = {operator.how for operator in plan.operators.values()}
    for how, colours in _HOW.items():
        if how in used:
            swatch = _rectangle(Rectangle(0, 0, 16, 14), 4, colours.fill, colours.line, 1.4)
            yield _legend_item(swatch, colours.legend)
    if any(fragment.stateful for fragment in plan.fragments):
        yield _legend_item(_rectangle(Rectangle(0, 0, 16, 14), 4, "#ffffff", _LINE, 3), "keeps state")
    if plan.channels:
        line = f'<path d="M0,7 L16,7" stroke="{_CHANNEL}" stroke-width="4"/>'
        yield _legend_item(line, "channel")


def _legend_item(swatch: str, text: str) -> tuple[str, float]:
    return f"{swatch}{_text(text, 22, 11, SMALL_SIZE, _PALE_INK)}", 22 + text_width(text, SMALL_SIZE) + 18


def _legend_rows(rows: Iterable[Iterable[tuple[str, float]]]) -> str:
    parts: list[str] = []
    for number, row in enumerate(rows):
        x = 0.0
        for item, width in row:
            parts.append(_moved(item, x, number * LEGEND_ROW_HEIGHT))
            x += width
    return "\n".join(parts)


def _moved(svg: str, dx: float, dy: float) -> str:
    return f'<g transform="translate({dx:.1f} {dy:.1f})">{svg}</g>'


def _wrapped(items: Iterable[tuple[str, float]], width: float) -> list[list[tuple[str, float]]]:
    rows: list[list[tuple[str, float]]] = [[]]
    used = 0.0
    for item in items:
        if rows[-1] and used + item[1] > width:
            rows.append([])
            used = 0.0
        rows[-1].append(item)
        used += item[1]
    return rows


def _rectangle(
    box: Rectangle, radius: float, fill: str, stroke: str, width: float, kind: str = "shape"
) -> str:
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{width}"/>'
    )


def _text(
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
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
