"""States as of an application time: one takes only what is older than `Tc`, the other takes everything.

Problem: somebody wants the state exactly as of an application time, all messages older than it and no other.
Messages do not come in order, and nobody can stop the stream at that time to look.

Design: two states. The **checkpoint state** takes only messages older than `Tc`. The **current state** is the
checkpoint state and everything at or after `Tc`, which waits beside it in **panes**, one for each step of
application time, merged within. When the clock reaches `Tc` no older message is to come, and the checkpoint
state is an exact **picture** as of `Tc`. Then the next `Tc` is bound, and the panes before it are merged into
the checkpoint state. Bound by `core.checkpoint_time`'s rule it is above all timestamps seen, and that is all
of them; there are then never more than a few. Bound by somebody who knew less than this, panes remain, and
every picture is exact all the same. A time that the clock has reached before it was bound cannot be had any
more: `bind` says so.

The clock is never held: `clock_ms` is the input's, with messages or without.

What comes late (older than the clock) is taken by the current state and counted; no picture changes by it.

`KeyedStates` has one state for each key, `WindowedStates` the open windows. Monoids join the two states by
`plus`. A fold cannot join states: its panes hold the messages, and its current state is kept as well. There
the checkpoint state folds in the order of arrival per pane, the panes in the order of time.

Invariants, checked by `check()`:

1. `picture_ms` ≤ clock < `Tc`, or no `Tc` is bound.
2. What is in a pane has timestamps in [pane, pane + step), and no pane begins before `Tc`.
3. A pane is a multiple of the step, and so is `Tc`.

Called by persistent Tasks and by windows of Python folds, for one key space (a bucket of keys). Source:
Apache Gearpump's MonoidState (left and right part) and WindowState.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from drivetrain.api.folds import FoldMonoid
from drivetrain.api.monoids import Monoid
from drivetrain.api.windows import Window
from drivetrain.core.checkpoint_time import next_time_ms
from drivetrain.core.clock import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.window_state import Group, WindowState, assign
from drivetrain.errors import InternalError

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")

_GONE: Final = object()


@dataclass(frozen=True)
class Picture(Generic[K]):
    """States as of `checkpoint_ms`, by key (those that the last picture has not so) or by open window."""

    checkpoint_ms: int
    states: dict[K, Any]


class _TimeAligned(ABC, Generic[P]):
    """What both have in common: when a picture is due, and which pane a timestamp is in."""

    def __init__(self, step_ms: int, clock_ms: int | None) -> None:
        self.step_ms = step_ms
        self.clock_ms = NO_CLOCK_MS if clock_ms is None else clock_ms
        self.checkpoint_ms: int | None = None
        """`Tc`, once it is bound."""
        self.picture_ms: int | None = None
        """As of when the newest picture is."""
        self.largest_ts_ms: int | None = None
        self.late = 0
        self._panes: dict[int, P] = {}

    def bind(self, checkpoint_ms: int, step_ms: int | None = None) -> bool:
        """Make the next picture as of a time; False, and nothing is changed, when the clock has reached it.

        A longer step must be a multiple of the present one, and the time one of the step; a time before the
        bound one is refused as well. Both raise InternalError.
        """
        step_ms = self.step_ms if step_ms is None else step_ms
        before = self.checkpoint_ms
        falls = before is not None and before > checkpoint_ms
        if falls or step_ms % self.step_ms or checkpoint_ms % step_ms:
            raise InternalError(
                f"{checkpoint_ms} ms in steps of {step_ms} cannot follow {before} in steps of {self.step_ms}",
                where="two states",
            )
        if checkpoint_ms <= self.clock_ms:
            return False
        self.checkpoint_ms = checkpoint_ms
        if step_ms != self.step_ms:
            self._cut_anew(step_ms)
        for pane in sorted(pane for pane in self._panes if pane < checkpoint_ms):
            self._absorb(self._panes.pop(pane))
        return True

    def next_checkpoint_ms(self) -> int:
        """The next time by the rule, for who is not told: above all that was seen, and above the clock."""
        seen = self.clock_ms if self.largest_ts_ms is None else max(self.largest_ts_ms, self.clock_ms)
        return next_time_ms(seen, self.step_ms)

    def _pane_of(self, ts_ms: int) -> int | None:
        """The pane that a message goes to; None: it is for the checkpoint state."""
        if self.largest_ts_ms is None or ts_ms > self.largest_ts_ms:
            self.largest_ts_ms = ts_ms
        if ts_ms < self.clock_ms:
            self.late += 1
        # Before a time is bound all wait: only what is older than the clock is older than any time to come.
        before = self.clock_ms if self.checkpoint_ms is None else self.checkpoint_ms
        return None if ts_ms < before else ts_ms - ts_ms % self.step_ms

    def _moved(self, clock_ms: int) -> None:
        """Move the clock; if it has reached `Tc`, that is the picture's, and none is bound any more."""
        if clock_ms < self.clock_ms:
            raise InternalError(f"the clock of states went back from {self.clock_ms} to {clock_ms} ms")
        self.clock_ms = clock_ms
        if self.checkpoint_ms is not None:
            if clock_ms < self.checkpoint_ms:
                return
            self.picture_ms, self.checkpoint_ms = self.checkpoint_ms, None
        # While no time is bound: what is older than the clock is older than any time to come.
        for pane in sorted(pane for pane in self._panes if pane < clock_ms):
            self._pass(pane)

    def _cut_anew(self, step_ms: int) -> None:
        panes, self._panes, self.step_ms = self._panes, {}, step_ms
        for pane in sorted(panes):
            self._join_pane(pane - pane % step_ms, panes[pane])

    @abstractmethod
    def _absorb(self, pane: P) -> None:
        """Merge a pane into the checkpoint state."""

    @abstractmethod
    def _pass(self, pane: int) -> None:
        """The clock has passed the beginning of a pane, and no time is bound."""

    @abstractmethod
    def _join_pane(self, at: int, pane: P) -> None:
        """Merge a pane into the one at `at`, which may not be there yet."""

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if self.picture_ms is not None and self.picture_ms > self.clock_ms:
            raise InternalError(f"two states, invariant 1: a picture of {self.picture_ms} ms")
        if self.checkpoint_ms is not None and self.checkpoint_ms <= self.clock_ms:
            raise InternalError(f"two states, invariant 1: {self.checkpoint_ms} ms is over")
        first = min(self._panes, default=None)
        if first is not None and self.checkpoint_ms is not None and first < self.checkpoint_ms:
            raise InternalError(f"two states, invariant 2: a pane at {first} ms")
        if any(pane % self.step_ms for pane in (*self._panes, self.checkpoint_ms or 0)):
            raise InternalError(f"two states, invariant 3: {sorted(self._panes)}")


