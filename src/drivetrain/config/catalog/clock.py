"""Keys of the application's clock."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import duration_ms

PERSIST_INTERVAL: Final = Key(
    "clock.persist-interval",
    duration_ms(minimum_ms=1),
    "1 s",
    "How often the application's clock is persisted while it moves; it is announced only then. "
    "Callers that wait for a time do not wait for the interval.",
)

STALL_TIMEOUT: Final = Key(
    "clock.stall-timeout",
    duration_ms(minimum_ms=1),
    "1 min",
    "How long a fragment's clock may stand before the run names the fragment and the reason.",
)
