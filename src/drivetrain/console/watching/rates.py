"""Messages per second of each processor, from the totals that an application master reports.

Problem: totals grow by whole batches, so the difference between two reports a second apart is either zero or
a whole batch; and totals begin at zero with each epoch.

Design: a pure core. A rate is the growth over the last `SPAN_MS`, on the application master's own clock.

Invariants:

1. All readings are of one epoch, in the order of their times.
2. There are at most `MOST_READINGS`, and one that is older than `SPAN_MS` only if it is the first.

Called by `console.watching.cluster_watch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from drivetrain.errors import InternalError

SPAN_MS: Final = 10_000
MOST_READINGS: Final = 32

Counts: TypeAlias = Mapping[str, tuple[int, int, int, int]]


class Rates:
    """The rates of one application.

    >>> rates = Rates()
    >>> rates.note(1, 0, {"lines": (0, 0, 0, 0)})
    >>> rates.of("lines")
    >>> rates.note(1, 2_000, {"lines": (10, 20, 0, 0)})
    >>> rates.of("lines")
    (5.0, 10.0)
    """

    def __init__(self) -> None:
        self._epoch = -1
        self._readings: Final[deque[tuple[int, Counts]]] = deque(maxlen=MOST_READINGS)

    def note(self, epoch: int, now_ms: int, counts: Counts) -> None:
        """Take the totals that the application master of `epoch` reported at `now_ms`."""
        if epoch != self._epoch or (self._readings and now_ms < self._readings[-1][0]):
            self._epoch = epoch
            self._readings.clear()
        if self._readings and now_ms == self._readings[-1][0]:
            return
        self._readings.append((now_ms, counts))
        while len(self._readings) > 2 and now_ms - self._readings[1][0] >= SPAN_MS:
            self._readings.popleft()

    def of(self, processor: str) -> tuple[float, float] | None:
        """Messages in and out per second; None until there are two readings."""
        if len(self._readings) < 2:
            return None
        (first_ms, before), (last_ms, after) = self._readings[0], self._readings[-1]
        old, new = before.get(processor), after.get(processor)
        if old is None or new is None:
            return None
        seconds = (last_ms - first_ms) / 1000
        return max(0, new[0] - old[0]) / seconds, max(0, new[1] - old[1]) / seconds

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        times = [at for at, _ in self._readings]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise InternalError("rates invariant 1: times do not grow")
        if any(times[-1] - at > SPAN_MS for at in times[1:]):
            raise InternalError("rates invariant 2: a reading is too old")
