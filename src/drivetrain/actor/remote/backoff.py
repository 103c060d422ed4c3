"""How long to wait before the next attempt to connect.

Invariant: delays double from the least to the most, each shortened at random by up to half so that many
systems do not come back at the same moment; success starts over.

Called by `Association`.
"""

from __future__ import annotations

from random import Random
from typing import Final


class Backoff:
    """Delays in seconds, from `min_ms` to `max_ms`."""

    def __init__(self, min_ms: int, max_ms: int, random: Random) -> None:
        self._min_ms: Final = min_ms
        self._max_ms: Final = max_ms
        self._random: Final = random
        self._failures = 0

    def next_delay_s(self) -> float:
        """Count a failure; how long to wait now."""
        delay_ms = min(self._max_ms, self._min_ms << min(self._failures, 30))
        self._failures += 1
        return delay_ms * self._random.uniform(0.5, 1.0) / 1000.0

    def succeeded(self) -> None:
        """Start over."""
        self._failures = 0
