"""Versions by key and time: which ones a message sees, and which no message can see any more.

Problem: a message sees, of each thing with its key, the newest version up to the message's time, whatever the
order in which messages and versions arrived.

Design: the versions of a key are lists in the order of their times, one for each **thing** (for each value
of `per`). They are named by the row in which the caller keeps them. Of versions with equal times the one with
the larger `rank` counts.

Invariants:

1. What a message sees depends on the versions with times up to its own only.
2. `needed` keeps the newest version of each thing up to the clock, and all later ones: what messages from the
   clock on see stays the same.

Times are microseconds since the epoch. Called by `spark.compile.as_of` for each bucket of keys.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple


class RowVersion(NamedTuple):
    """A version of a thing: its key, the thing, its time (µs), its rank among equals, and its row."""

    key: bytes
    thing: bytes
    time_us: int
    rank: Any
    row: int


class RowVersions:
    """All versions of a bucket of keys.

    >>> versions = Versions([Version(b"eur", b"", 10, "", 0), Version(b"eur", b"", 20, "", 1)])
    >>> versions.seen(b"eur", 19), versions.seen(b"eur", 20), versions.seen(b"eur", 9)
    ([0], [1], [])
    >>> versions.needed(25)
    [1]
    """

    def __init__(self, versions: Iterable[RowVersion]) -> None:
        self._things: dict[bytes, dict[bytes, tuple[list[int], list[int]]]] = {}
        for version in sorted(versions):
            things = self._things.setdefault(version.key, {})
            times, rows = things.setdefault(version.thing, ([], []))
            times.append(version.time_us)
            rows.append(version.row)

    def seen(self, key: bytes, time_us: int) -> list[int]:
        """The rows of the versions that a message sees, in the order of things."""
        found = []
        for times, rows in self._things.get(key, {}).values():
            at = bisect_right(times, time_us)
            if at:
                found.append(rows[at - 1])
        return found

    def needed(self, clock_us: int) -> list[int]:
        """The rows of the versions that messages from the clock on may see, in order."""
        found = []
        for things in self._things.values():
            for times, rows in things.values():
                found += rows[max(bisect_right(times, clock_us) - 1, 0) :]
        return sorted(found)
