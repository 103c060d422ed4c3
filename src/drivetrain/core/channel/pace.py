"""When a subscriber that gathers messages for some time begins its next batch.

Problem: early results should come every 10 s, not after each small batch. But a subscriber that waits must
not hold back its producer, a checkpoint, or the end of the input, and must be able to catch up.

Design: wall time is divided into intervals, as `trigger(processingTime=...)` of Spark does. A batch begins
when another interval has begun since the last batch was planned, or at once when

- none was planned since the query started,
- a batch cannot take all that waits: it is as large as it may be, or a checkpoint divides the messages,
- the producer has ended, or
- half of what a subscriber may leave unread is waiting.

Pure. Called by `spark.channel.source`.
"""

from __future__ import annotations

from dataclasses import dataclass

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS


@dataclass(frozen=True)
class Waiting:
    """What a batch would take: entries, messages and bytes, and the clock after them (ms)."""

    entries: int
    rows: int
    bytes: int
    clock_ms: int
    is_all: bool
    """Whether it would take all that waits."""


@dataclass(frozen=True)
class Pace:
    """A batch in each interval of `interval_ms`; the rest is what may be unread, 0 for no limit."""

    interval_ms: int
    entries: int
    rows: int
    bytes: int

    def is_due(self, waiting: Waiting, now_ms: int, planned_ms: int | None) -> bool:
        """Whether the next batch begins at `now_ms`, if the last one was planned at `planned_ms`.

        >>> pace = Pace(interval_ms=10_000, entries=50, rows=0, bytes=1_000)
        >>> few = Waiting(entries=1, rows=3, bytes=90, clock_ms=0, is_all=True)
        >>> pace.is_due(few, now_ms=19_999, planned_ms=10_000), pace.is_due(few, 20_000, 10_000)
        (False, True)
        """
        if planned_ms is None or not waiting.is_all or waiting.clock_ms >= FINAL_CLOCK_MS - 1:
            return True
        counts = ((waiting.entries, self.entries), (waiting.rows, self.rows), (waiting.bytes, self.bytes))
        if any(limit and 2 * count >= limit for count, limit in counts):
            return True
        # Any other interval, not only a later one: if the wall clock was set back, a later one may be far
        # away.
        return now_ms // self.interval_ms != planned_ms // self.interval_ms
