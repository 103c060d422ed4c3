"""The wall clock of a machine on which shells are simulated: it is set forward and back by up to an hour.

Files have the time of the machine on which the test runs, so this clock begins there, and advances with
virtual time. It draws from a generator of its own, so that a seed has the same meaning however often the
clock is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

STEP_S = 3_600.0
LIKELY = 0.05
"""The probability that the clock was set since it was last read."""


class WallClock:
    """Seconds since 1970, when it is called."""

    def __init__(self, seed: str, monotonic_s: Callable[[], float]) -> None:
        self._random = Random(f"wall clock {seed}")
        self._monotonic_s = monotonic_s
        self._ahead_s = time.time() - monotonic_s()
        self.steps = 0

    def __call__(self) -> float:
        if self._random.random() < LIKELY:
            self._ahead_s += self._random.uniform(-STEP_S, STEP_S)
            self.steps += 1
        return self._monotonic_s() + self._ahead_s

    def time_ns(self) -> int:
        """Nanoseconds since 1970."""
        return int(self() * 1e9)
