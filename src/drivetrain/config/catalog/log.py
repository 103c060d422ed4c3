"""Keys of the logs of all processes."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice

FORMAT: Final = Key(
    "log.format",
    choice("text", "json"),
    "text",
    "How masters, workers, the console and the processes of applications write their logs: lines of text, or "
    "one JSON object a line.",
)
