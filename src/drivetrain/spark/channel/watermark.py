"""Conversion between Spark's watermark and Drivetrain's clock.

Problem: Spark's watermark starts at 1970 and never goes below, so messages from before 1970 would be late.
Spark also computes it from timestamps: one of 9999-12-31, which means "no end", would end the stream.

Design: inside a query, event time is counted from the year 1 instead: Spark's watermark is the clock plus
`SHIFT_MS`, and so are the event time columns of stateful operators (`on_watermark_scale`). Readers of the
watermark subtract the shift. The end of a stream is a watermark beyond every window and every delay.

Invariants:

1. The watermark of a clock is the clock plus the shift; that of the final clock is above those of all
   timestamps, even after any allowed lateness is subtracted.
2. Data never move the watermark to that of the final clock, and timestamps that mean "no end" do not move it.

Called by: the sources that carry a clock, `clocked`, the compilers of stateful operators, and readers of a
watermark.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, LAST_MS, NO_CLOCK_MS
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from pyspark.sql import Column

SHIFT_MS: Final = -NO_CLOCK_MS
END_WATERMARK_MS: Final = LAST_MS + SHIFT_MS + 10_000 * 366 * 86_400_000
"""The watermark of the final clock: ten thousand years after the last timestamp, which leaves space for any
lateness."""

_CYCLE_MS: Final = 146_097 * 86_400_000  # of the calendar: 400 years
_REPORTED: Final = re.compile(r"\+?(\d{4,})(-.*)")


def watermark_of(clock_ms: int) -> int:
    """Spark's watermark (ms) for a clock; 0 for none.

    >>> watermark_of(NO_CLOCK_MS), watermark_of(0) == SHIFT_MS
    (0, True)
    """
    return END_WATERMARK_MS if clock_ms >= FINAL_CLOCK_MS else max(0, clock_ms + SHIFT_MS)


def clock_of(watermark_ms: int) -> int | None:
    """The clock for one of Spark's watermarks (ms); None while there is none.

    >>> clock_of(0), clock_of(watermark_of(-1)), clock_of(watermark_of(FINAL_CLOCK_MS)) == FINAL_CLOCK_MS
    (None, -1, True)
    """
    if watermark_ms <= 0:
        return None
    if watermark_ms > LAST_MS + SHIFT_MS:
        return FINAL_CLOCK_MS
    return min(watermark_ms - SHIFT_MS, FINAL_CLOCK_MS - 1)


def on_watermark_scale(timestamp: Column, later_us: int = 0) -> Column:
    """A timestamp column on the scale of Spark's watermark, `later_us` later."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    return F.timestamp_micros(F.unix_micros(timestamp) + F.lit(SHIFT_MS * 1000 + later_us))


def moving_watermark(timestamp: Column) -> Column:
    """How far a timestamp column moves the watermark: not at all if the timestamp means "no end"."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    micros = F.unix_micros(timestamp)
    before_end = micros < F.lit(FINAL_CLOCK_MS * 1000)
    return F.timestamp_micros(F.when(before_end, micros + F.lit(SHIFT_MS * 1000)).otherwise(F.lit(0)))


def parse_watermark(text: str) -> int:
    """Parse a watermark from Spark's reports, to ms; its year may be beyond those of Python's dates.

    >>> parse_watermark("1970-01-01T00:00:01.500Z"), parse_watermark("+11969-01-01T00:00:00.000Z") > LAST_MS
    (1500, True)
    """
    found = _REPORTED.fullmatch(text)
    if found is None:
        raise InternalError(f"Spark reported a watermark as {text!r}")
    year, rest = int(found[1]), found[2]
    cycles = max(0, (year - 9600) // 400)
    moment = datetime.fromisoformat(f"{year - 400 * cycles:04d}{rest}")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000 + cycles * _CYCLE_MS
