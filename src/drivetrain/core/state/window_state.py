"""Windows of Python folds: which windows contain a message, and the states of open windows.

The problem: user-defined monoids and folds need what Spark's native aggregates do for columns.
A plain data structure driven from outside; the property test compares it with one pass over all
messages.

Invariants:

1. A window fires once, when the clock has reached its end or the stream ends, unless it accumulates.
2. A message for a window that has fired is late: counted, and merged nowhere.
3. Session windows of one key never overlap: they are merged as soon as they do. A message exactly one gap
   after another begins a new session, whether or not the earlier session has fired.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from drivetrain.api.states.monoids import Monoid
from drivetrain.api.windows import Window
from drivetrain.core.clock.time_bounds import LAST_MS, ended_by, known_clock

Group = tuple[Any, int, int]
"""(key, start, end); the end of a session is its last message plus the gap."""


def assign(window: Window, ts: int, end_of_time: int, per_ms: int = 1) -> list[tuple[int, int]]:
    """The windows [start, end) that contain `ts`, in ms, or in a smaller unit (`per_ms` of them are one ms).

    >>> from drivetrain.api.windows import sliding
    >>> assign(sliding("10 ms", "5 ms"), 7, 10**15)
    [(0, 10), (5, 15)]
    """
    if window.kind == "global":
        return [(0, end_of_time - 1000 * per_ms)]
    size, step = window.size_ms * per_ms, window.step_ms * per_ms
    if window.kind == "session":
        return [(ts, ts + size)]
    last = ts - ts % step
    return sorted((start, start + size) for start in range(last, ts - size, -step))


class WindowState:
    """The open windows of some keys; `states` is plain data that can be stored and restored.

    Their bounds are in ms, or in a smaller unit (`per_ms` of them are one ms); the clock is in ms.
    """

    def __init__(
        self, window: Window, monoid: Monoid[Any, Any], states: dict[Group, Any], per_ms: int = 1
    ) -> None:
        self.window = window
        self.per_ms = per_ms
        self.monoid = monoid
        self.states = states
        self.running = window.kind == "global" and window.emission == "accumulating"
        self._changed: set[Group] = set()

    def merge(self, entries: Iterable[tuple[Group, Any]], clock_ms: int) -> int:
        """Add partial states (for a fold: messages) by group; returns how many were late."""
        from drivetrain.api.states.folds import FoldMonoid

        folds = isinstance(self.monoid, FoldMonoid)
        late = 0
        for group, part in entries:
            if group[2] <= clock_ms * self.per_ms:
                late += 1
                continue
            target = self._merged_session(group) if self.window.kind == "session" else group
            present = self.states.get(target)
            if folds:
                self.states[target] = self.monoid.add(
                    self.monoid.zero() if target not in self.states else present, part
                )
            else:
                self.states[target] = part if target not in self.states else self.monoid.plus(present, part)
            self._changed.add(target)
        return late

    def fire(self, clock_ms: int) -> list[tuple[tuple[Any, ...], Any, int]]:
        """The results that are due: (key and window columns, value, timestamp); fired ones are dropped.

        The timestamp of a window is the last whole millisecond before its end.
        """
        if self.running:
            due = [g for g in self.states if g in self._changed]
            self._changed.clear()
            return [self._result(g, clock_ms) for g in due]
        due = [g for g in self.states if g[2] <= ended_by(clock_ms) * self.per_ms]
        results = [self._result(g, clock_ms) for g in due]
        for group in due:
            del self.states[group]
        return results

    def next_ms(self) -> int | None:
        """The earliest clock (ms) at which an open window has ended."""
        end = min((g[2] for g in self.states), default=None)
        return None if end is None else -(-end // self.per_ms)

    def _merged_session(self, group: Group) -> Group:
        key, start, end = group
        shared = [g for g in self.states if g[0] == key and g[1] < end and start < g[2]]
        if not shared:
            return group
        merged = (key, min(start, *(g[1] for g in shared)), max(end, *(g[2] for g in shared)))
        states = [self.states.pop(g) for g in sorted(shared, key=lambda g: g[1])]
        joined = states[0]
        for state in states[1:]:
            joined = self.monoid.plus(joined, state)
        self.states[merged] = joined
        self._changed -= set(shared)
        return merged

    def _result(self, group: Group, clock_ms: int) -> tuple[tuple[Any, ...], Any, int]:
        key, start, end = group
        last = LAST_MS * self.per_ms
        lead = key if self.window.kind == "global" else (*key, self._utc(start), self._utc(min(end, last)))
        value = self.monoid.result(self.states[group])
        if self.running:
            return lead, value, (known_clock(clock_ms) or 0) * self.per_ms
        return lead, value, min((end - 1) // self.per_ms * self.per_ms, last)

    def _utc(self, time: int) -> datetime:
        return _EPOCH + timedelta(microseconds=time * 1000 // self.per_ms)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
