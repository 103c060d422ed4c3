"""The rules about growth: of state without bound, and of lag when input arrives faster than it is processed.

Problem: figures rise and fall with every batch. A rule that compares two moments warns at noise, and a single
peak misleads one that fits a line. State that is emptied from time to time (when a window ends) grows in
between, which is normal.

Design: a series has a trend if nearly all pairs of its points agree on the direction (Kendall's tau), and if
the median of all slopes between points (Theil and Sen) makes a difference over the whole span. Both ignore a
few outliers. A sawtooth has too many falling pairs. Only the current attempt counts, because a restart resets
some figures. A series is thinned to `MOST_POINTS` first.

Invariants:

1. A series that does not rise, and one that is shorter than `LEAST_SPAN_MS`, has no trend.
2. The trend does not depend on a constant that is added to the times.

Called by `rules`. Source: M. G. Kendall, 1938; P. K. Sen, 1968.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import median
from typing import Final

from drivetrain.core.diagnosis.causes import cause_of
from drivetrain.core.diagnosis.finding import Finding, Severity
from drivetrain.core.diagnosis.situation import FragmentSituation, Situation
from drivetrain.core.diagnosis.waits import figures_of
from drivetrain.core.figures import show_count, show_counted, show_share, show_size, show_span
from drivetrain.core.job.history import FragmentMoment

LEAST_SPAN_MS: Final = 5 * 60_000
LEAST_POINTS: Final = 10
MOST_POINTS: Final = 30
AGREE: Final = 0.8
"""Kendall's tau of a trend: nine of ten pairs rise."""
GROWTH: Final = 0.2
"""A rise by less than this share of where it began is not worth a word."""
MUCH_STATE_BYTES: Final = 64 * 2**20
MANY_STATE_ROWS: Final = 100_000
MUCH_LAG_ROWS: Final = 10_000

Point = tuple[int, float]
"""A time in ms, and a value."""


@dataclass(frozen=True)
class Trend:
    """A rising value: its first and last value, the time between them in ms, and the rise per second."""

    began: float
    now: float
    span_ms: int
    per_s: float

    @property
    def growth(self) -> float:
        """The growth as a share of the first value."""
        return (self.now - self.began) / self.began if self.began > 0 else float("inf")


def trend_of(series: Sequence[Point]) -> Trend | None:
    """The upward trend of a series with ascending times; None if it has none, or is too short to show one.

    >>> trend_of([(10_000 * i, 100.0 + i) for i in range(60)]).growth > 0.5
    True
    >>> trend_of([(10_000 * i, 100.0 + i % 2) for i in range(60)]) is None
    True
    """
    if len(series) < LEAST_POINTS or series[-1][0] - series[0][0] < LEAST_SPAN_MS:
        return None
    kept = min(MOST_POINTS, len(series))
    return _trend_of_few(tuple(series[n * (len(series) - 1) // (kept - 1)] for n in range(kept)))


@lru_cache(maxsize=4096)
def _trend_of_few(points: tuple[Point, ...]) -> Trend | None:
    """The upward trend of all pairs of points; a console asks each second, and a history grows every ten."""
    pairs = list(combinations(points, 2))
    rises = sum((b > a) - (b < a) for (_, a), (_, b) in pairs)
    if rises < AGREE * len(pairs):
        return None
    slope = median((b - a) / (tb - ta) for (ta, a), (tb, b) in pairs)
    if slope <= 0:
        return None
    span_ms = points[-1][0] - points[0][0]
    began = median(value - slope * (at_ms - points[0][0]) for at_ms, value in points)
    return Trend(max(0.0, began), began + slope * span_ms, span_ms, slope * 1000)


def state_grows(situation: Situation) -> Iterator[Finding]:
    """State that grows all the time, and is large enough to matter."""
    for fragment in situation.running():
        figures = fragment.figures
        rows, size = figures.state_rows or 0, figures.state_bytes or 0
        trend, now = None, ""
        # The thresholds first: a trend is computed from a whole history.
        if rows >= MANY_STATE_ROWS:
            trend, now = _trend(situation, fragment, lambda m: m.state_rows), show_counted(rows, "row")
        if trend is None and size >= MUCH_STATE_BYTES:
            trend, now = _trend(situation, fragment, lambda m: m.state_bytes), show_size(size)
        if trend is None:
            continue
        yield Finding(
            "state-grows",
            Severity.WARNING,
            fragment.id,
            f"its state has grown by {_share(trend)} in {show_span(trend.span_ms)} to {now}, and does not "
            "shrink",
            "bound it: windows that end, an idle time after which a key is forgotten, or keys that do not "
            "grow in number; if it is still filling for the first time, wait",
            evidence=((show_counted(rows, "row"),) if rows else ()) + figures_of(fragment),
            since_ms=trend.span_ms,
        )


def falls_behind(situation: Situation) -> Iterator[Finding]:
    """Input that arrives faster than it is processed."""
    for fragment in situation.running():
        if (fragment.lag_rows or 0) < MUCH_LAG_ROWS or fragment.blocked_by is not None:
            continue
        trend = _trend(situation, fragment, lambda moment: moment.lag_rows)
        if trend is None:
            continue
        cause = cause_of(fragment.figures)
        yield Finding(
            "falls-behind",
            Severity.WARNING,
            fragment.id,
            f"{show_count(fragment.lag_rows)} messages wait, {show_count(int(trend.per_s))} more each "
            "second: input comes faster than it is processed",
            "give Spark more cores, or make what it does with each message cheaper"
            if cause is None
            else cause.remedy,
            () if cause is None else ("its batches do not keep up with its input", cause.sentence),
            figures_of(fragment),
            trend.span_ms,
        )


def _trend(
    situation: Situation, fragment: FragmentSituation, figure: Callable[[FragmentMoment], int | None]
) -> Trend | None:
    """The trend of a figure in the current attempt; None if it has none, or grows by less than `GROWTH`."""
    moments = [(at_ms, m) for at_ms, m in situation.history.of(fragment.id) if m.attempt == fragment.attempt]
    series = [(at_ms, float(n)) for at_ms, moment in moments if (n := figure(moment)) is not None]
    trend = trend_of(series)
    return trend if trend is not None and trend.growth >= GROWTH else None


def _share(trend: Trend) -> str:
    return show_share(trend.growth) if trend.growth < 10 else "more than ten times"
