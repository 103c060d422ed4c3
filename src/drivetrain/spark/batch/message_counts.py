"""Counts messages per processor without slowing them down.

Filters and flat maps are observed (`DataFrame.observe`, a metric of the plan); sources, sinks and
channels report their own counts. The other counts follow from these (see `core.plan.counts`).

A task that Spark retries is counted again: figures of runs with retried tasks are upper bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from drivetrain.spark.batch.user_counters import Number, UserCounters


@dataclass
class Counts:
    """Messages that processors emitted (`out`), took (`into`), dropped as late, or dead-lettered.

    `skipped` are those older than the replay, at the processor that assigned their timestamp; `lost` those
    that a source could not read any more and was configured to skip; `not_whole` results of windows that
    had begun before their fragment. All are keyed by processor id. Each attempt of a fragment has its own
    `Counts`; the engine adds to it from the threads of the query. `user` are the application's own
    accumulators.
    """

    out: dict[str, int] = field(default_factory=dict)
    into: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    not_whole: dict[str, int] = field(default_factory=dict)
    user: UserCounters = field(default_factory=UserCounters)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, which: dict[str, int], processor: str, n: int) -> None:
        """Add `n` to one of the mappings."""
        with self._lock:
            which[processor] = which.get(processor, 0) + n

    def take(self, of_batch: Counts) -> None:
        """Add the counts of one batch; accumulators of users add up by themselves."""
        with self._lock:
            for own, added in zip(self._all(), of_batch._all(), strict=True):
                for id, n in added.items():
                    own[id] = own.get(id, 0) + n

    def _all(self) -> tuple[dict[str, int], ...]:
        return self.out, self.into, self.late, self.dead, self.skipped, self.lost, self.not_whole

    def copied(self) -> tuple[dict[str, int], dict[str, int], dict[str, int], dict[str, int]]:
        """A copy of the counts per processor: out, into, late, dead."""
        with self._lock:
            return dict(self.out), dict(self.into), dict(self.late), dict(self.dead)

    @property
    def skipped_rows(self) -> int:
        """The total of messages that were older than the replay."""
        with self._lock:
            return sum(self.skipped.values())

    @property
    def lost_rows(self) -> int:
        """The total of messages that sources skipped because they were gone."""
        with self._lock:
            return sum(self.lost.values())


@dataclass
class Totals:
    """The sum of the counts of several fragments."""

    out: dict[str, int] = field(default_factory=dict)
    into: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    user: dict[str, Number] = field(default_factory=dict)


def together(parts: Iterable[Counts]) -> Totals:
    """The sum of all parts."""
    totals = Totals()
    for part in parts:
        targets = (totals.out, totals.into, totals.late, totals.dead)
        for target, counted in zip(targets, part.copied(), strict=True):
            for id, n in counted.items():
                target[id] = target.get(id, 0) + n
        for name, amount in part.user.values().items():
            totals.user[name] = totals.user.get(name, 0) + amount
    return totals