class KeyedStates(_TimeAligned[dict[K, Any]], Generic[K]):
    """A state for each key, of a monoid or a fold.

    `copy` copies a state: a picture must not change with what is merged later, nor a state with who reads it.
    `lambda s: s` will do where states are immutable.
    """

    def __init__(
        self,
        monoid: Monoid[Any, Any],
        step_ms: int,
        *,
        clock_ms: int | None = None,
        states: dict[K, Any] | None = None,
        copy: Callable[[Any], Any] = deepcopy,
    ) -> None:
        super().__init__(step_ms, clock_ms)
        self._monoid: Final = monoid
        self._folds: Final = isinstance(monoid, FoldMonoid)
        self._copy: Final = copy
        self._checkpoint: dict[K, Any] = {} if states is None else {k: copy(s) for k, s in states.items()}
        self._current: dict[K, Any] = {k: copy(s) for k, s in self._checkpoint.items()} if self._folds else {}
        self._changed: set[K] = set()

    def update(self, key: K, ts_ms: int, message: Any) -> None:
        """Take one message."""
        pane = self._pane_of(ts_ms)
        if self._folds:
            self._current[key] = self._added(self._current.get(key, _GONE), message)
        if pane is None:
            self._checkpoint[key] = self._added(self._checkpoint.get(key, _GONE), message)
            self._changed.add(key)
            return
        waiting = self._panes.setdefault(pane, {})
        if self._folds:
            waiting.setdefault(key, []).append(message)
        else:
            waiting[key] = self._added(waiting.get(key, _GONE), message)

    def get(self, key: K, default: Any = None) -> Any:
        """The current state of a key: of everything that came."""
        if self._folds:
            return self._copy(self._current[key]) if key in self._current else default
        state = self._copy(self._checkpoint[key]) if key in self._checkpoint else _GONE
        for pane in sorted(self._panes):
            if key in self._panes[pane]:
                part = self._copy(self._panes[pane][key])
                state = part if state is _GONE else self._monoid.plus(state, part)
        return default if state is _GONE else state

    def keys(self) -> set[K]:
        """All keys of the current state."""
        return set(self._checkpoint).union(*self._panes.values())

    def advance(self, clock_ms: int) -> Picture[K] | None:
        """The clock is this now (ms; never less than before); a picture if it has reached `Tc`."""
        picture: Picture[K] | None = None
        if self.checkpoint_ms is not None and clock_ms >= self.checkpoint_ms:
            states = {key: self._copy(self._checkpoint[key]) for key in self._changed}
            picture = Picture(self.checkpoint_ms, states)
            self._changed = set()
        self._moved(clock_ms)
        return picture

    def _pass(self, pane: int) -> None:
        self._absorb(self._panes.pop(pane))  # all of it: no multiple of the step lies inside

    def _added(self, state: Any, message: Any) -> Any:
        return self._monoid.add(self._monoid.zero() if state is _GONE else state, message)

    def _absorb(self, pane: dict[K, Any]) -> None:
        for key, part in pane.items():
            present = self._checkpoint.get(key, _GONE)
            if self._folds:
                for message in part:
                    present = self._added(present, message)
                self._checkpoint[key] = present
            else:
                self._checkpoint[key] = part if present is _GONE else self._monoid.plus(present, part)
        self._changed |= pane.keys()

    def _join_pane(self, at: int, pane: dict[K, Any]) -> None:
        there = self._panes.setdefault(at, {})
        for key, part in pane.items():
            if key not in there:
                there[key] = part
            else:
                there[key] = there[key] + part if self._folds else self._monoid.plus(there[key], part)


