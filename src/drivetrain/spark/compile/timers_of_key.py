"""The timers of the current key, as a Task's hooks set and cancel them.

Called by `keyed_tasks` and `persistent_buckets`, whose runners extend it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Protocol

from drivetrain.core.clock.time_bounds import LAST_MS, NO_CLOCK_MS
from drivetrain.core.state.key_timers import KeyTimers


class WithTimers(Protocol):
    """The states of a bucket, which have timers."""

    timers: KeyTimers


class TimersOfKey(ABC):
    """Timers in `states`; `kind` is the Task's class, and `base` the one whose `on_timer` does nothing."""

    def __init__(self, states: WithTimers, kind: type[Any], base: type[Any]) -> None:
        self._with_timers: Final = states
        self._task: Final = kind.__name__
        self._has_hook: Final = kind.on_timer is not base.on_timer
        self.takes_timers = True
        """False while the timers of an input that has ended are called: no clock would reach new ones."""

    @abstractmethod
    def key_of_timers(self) -> bytes:
        """The key whose timers can be set; raises RuntimeError outside of hooks of one key."""

    def set_timer(self, at_ms: int) -> None:
        """Set a timer of the current key; raises RuntimeError if there is none, ValueError for an invalid
        time."""
        key = self.key_of_timers()
        if not self._has_hook:
            raise RuntimeError(f"{self._task} has no on_timer, which a timer calls")
        if isinstance(at_ms, bool) or not isinstance(at_ms, int) or not NO_CLOCK_MS <= at_ms <= LAST_MS:
            raise ValueError(
                f"a timer is set for ms since the epoch, in the years 1 to 9999, not for {at_ms!r}"
            )
        if self.takes_timers:
            self._with_timers.timers.set(key, at_ms)

    def cancel_timer(self, at_ms: int | None = None) -> None:
        """Cancel a timer of the current key, or all; raises RuntimeError if there is no current key."""
        self._with_timers.timers.cancel(self.key_of_timers(), at_ms)
