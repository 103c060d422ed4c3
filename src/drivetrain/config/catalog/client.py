"""Keys of clients: how long a command waits for the masters."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms

TIMEOUT: Final = Key(
    "client.timeout",
    duration_ms(minimum_ms=100),
    "15 s",
    "How long a command waits for a leading master before it fails.",
)
