"""The timers of a bucket of keys: times at which keys want to be called, in order.

A timer is a time and a key; setting it again changes nothing. It is kept with the states of its bucket, so it
belongs to every checkpoint, and it is taken once.

Invariants:

1. Timers are taken in the order of their times, and of their keys at one time.
2. A timer that was set is taken once, unless it was cancelled before.

Called by `core.state.two_state`, which keeps them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final


class KeyTimers:
    """The timers; `kept` gives those from which the next object is created.

    >>> timers = KeyTimers([(5, b"a")])
    >>> timers.set(b"b", 3)
    >>> timers.take(4), timers.take(4), timers.next_ms()
    ((3, b'b'), None, 5)
    """

    def __init__(self, kept: Iterable[tuple[int, bytes]] = ()) -> None:
        self._set: Final = set(kept)
        self._queue: Final = sorted(self._set)

    def __len__(self) -> int:
        return len(self._set)

    def set(self, key: bytes, at_ms: int) -> None:
        """Set a timer of a key."""
        if (at_ms, key) not in self._set:
            self._set.add((at_ms, key))
            heapq.heappush(self._queue, (at_ms, key))

    def cancel(self, key: bytes, at_ms: int | None = None) -> None:
        """Cancel a timer of a key, if it is set; without a time, all of its timers."""
        if at_ms is not None:
            self._set.discard((at_ms, key))
        else:
            self._set.difference_update([timer for timer in self._set if timer[1] == key])

    def take(self, until_ms: int) -> tuple[int, bytes] | None:
        """The next timer up to a time, which is then no longer set; None if there is none."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > until_ms:
            return None
        timer = heapq.heappop(self._queue)
        self._set.remove(timer)
        return timer

    def next_ms(self) -> int | None:
        """The time of the next timer; None if there is none."""
        while self._queue and self._queue[0] not in self._set:
            heapq.heappop(self._queue)  # it was cancelled
        return self._queue[0][0] if self._queue else None

    def kept(self) -> list[tuple[int, bytes]]:
        """All timers, in order."""
        return sorted(self._set)
