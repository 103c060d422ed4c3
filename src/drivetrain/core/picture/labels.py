"""What is written in the boxes of a plan's picture, and how large that makes them.

Design: sizes come from the text alone, without a font, so that `drivetrain plan --picture` and the console
place the boxes of one plan at the same coordinates, on any machine.

Called by `cli.picture.drawing` and `core.picture.placed_graph`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drivetrain.core.picture.lettering import fitted, text_width, wrapped
from drivetrain.core.picture.scene import Scene, place
from drivetrain.core.plan.plan import Plan, PlannedChannel

ONE_LINE_HEIGHT: Final = 34.0
DETAIL_LINE_HEIGHT: Final = 15.0
CHANNEL_HEIGHT: Final = 40.0
NARROWEST: Final = 132.0
WIDEST: Final = 300.0
NAME_SIZE: Final = 13.0
SMALL_SIZE: Final = 11.0
CHANNEL_NOTE: Final = "durable, replayable"


class Label:
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


@dataclass(frozen=True, slots=True)
class Picture:
    """A plan with everything placed; `labels` by processor."""

    scene: Scene
    labels: Mapping[str, Label]


def picture_of(plan: Plan) -> Picture:
    """Place a plan by the sizes of its labels."""
    labels = {id: Label(plan, id) for id in plan.operators}
    scene = place(
        plan,
        {id: (label.width, label.height) for id, label in labels.items()},
        {channel.id: (_channel_width(channel), CHANNEL_HEIGHT) for channel in plan.channels},
        {fragment.id: text_width(heading(fragment.id), NAME_SIZE, bold=True) for fragment in plan.fragments},
    )
    return Picture(scene, labels)


def heading(fragment: str) -> str:
    """What stands above a fragment."""
    return fitted(f"fragment {fragment}", NAME_SIZE, WIDEST, bold=True)


def channel_name(channel: PlannedChannel) -> str:
    """What stands in the box of a channel."""
    return fitted(f"channel {channel.id}", SMALL_SIZE, WIDEST, bold=True)


def _channel_width(channel: PlannedChannel) -> float:
    name = text_width(channel_name(channel), SMALL_SIZE, bold=True)
    return max(name, text_width(CHANNEL_NOTE, SMALL_SIZE)) + CHANNEL_HEIGHT
