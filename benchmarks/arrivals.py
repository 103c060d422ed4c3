"""When results came out: the functions of sinks note it here.

A function differs from another one if what it uses of its own module differs; other modules count by their
names. So the times are in a module of their own: they grow, and a sink that notes them stays the same.

Called by `attaching`, `changes` and `scaling_pause`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence

BEFORE = 10
"""Batches before a change whose distances are its measure."""


class Times:
    """When batches came out, in seconds; a batch function appends."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._rows: list[int] = []

    def note(self, rows: int = 0) -> None:
        """A batch comes out, with so many rows."""
        self._rows.append(rows)
        self.seen.append(time.perf_counter())

    def batches(self) -> list[tuple[float, int]]:
        """When each batch came out, and how many rows it had."""
        return list(zip(self.seen, self._rows, strict=False))

    def wait_for_more(self, batches: int, at_most_s: float = 120) -> None:
        """Wait for that many batches from now on."""
        wanted = len(self.seen) + batches
        deadline_s = time.perf_counter() + at_most_s
        while len(self.seen) < wanted:
            if time.perf_counter() > deadline_s:
                raise TimeoutError(f"{batches} batches did not come out within {at_most_s:.0f} s")
            time.sleep(0.002)


def longest_gap_ms(times: Sequence[float], began_s: float, ended_s: float) -> tuple[float, float]:
    """The longest time without a batch around a span, and the median of the `BEFORE` before it, in ms.

    >>> longest_gap_ms([0.0, 1.0, 2.0, 5.0, 6.0], began_s=2.5, ended_s=4.0)
    (3000.0, 1000.0)
    """
    gaps = list(itertools.pairwise(times))
    around = [end - begin for begin, end in gaps if end > began_s and begin < ended_s]
    before = [end - begin for begin, end in gaps if end <= began_s][-BEFORE:]
    return 1000 * max(around), 1000 * statistics.median(before)


MAPPED = Times()
WINDOWED = Times()
