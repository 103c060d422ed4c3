"""Accumulators: counters of a running application, merged over the attempts of its fragments.

Problem: an attempt reports its counters again and again, from 0 at its beginning, and the reports of an ended
attempt may arrive after its last report, or after its successor's first. Summing every report counts twice;
the newest value alone forgets what earlier attempts did.

Design: the newest value by (owner, attempt, name), and the sum over attempts as the total, because an attempt
continues where the one before it stopped. Its last report closes an attempt: later ones are ignored.
A few attempts of each owner are kept; the values of older closed ones are kept as one sum.

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
from typing import Final, TypeAlias

from drivetrain.errors import InternalError

Number: TypeAlias = int | float

_MOST_ATTEMPTS: Final = 8


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
        self._merged: dict[str, dict[str, Number]] = {}  # of attempts below the owner's first one
        self._first: dict[str, int] = {}

    def report(self, owner: str, attempt: int, order: int, values: Mapping[str, Number]) -> bool:
        """Record a report of what `attempt` has counted so far; False when it is late and was ignored.

        `order` grows with each report of the attempt; an equal or lower one is late.
        """
        if attempt < self._first.get(owner, attempt):
            return False
        known = self._attempts.setdefault((owner, attempt), _Attempt())
        if known.is_closed or order <= known.order:
            return False
        known.order = order
        for name, value in values.items():
            self._totals[name] = self._totals.get(name, 0) + value - known.values.get(name, 0)
        # A name that is missing in a report has not been counted since: it keeps its value.
        known.values.update(values)
        return True

    def close(self, owner: str, attempt: int) -> None:
        """The attempt has ended: its values are final."""
        if attempt < self._first.get(owner, attempt):
            return
        self._attempts.setdefault((owner, attempt), _Attempt()).is_closed = True
        self._merge_oldest(owner)

    def _merge_oldest(self, owner: str) -> None:
        """Keep the values of attempts that ended long ago as one sum."""
        known = sorted(attempt for who, attempt in self._attempts if who == owner)
        while len(known) > _MOST_ATTEMPTS and self._attempts[owner, known[0]].is_closed:
            oldest = known.pop(0)
            merged = self._merged.setdefault(owner, {})
            for name, value in self._attempts.pop((owner, oldest)).values.items():
                merged[name] = merged.get(name, 0) + value
            self._first[owner] = oldest + 1

    def totals(self) -> dict[str, Number]:
        """The sums by name, in alphabetical order."""
        return {name: self._totals[name] for name in sorted(self._totals)}

    def of(self, owner: str) -> dict[str, Number]:
        """The sums over the attempts of one owner, by name."""
        sums: dict[str, Number] = dict(self._merged.get(owner, {}))
        for (who, _), attempt in self._attempts.items():
            if who == owner:
                for name, value in attempt.values.items():
                    sums[name] = sums.get(name, 0) + value
        return sums

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        sums: dict[str, Number] = {}
        for values in (*self._merged.values(), *(attempt.values for attempt in self._attempts.values())):
            for name, value in values.items():
                sums[name] = sums.get(name, 0) + value
        for name in sums.keys() | self._totals.keys():
            ours, theirs = self._totals.get(name, 0), sums.get(name, 0)
            if abs(ours - theirs) > 1e-6 * max(1.0, abs(theirs)):
                raise InternalError(f"accumulator invariant 3: {name} is {ours}, its attempts say {theirs}")
