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
from drivetrain.core.picture.scene import Scene
from drivetrain.core.picture.shapes import GUTTER, HEADING, PADDING, Rectangle, svg_path
from drivetrain.core.plan.plan import Plan, PlannedChannel


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
_CHANNEL: Final = "#4338ca"
_CHANNEL_FILL: Final = "#e0e7ff"
_PANELS: Final = {"trunk": "#e2e8f0", "branches": "#f1f5f9"}


def draw(plan: Plan) -> str:
    """The plan as the text of an SVG file."""
    picture = picture_of(plan)
    scene = picture.scene
    return page(
        Title(plan.application, _subtitle(plan), f"Plan of {plan.application}"),
        _DEFINITIONS,
        "\n".join(_scene(plan, scene, picture.labels)),
        (scene.width, scene.height),
        _legend(plan),
    )


_DEFINITIONS: Final = f"""<defs>
<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0,0.5 L8,4 L0,7.5 Z" fill="{LINE}"/></marker>
<marker id="channel-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="3.4" markerHeight="3.4"
 orient="auto"><path d="M0,0 L8,4 L0,8 Z" fill="{_CHANNEL}"/></marker>
</defs>"""


def _scene(plan: Plan, scene: Scene, labels: Mapping[str, Label]) -> Iterable[str]:
    for placed in scene.fragments:
        yield from _frame(placed)
    for edge in scene.lines:
        yield (
            f'<path d="{svg_path(edge.line)}" fill="none" stroke="{LINE}" stroke-width="1.6" '
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
    yield rectangle(frame, 12, "#f8fafc", "#94a3b8", 1.2, kind="box")
    yield text_at(title, frame.x + PADDING, frame.y + HEADING - 13, NAME_SIZE, INK, bold=True, kind="label")
    for name, panel in placed.panels.items():
        yield rectangle(panel, 8, _PANELS[name], "none", 0)
        x, middle = panel.x + GUTTER / 2, panel.y + panel.height / 2
        caption = text_at(name, x, middle + 4, SMALL_SIZE, PALE_INK, anchor="middle")
        yield f'<g transform="rotate(-90 {x:.1f} {middle:.1f})">{caption}</g>'
    yield "</g>"


def _processor(plan: Plan, id: str, box: Rectangle, label: Label, *, keeps_state: bool) -> str:
    colours = _HOW[plan.operators[id].how]
    left = box.x + 18
    details = [
        text_at(line, left, box.y + 38 + number * DETAIL_LINE_HEIGHT, SMALL_SIZE, PALE_INK, kind="detail")
        for number, line in enumerate(label.details)
    ]
    stripe = Rectangle(box.x + 6, box.y + 9, 4, box.height - 18)
    return (
        f'<g class="processor" data-id="{escape(id)}" data-how="{plan.operators[id].how}">'
        f"<title>{escape(label.tip)}</title>"
        f"{rectangle(box, 7, colours.fill, colours.line, 3 if keeps_state else 1.4, kind='box')}"
        f"{rectangle(stripe, 2, colours.line, 'none', 0)}"
        f"{text_at(label.name, left, box.y + 21, NAME_SIZE, INK, bold=True, kind='label')}"
        f"{''.join(details)}</g>"
    )


def _channel(channel: PlannedChannel, box: Rectangle) -> str:
    middle = box.x + box.width / 2
    name = channel_name(channel.id)
    return (
        f'<g class="channel" data-id="{escape(channel.id)}">'
        f"<title>{escape(f'channel {channel.id}: {channel.why}')}</title>"
        f"{rectangle(box, CHANNEL_HEIGHT / 2, _CHANNEL_FILL, _CHANNEL, 2, kind='box')}"
        f"{text_at(name, middle, box.y + 17, SMALL_SIZE, _CHANNEL, bold=True, anchor='middle', kind='label')}"
        f"{text_at(CHANNEL_NOTE, middle, box.y + 31, SMALL_SIZE - 1, PALE_INK, anchor='middle')}</g>"
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
            swatch = rectangle(Rectangle(0, 0, 16, 14), 4, colours.fill, colours.line, 1.4)
            yield legend_item(swatch, colours.legend)
    if any(fragment.stateful for fragment in plan.fragments):
        yield legend_item(rectangle(Rectangle(0, 0, 16, 14), 4, "#ffffff", LINE, 3), "keeps state")
    if plan.channels:
        line = f'<path d="M0,7 L16,7" stroke="{_CHANNEL}" stroke-width="4"/>'
        yield legend_item(line, "channel")
