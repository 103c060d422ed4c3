"""Draws a plan as an SVG picture that any browser, editor or README shows.

What one sees: each fragment is a frame with a panel for its trunk and one for its branches; inside are
the processors, coloured by how they run; between fragments are the channels, as thick lines with a label.
A thick border marks the processor that keeps state. Pointing at anything shows what the plan says about
it.

Called by `drivetrain plan --picture`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Final

from drivetrain.api.operations import How
from drivetrain.cli.picture.fragment_layout import PlacedFragment
from drivetrain.cli.picture.lettering import FONT_FAMILY, fitted, text_width, wrapped
from drivetrain.cli.picture.scene import Scene, place
from drivetrain.cli.picture.shapes import GUTTER, HEADING, PADDING, Line, Rectangle
from drivetrain.core.plan.plan import Plan, PlannedChannel

MARGIN: Final = 24.0
TITLE_HEIGHT: Final = 66.0
LEGEND_ROW_HEIGHT: Final = 24.0
ONE_LINE_HEIGHT: Final = 34.0
DETAIL_LINE_HEIGHT: Final = 15.0
CHANNEL_HEIGHT: Final = 40.0
NARROWEST: Final = 132.0
WIDEST: Final = 300.0
TITLE_SIZE: Final = 20.0
NAME_SIZE: Final = 13.0
SMALL_SIZE: Final = 11.0


@dataclass(frozen=True, slots=True)
class _Colours:
    """The colours of one way to run: line, fill, and what the legend says."""

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
    labels = {id: _Label(plan, id) for id in plan.operators}
    scene = place(
        plan,
        {id: (label.width, label.height) for id, label in labels.items()},
        {channel.id: (_channel_width(channel), CHANNEL_HEIGHT) for channel in plan.channels},
        {fragment.id: text_width(_heading(fragment.id), NAME_SIZE, bold=True) for fragment in plan.fragments},
    )
    subtitle = _subtitle(plan)
    title_width = max(text_width(plan.application, TITLE_SIZE, bold=True), text_width(subtitle, SMALL_SIZE))
    width = 2 * MARGIN + max(scene.width, title_width)
    legend = _wrapped(_legend(plan), width - 2 * MARGIN)
    height = TITLE_HEIGHT + scene.height + LEGEND_ROW_HEIGHT * (len(legend) + 1) + MARGIN
    drawing = "\n".join(_scene(plan, scene, labels))
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


class _Label:
    """The text in a processor's box, a name and up to two lines of detail, and how large it makes the box."""

    def __init__(self, plan: Plan, id: str) -> None:
        operator = plan.operators[id]
        guarantee = next((sink.guarantee for sink in plan.sinks if sink.id == id), None)
        self.name = fitted(id, NAME_SIZE, WIDEST - 28, bold=True)
        detail = " · ".join(part for part in (guarantee, operator.text) if part)
        self.details = wrapped(detail or operator.kind, SMALL_SIZE, WIDEST - 28, lines=2)
        longest = max(
            text_width(self.name, NAME_SIZE, bold=True),
            *(text_width(line, SMALL_SIZE) for line in self.details),
        )
        self.width = max(NARROWEST, longest + 28)
        self.height = ONE_LINE_HEIGHT + DETAIL_LINE_HEIGHT * len(self.details)
        self.tip = f"{id} ({operator.where})\n{operator.how}: {operator.why}\n{operator.text}"


def _scene(plan: Plan, scene: Scene, labels: dict[str, _Label]) -> Iterable[str]:
    for placed in scene.fragments:
        yield from _frame(placed)
    for line in scene.lines:
        yield (
            f'<path d="{_path(line)}" fill="none" stroke="{_LINE}" stroke-width="1.6" '
            f'marker-end="url(#arrow)"/>'
        )
    for line in scene.channel_lines:
        yield (
            f'<path class="channel-line" d="{_path(line)}" fill="none" stroke="{_CHANNEL}" stroke-width="4" '
            f'marker-end="url(#channel-arrow)"/>'
        )
    for channel in plan.channels:
        yield _channel(channel, scene.channels[channel.id])
    for placed in scene.fragments:
        for id, box in placed.processors.items():
            yield _processor(plan, id, box, labels[id], keeps_state=id == placed.fragment.stateful)


def _frame(placed: PlacedFragment) -> Iterable[str]:
    frame = placed.frame
    heading = _heading(placed.fragment.id)
    yield f'<g class="fragment" data-id="{escape(placed.fragment.id)}">'
    yield _rectangle(frame, 12, "#f8fafc", "#94a3b8", 1.2, kind="box")
    yield _text(heading, frame.x + PADDING, frame.y + HEADING - 13, NAME_SIZE, _INK, bold=True, kind="label")
    for name, panel in placed.panels.items():
        yield _rectangle(panel, 8, _PANELS[name], "none", 0)
        x, middle = panel.x + GUTTER / 2, panel.y + panel.height / 2
        caption = _text(name, x, middle + 4, SMALL_SIZE, _PALE_INK, anchor="middle")
        yield f'<g transform="rotate(-90 {x:.1f} {middle:.1f})">{caption}</g>'
    yield "</g>"


def _processor(plan: Plan, id: str, box: Rectangle, label: _Label, *, keeps_state: bool) -> str:
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
    name = _channel_name(channel)
    return (
        f'<g class="channel" data-id="{escape(channel.id)}">'
        f"<title>{escape(f'channel {channel.id}: {channel.why}')}</title>"
        f"{_rectangle(box, CHANNEL_HEIGHT / 2, _CHANNEL_FILL, _CHANNEL, 2, kind='box')}"
        f"{_text(name, middle, box.y + 17, SMALL_SIZE, _CHANNEL, bold=True, anchor='middle', kind='label')}"
        f"{_text(_CHANNEL_NOTE, middle, box.y + 31, SMALL_SIZE - 1, _PALE_INK, anchor='middle')}</g>"
    )


_CHANNEL_NOTE: Final = "durable, replayable"


def _channel_name(channel: PlannedChannel) -> str:
    return fitted(f"channel {channel.id}", SMALL_SIZE, WIDEST, bold=True)


def _channel_width(channel: PlannedChannel) -> float:
    name = text_width(_channel_name(channel), SMALL_SIZE, bold=True)
    return max(name, text_width(_CHANNEL_NOTE, SMALL_SIZE)) + CHANNEL_HEIGHT


def _heading(fragment: str) -> str:
    return fitted(f"fragment {fragment}", NAME_SIZE, WIDEST, bold=True)


def _subtitle(plan: Plan) -> str:
    def counted(count: int, noun: str) -> str:
        return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

    return (
        f"{counted(len(plan.fragments), 'fragment')} · {counted(len(plan.channels), 'channel')} · "
        f"{'bounded' if plan.bounded else 'unbounded'} input · {plan.guarantee}"
    )


def _legend(plan: Plan) -> Iterable[tuple[str, float]]:
    """Every item as SVG with its left upper corner at 0, 0, and its width."""
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


def _legend_item(swatch: str, says: str) -> tuple[str, float]:
    return f"{swatch}{_text(says, 22, 11, SMALL_SIZE, _PALE_INK)}", 22 + text_width(says, SMALL_SIZE) + 18


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


def _path(line: Line) -> str:
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
