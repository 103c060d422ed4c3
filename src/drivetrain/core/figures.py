"""Numbers as people read them: rates, counts, durations, clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def show_count(count: int | None) -> str:
    """A whole number with its thousands separated: 1234567 is "1,234,567"; None is "–"."""
    return "–" if count is None else f"{count:,}"


def show_counted(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun: "1 batch", "1,200 batches"; the plural is `one` with an s unless given."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def show_rate(per_second: float) -> str:
    """A rate in three digits: 1234567.0 is "1.23 M/s"."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= factor:
            return f"{per_second / factor:.3g} {unit}/s"
    return f"{per_second:.3g}/s"


def show_size(count: int) -> str:
    """An amount of bytes in three digits: 12345678 is "12.3 MB"."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def show_span(duration_ms: int) -> str:
    """A duration in at most two units: 90500 is "1 min 30 s"."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    seconds = duration_ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def show_clock(clock_ms: int | None) -> str:
    """A clock in UTC: 0 is "1970-01-01 00:00:00"; before any message "–", after the last "end"."""
    if clock_ms is None:
        return "–"
    if clock_ms >= FINAL_CLOCK_MS:
        return "end"
    try:
        return (_EPOCH + timedelta(milliseconds=clock_ms)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return "–"


def show_share(fraction: float) -> str:
    """A share of one in whole percent, rounded down, so that 100 % means all of it."""
    return f"{int(fraction * 100)} %"
