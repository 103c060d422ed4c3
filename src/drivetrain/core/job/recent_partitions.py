"""Counts the messages that each partition of a source has given recently.

Problem: one partition with most of the messages makes its task the slowest of every batch. Counts since the
start hide a skew that began an hour ago, and the counts of a single batch vary too much.

Design: the counts cover two spans of `SPAN_MS`: the current one and the one before it. A span ends with the
first batch after its time, so a silent source keeps its last counts.

Invariants, checked by `check()`:

1. No count is negative, and at most `MOST_NAMED` partitions are named.

Called by `spark.batch.query_figures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drivetrain.core.job.fragment_figures import MOST_NAMED
from drivetrain.errors import InternalError

SPAN_MS: Final = 60_000


class RecentPartitions:
    """Messages by partition of the last one to two minutes; times in ms of a clock that does not go back."""

    def __init__(self) -> None:
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._since_ms: int | None = None

    def record_rows(self, rows: Mapping[str, int], now_ms: int) -> None:
        """Add a batch's messages by partition; partitions without messages count, too."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= SPAN_MS:
            self._before, self._now, self._since_ms = self._now, {}, now_ms
        for partition, count in rows.items():
            if partition in self._now or len(self._now) < MOST_NAMED:
                self._now[partition] = self._now.get(partition, 0) + max(0, count)

    def rows(self) -> dict[str, int]:
        """The messages of each partition in both spans."""
        names = list(dict.fromkeys([*self._now, *self._before]))[:MOST_NAMED]
        return {name: self._now.get(name, 0) + self._before.get(name, 0) for name in names}

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        rows = self.rows()
        if len(rows) > MOST_NAMED or any(count < 0 for count in rows.values()):
            raise InternalError(f"partitions invariant 1: {rows}")
