"""Counters that do not fall when an application master is replaced: a pure core.

Problem: an application master's counters begin at zero with each epoch, and monitoring systems that compute
rates and sums from a counter interpret a fall as a restart of the whole application.

Design: for each application and counter, the totals of earlier epochs are added to the current epoch's value.
The growth between the last look and the end of an epoch is unknown, and is missing from the total.

Invariants:

1. A counter never falls while its application is there.
2. Only applications that were there and not over at the last look are remembered.

Called by `console.metrics.collector`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Series: TypeAlias = tuple[str, ...]
"""The name of a metric and the values of its labels."""


class Counters:
    """The counters of all applications.

    >>> counters = Counters()
    >>> counters.total("wc-1", ("late", "daily"), 5)
    5
    >>> counters.total("wc-1", ("late", "daily"), 2)
    7
    >>> counters.total("wc-1", ("late", "daily"), 3)
    8
    """

    def __init__(self) -> None:
        self._series: Final[dict[str, dict[Series, tuple[int, int]]]] = {}

    def total(self, app_id: str, series: Series, counted: int) -> int:
        """The total of all epochs, when the current application master reports `counted`."""
        known = self._series.setdefault(app_id, {})
        before, last = known.get(series, (0, 0))
        if counted < last:
            before += last
        known[series] = (before, counted)
        return before + counted

    def keep(self, app_ids: Iterable[str]) -> None:
        """Forget all applications but these."""
        for gone in self._series.keys() - set(app_ids):
            del self._series[gone]
