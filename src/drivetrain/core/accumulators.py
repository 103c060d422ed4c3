"""Accumulators: counters of a running application, merged over the attempts of its fragments.

Problem: an attempt reports its counters again and again, from 0 at its beginning, and the reports of an
attempt that has ended may arrive after its last word, or after its successor's first. A sum over what
arrives counts twice; the newest value alone forgets what earlier attempts did.

Design: the newest value by (owner, attempt, name), and the sum over attempts as the total, because an attempt
goes on where the one before it stopped. An attempt is closed with its last word: what comes later is late.

Invariants, checked by `check()`:
1. The values of a closed attempt never change.
2. Within an attempt a value is never replaced by one that was sent earlier: reports carry a number that
   orders them.
3. The total of a name is the sum of all attempts' values of it.

Called by the application master, for the user's counters and for the messages of processors.
Source: Apache Flink's accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from drivetrain.errors import InternalError

Number: TypeAlias = int | float


@dataclass(slots=True)
class _Attempt:
    order: int = -1
    is_closed: bool = False
    values: dict[str, Number] = field(default_factory=dict)


class Accumulators:
    """The counters of one application, by owner (a fragment) and name."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._totals: dict[str, Number] = {}

    def report(self, owner: str, attempt: int, order: int, values: Mapping[str, Number]) -> bool:
        """Take what `attempt` says it has counted so far; False when it is late and nothing was taken.

        `order` grows with each report of the attempt; an equal or lower one is late.
        """
        known = self._attempts.setdefault((owner, attempt), _Attempt())
        if known.is_closed or order <= known.order:
            return False
        known.order = order
        for name, value in values.items():
            self._totals[name] = self._totals.get(name, 0) + value - known.values.get(name, 0)
        # A name that a report leaves out was not counted since: it keeps its value.
        known.values.update(values)
        return True

    def close(self, owner: str, attempt: int) -> None:
        """The attempt has ended: its values are final."""
        self._attempts.setdefault((owner, attempt), _Attempt()).is_closed = True

    def totals(self) -> dict[str, Number]:
        """The sums by name, in alphabetical order."""
        return {name: self._totals[name] for name in sorted(self._totals)}

    def of(self, owner: str) -> dict[str, Number]:
        """The sums over the attempts of one owner, by name."""
        sums: dict[str, Number] = {}
        for (who, _), attempt in self._attempts.items():
            if who == owner:
                for name, value in attempt.values.items():
                    sums[name] = sums.get(name, 0) + value
        return sums

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        sums: dict[str, Number] = {}
        for attempt in self._attempts.values():
            for name, value in attempt.values.items():
                sums[name] = sums.get(name, 0) + value
        for name in sums.keys() | self._totals.keys():
            ours, theirs = self._totals.get(name, 0), sums.get(name, 0)
            if abs(ours - theirs) > 1e-6 * max(1.0, abs(theirs)):
                raise InternalError(f"accumulator invariant 3: {name} is {ours}, its attempts say {theirs}")
