"""Input splits: pieces of a bounded input, handed out one at a time on request.

Problem: readers of one input have different speeds and run on different hosts. If the pieces are assigned
beforehand, the slowest reader decides; if they are handed out in any order, everything is read over the
network.

Design: an attempt pulls its next split. Among the splits on its own host it gets the one whose other hosts
have asked least, so that splits which only this host has are not taken by others first; without one on its
host it gets, again, the one whose hosts have asked least. A split's count is how many of its hosts have asked
at all, so it changes when a host first asks. Equals are handed out in the order in which they were given.
Splits of a failed attempt return to the pool and keep their order.

To stay cheap with many splits, `_Chooser` keeps heaps of (count, order): a stale entry is recognised by its
count and dropped when it comes up.

Invariants, checked by `check()`:
1. Every split is in the pool, held by one attempt, or done; never in two of these.
2. A split goes to one attempt at a time; it is handed out again only after that attempt failed.
3. An unknown attempt (never begun, failed, finished) gets `UNKNOWN_ATTEMPT`, never a split and never "no
   more": it must stop, rather than treat its part of the input as finished.
4. "No more" is answered only when the pool is empty. A running attempt may yet fail, so an attempt that got
   this answer may be needed again.

Called by application masters that hand out files. Source: Apache Flink's locatable input split assigner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import TypeAlias

from drivetrain.errors import InternalError

AttemptKey: TypeAlias = tuple[str, int]
"""A reader: a name (a fragment, an executor) and the number of its attempt."""


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of input: `number` from 0, `what` it is (a path, a range), `hosts` that have it locally."""

    number: int
    what: str
    hosts: tuple[str, ...] = ()


class Answer(StrEnum):
    """Why there is no split."""

    NO_MORE = "no more"
    UNKNOWN_ATTEMPT = "unknown attempt"


class _Chooser:
    """A set of splits, ordered by count, then by the order in which they were given."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []

    def add(self, count: int, number: int) -> None:
        heappush(self._heap, (count, number))

    def take(self, counts: list[int], pool: set[int]) -> int | None:
        while self._heap:
            count, number = heappop(self._heap)
            if number in pool and counts[number] == count:
                return number
        return None


class SplitAssigner:
    """Hands out `splits`, whose numbers are their positions; raises InternalError when they are not."""

    def __init__(self, splits: Iterable[Split]) -> None:
        self._splits = tuple(splits)
        if [s.number for s in self._splits] != list(range(len(self._splits))):
            raise InternalError("splits are not numbered from 0")
        self._pool = {s.number for s in self._splits}
        self._done: set[int] = set()
        self._held: dict[AttemptKey, list[int]] = {}
        self._counts = [0] * len(self._splits)  # how many of a split's hosts have asked
        self._any = _Chooser()
        self._local: dict[str, _Chooser] = {}  # by the host that has asked
        self._by_host: dict[str, list[int]] = {}
        self.local_given = 0
        self.remote_given = 0
        for split in self._splits:
            self._any.add(0, split.number)
            for host in dict.fromkeys(split.hosts):
                self._by_host.setdefault(host, []).append(split.number)

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits."""
        return self._splits

    @property
    def waiting(self) -> int:
        """How many splits are in the pool."""
        return len(self._pool)

    @property
    def is_done(self) -> bool:
        """Whether every split was read to its end."""
        return len(self._done) == len(self._splits)

    def begin(self, attempt: AttemptKey) -> None:
        """From now on `attempt` may ask for splits; may be repeated."""
        self._held.setdefault(attempt, [])

    def next(self, attempt: AttemptKey, host: str | None) -> Split | Answer:
        """The next split for `attempt`, which reads on `host` (None: unknown); or why there is none."""
        held = self._held.get(attempt)
        if held is None:
            return Answer.UNKNOWN_ATTEMPT
        number: int | None = None
        if host is not None:
            self._host_asks(host)
            number = self._local[host].take(self._counts, self._pool)
        if number is None:
            number = self._any.take(self._counts, self._pool)
            self.remote_given += number is not None
        else:
            self.local_given += 1
        if number is None:
            return Answer.NO_MORE
        self._pool.remove(number)
        held.append(number)
        return self._splits[number]

    def complete(self, attempt: AttemptKey, number: int) -> bool:
        """`attempt` has read the split to its end; False when it does not hold the split (any more)."""
        held = self._held.get(attempt)
        if held is None or number not in held:
            return False
        held.remove(number)
        self._done.add(number)
        return True

    def fail(self, attempt: AttemptKey) -> tuple[Split, ...]:
        """`attempt` has failed: its splits return to the pool, and it is forgotten."""
        returned = sorted(self._held.pop(attempt, ()))
        for number in returned:
            self._pool.add(number)
            self._offer(number)
        return tuple(self._splits[number] for number in returned)

    def finish(self, attempt: AttemptKey) -> None:
        """`attempt` has read all its splits and is forgotten."""
        self._done.update(self._held.pop(attempt, ()))

    def _host_asks(self, host: str) -> None:
        if host in self._local:
            return
        self._local[host] = _Chooser()
        for number in self._by_host.get(host, ()):
            self._counts[number] += 1
            if number in self._pool:
                self._offer(number)

    def _offer(self, number: int) -> None:
        """Add a split of the pool, with its current count, to every chooser that may select it."""
        count = self._counts[number]
        self._any.add(count, number)
        for host in dict.fromkeys(self._splits[number].hosts):
            if host in self._local:
                self._local[host].add(count, number)

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        held = [number for numbers in self._held.values() for number in numbers]
        placed = [*self._pool, *held, *self._done]
        if sorted(placed) != list(range(len(self._splits))):
            raise InternalError(f"split invariant 1: placed {sorted(placed)} of {len(self._splits)}")
