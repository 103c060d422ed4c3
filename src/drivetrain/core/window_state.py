"""Windows of Python folds: which windows a message is in, and the states of open windows.

The problem: what Spark's native aggregates do for columns, done for user-defined monoids and folds.
A plain data structure driven from outside; the property test compares it with one pass over all
messages.

Invariants:

1. A window fires once, when the clock has reached its end, unless the window accumulates for ever.
2. A message for a window that has fired is late: counted, and merged nowhere.
3. Session windows of one key never overlap: they are merged as soon as they do. A message exactly one gap
   behind another begins a new session, whether or not the one before has fired.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drivetrain.api.monoids import Monoid
from drivetrain.api.windows import Window

Group = tuple[Any, int, int]
"""(key, start_ms, end_ms); the end of a session is its last message plus the gap."""


def assign(window: Window, ts_ms: int, end_of_time_ms: int) -> list[tuple[int, int]]:
    """The windows [start, end) in ms that a message at `ts_ms` is in.

    >>> from drivetrain.api.windows import sliding
    >>> assign(sliding("10 ms", "5 ms"), 7, 10**15)
    [(0, 10), (5, 15)]
    """
    if window.kind == "global":
        return [(0, end_of_time_ms - 1000)]
    if window.kind == "session":
        return [(ts_ms, ts_ms + window.size_ms)]
    last = ts_ms - ts_ms % window.step_ms
    starts = range(last, ts_ms - window.size_ms, -window.step_ms)
    return sorted((start, start + window.size_ms) for start in starts)


class WindowState:
    """The open windows of some keys; `states` is plain data that can be stored and given back."""

    def __init__(self, window: Window, monoid: Monoid[Any, Any], states: dict[Group, Any]) -> None:
        self.window = window
        self.monoid = monoid
        self.states = states
        self.running = window.kind == "global" and window.emission == "accumulating"
        self._changed: set[Group] = set()

    def merge(self, entries: Iterable[tuple[Group, Any]], clock_ms: int) -> int:
        """Take in partial states (for a fold: messages) by group; returns how many were late."""
        from drivetrain.api.folds import FoldMonoid

        folds = isinstance(self.monoid, FoldMonoid)
        late = 0
        for group, part in entries:
            if group[2] <= clock_ms:
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
        """The results that are due: (key and window columns, value, timestamp ms); fired ones are dropped."""
        if self.running:
            due = [g for g in self.states if g in self._changed]
            self._changed.clear()
            return [self._result(g, clock_ms) for g in due]
        due = [g for g in self.states if g[2] <= clock_ms]
        results = [self._result(g, clock_ms) for g in due]
        for group in due:
            del self.states[group]
        return results

    def next_ms(self) -> int | None:
        """The earliest end of an open window."""
        return min((g[2] for g in self.states), default=None)

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
        lead = key if self.window.kind == "global" else (*key, _utc(start), _utc(end))
        stamp = max(clock_ms, 0) if self.running else end - 1
        return lead, self.monoid.result(self.states[group]), stamp


def _utc(ms: int) -> Any:
    # Arrow takes a naive number of microseconds for a timestamp column; the shell converts.
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
