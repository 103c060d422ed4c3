"""Keys of checkpoints of the whole application."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms

MODE: Final = Key(
    "checkpoint.mode",
    choice("auto", "on", "off"),
    "auto",
    'Whether checkpoints of the whole application are made: "on", "off", or "auto": if a sink asks for them. '
    "With them sinks publish at each checkpoint, together; a savepoint can be made without them, too.",
)

INTERVAL: Final = Key(
    "checkpoint.interval",
    duration_ms(minimum_ms=100),
    "1 s",
    "How often a checkpoint begins, from start to start; one that takes longer delays the next.",
)

TIMEOUT: Final = Key(
    "checkpoint.timeout",
    duration_ms(minimum_ms=1),
    "30 s",
    "How long one step of a checkpoint may take before it is rolled back and tried again.",
)
