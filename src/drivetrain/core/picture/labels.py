"""What is written in the boxes of a plan's picture, and how large that makes them.

Design: sizes come from the text alone, without a font, so that `drivetrain plan --picture` and the console
place the boxes of one plan at the same coordinates, on any machine.

Called by `cli.views.picture.drawing`, `core.picture.placed_graph` and `core.picture.compared_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivetrain.core.picture.graph_shape import shape_of
from drivetrain.core.picture.lettering import fitted, text_width, wrapped
from drivetrain.core.picture.scene import Scene, place
from drivetrain.core.plan.plan import Plan

ONE_LINE_HEIGHT: Final = 34.0
DETAIL_LINE_HEIGHT: Final = 15.0
CHANNEL_HEIGHT: Final = 40.0
NARROWEST: Final = 132.0
WIDEST: Final = 300.0
NAME_SIZE: Final = 13.0
SMALL_SIZE: Final = 11.0
CHANNEL_NOTE: Final = "durable, replayable"


class Label:
    """The text in a processor's box, a name and lines of detail, and how large it makes the box.

    Up to two lines are of `detail`; `says` is a line above them. `tip` is the text of the box's tooltip.
    """

    def __init__(self, name: str, detail: str, tip: str, says: str = "") -> None:
        self.name = fitted(name, NAME_SIZE, WIDEST - 28, bold=True)
        self.details = [says] if says else []
        self.details += wrapped(detail, SMALL_SIZE, WIDEST - 28, lines=2)
        longest = max(
            text_width(self.name, NAME_SIZE, bold=True),
            *(text_width(line, SMALL_SIZE) for line in self.details),
        )
        self.width = max(NARROWEST, longest + 28)
        self.height = ONE_LINE_HEIGHT + DETAIL_LINE_HEIGHT * len(self.details)
        self.tip = tip


def label_of(plan: Plan, id: str) -> Label:
    """The label of a processor of a plan."""
    operator = plan.operators[id]
    guarantee = next((sink.guarantee for sink in plan.sinks if sink.id == id), None)
    detail = " · ".join(part for part in (guarantee, operator.text) if part)
    tip = f"{id} ({operator.where})\n{operator.how}: {operator.why}\n{operator.text}"
    return Label(id, detail or operator.kind, tip)


@dataclass(frozen=True, slots=True)
class Picture:
    """A plan with everything placed; `labels` by processor."""

    scene: Scene
    labels: Mapping[str, Label]


def picture_of(plan: Plan) -> Picture:
    """Place a plan by the sizes of its labels."""
    labels = {id: label_of(plan, id) for id in plan.operators}
    scene = place(
        shape_of(plan),
        {id: (label.width, label.height) for id, label in labels.items()},
        {channel.id: (channel_width(channel.id), CHANNEL_HEIGHT) for channel in plan.channels},
        {fragment.id: text_width(heading(fragment.id), NAME_SIZE, bold=True) for fragment in plan.fragments},
    )
    return Picture(scene, labels)


def heading(fragment: str) -> str:
    """The text above a fragment."""
    return fitted(f"fragment {fragment}", NAME_SIZE, WIDEST, bold=True)


def channel_name(channel: str) -> str:
    """The text in the box of a channel."""
    return fitted(f"channel {channel}", SMALL_SIZE, WIDEST, bold=True)


def channel_width(channel: str) -> float:
    """How wide the box of a channel is."""
    name = text_width(channel_name(channel), SMALL_SIZE, bold=True)
    return max(name, text_width(CHANNEL_NOTE, SMALL_SIZE)) + CHANNEL_HEIGHT