Result = tuple[tuple[Any, ...], Any, int]
"""(key and window columns, value, timestamp in ms), as windows fire it."""
Entries = list[tuple[Group, Any, int]]
"""What waits for windows: (key, start, end), a partial state or for a fold a message, and its timestamp."""


class WindowedStates(_TimeAligned[Entries]):
    """The open windows of some keys, as `core.window_state` keeps them; pictures are of all open windows."""

    def __init__(
        self,
        window: Window,
        monoid: Monoid[Any, Any],
        step_ms: int,
        *,
        clock_ms: int | None = None,
        states: dict[Group, Any] | None = None,
        copy: Callable[[Any], Any] = deepcopy,
    ) -> None:
        super().__init__(step_ms, clock_ms)
        self._copy: Final = copy
        self._monoid: Final = monoid
        self._window: Final = window
        self._folds: Final = isinstance(monoid, FoldMonoid)
        kept = {} if states is None else {group: copy(state) for group, state in states.items()}
        self._checkpoint = WindowState(window, monoid, kept)
        if window.kind == "global":
            raise InternalError("the global window is a state for each key")

    def update(self, key: tuple[Any, ...], ts_ms: int, message: Any) -> None:
        """Take one message, into each window that it is in and that has not fired."""
        pane = self._pane_of(ts_ms)
        entries: Entries = []
        for start, end in assign(self._window, ts_ms, FINAL_CLOCK_MS):
            part = message if self._folds else self._monoid.add(self._monoid.zero(), message)
            entries.append(((key, start, end), part, ts_ms))
        if pane is None:
            self._checkpoint.merge(((group, part) for group, part, _ in entries), self.clock_ms)
        else:
            self._panes.setdefault(pane, []).extend(entries)

    def current(self) -> dict[Group, Any]:
        """All open windows with everything that came."""
        present = {group: self._copy(state) for group, state in self._checkpoint.states.items()}
        now = WindowState(self._window, self._monoid, present)
        for pane in sorted(self._panes):
            now.merge(((group, self._copy(part)) for group, part, _ in self._panes[pane]), NO_CLOCK_MS)
        return now.states

    def advance(self, clock_ms: int) -> tuple[list[Result], Picture[Group] | None]:
        """The clock is this now: what the windows that end fire, and a picture if it has reached `Tc`."""
        fired: list[Result] = []
        picture: Picture[Group] | None = None
        if self.checkpoint_ms is not None and clock_ms >= self.checkpoint_ms:
            # What fires behind the picture's time is still open in it.
            fired = self._checkpoint.fire(self.checkpoint_ms)
            states = {group: self._copy(state) for group, state in self._checkpoint.states.items()}
            picture = Picture(self.checkpoint_ms, states)
        self._moved(clock_ms)
        return fired + self._checkpoint.fire(clock_ms), picture

    def _pass(self, pane: int) -> None:
        # Windows end anywhere in a step, so what is older than the clock must be in the checkpoint state.
        waiting = self._panes.pop(pane)
        self._absorb([entry for entry in waiting if entry[2] < self.clock_ms])
        rest = [entry for entry in waiting if entry[2] >= self.clock_ms]
        if rest:
            self._panes[pane] = rest

    def _absorb(self, pane: Entries) -> None:
        # It was not late when it came, and nothing that it is in has fired: that ends behind it.
        self._checkpoint.merge(((group, part) for group, part, _ in pane), NO_CLOCK_MS)

    def _join_pane(self, at: int, pane: Entries) -> None:
        self._panes.setdefault(at, []).extend(pane)
