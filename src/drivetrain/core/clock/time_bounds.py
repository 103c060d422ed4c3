"""The ends of application time, which every layer must agree on (ms since the epoch, UTC).

A message may have any timestamp of the years 1 to 9999. Timestamps of the last day, from `FINAL_CLOCK_MS` on,
mean "no end": they do not move the clock, and their windows end with the stream.
"""

from __future__ import annotations

from typing import Final

FINAL_CLOCK_MS: Final = 253402214400000
"""The clock of a stream that has ended: 9999-12-31, the last day that every reader can show."""

LAST_MS: Final = 253402300799999
"""The last millisecond of that day: later ones cannot be shown."""

_ANY_TIME_MS: Final = 2**60

NO_CLOCK_MS: Final = -62135596800000
"""Before any clock: 0001-01-01, the first day that every reader can show."""


def clock_behind(newest_ms: int, disorder_ms: int) -> int:
    """The clock of a source whose newest message has that timestamp: within the bounds of application time.

    >>> clock_behind(5000, 1000), clock_behind(NO_CLOCK_MS, 1000) == NO_CLOCK_MS
    (4000, True)
    """
    return max(NO_CLOCK_MS, min(newest_ms - disorder_ms, FINAL_CLOCK_MS - 1))


def ended_by(clock_ms: int) -> int:
    """The latest end of what has ended at this clock; after the stream's end, any time has passed.

    >>> ended_by(5000), ended_by(FINAL_CLOCK_MS) > LAST_MS
    (5000, True)
    """
    return _ANY_TIME_MS if clock_ms >= FINAL_CLOCK_MS else clock_ms


def known_clock(clock_ms: int) -> int | None:
    """The clock, or None for `NO_CLOCK_MS`."""
    return clock_ms if clock_ms > NO_CLOCK_MS else None
