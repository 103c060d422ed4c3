"""Failures that a test injects: the run dies at a named point, and continues from its state directory.

Problem: to prove that an application gives the same results after a crash between two effects, a test must
make it crash there.

Design: the points are those of `drivetrain.crash_points`. At an armed point the handler raises in the thread
that reached it, the run ends with that error, and `driven_run` starts it again from its state directory, as a
user does who repeats the command. A point is counted from the moment it is armed, and raises once.

Invariants:

1. A point that was armed but not reached is an error: the test would prove nothing.
2. Only errors that this module raised count as injected.

Called by `driven_run` and `test_run`.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field

from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import UserError


class InjectedFailureError(Exception):
    """The run has died at a point that the test has armed."""


@dataclass
class Failures:
    """The failures of one run; `close` disarms what is left."""

    happened: list[CrashPoint] = field(default_factory=list)
    """The points at which it has died, in order."""
    _waiting: dict[CrashPoint, int] = field(default_factory=dict)
    _armed: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arm(self, point: str, time: int = 1) -> None:
        """Die when the run comes to `point` for the time `time` (1: the next); raises `UserError`."""
        known = [p.value for p in CrashPoint]
        if point not in known:
            raise UserError("no such point", where="crash_at", expected=", ".join(known), got=repr(point))
        if time < 1:
            raise UserError("a point is counted from 1", where="crash_at", got=str(time))
        if not self._waiting:
            self._armed.enter_context(armed(self._reached))
        self._waiting[CrashPoint(point)] = time

    def explains(self, error: BaseException) -> bool:
        """Whether a run has ended with `error` because of an injected failure."""
        marks = [_mark(point) for point in self.happened]
        return any(mark in f"{error} {error.__cause__}" for mark in marks)

    def require_all_happened(self) -> None:
        """Raise `UserError` when the run never reached a point that was armed."""
        if self._waiting:
            raise UserError(
                f"the run never reached {', '.join(self._waiting)}",
                where="crash_at",
                remedy="send messages that make the run reach it; the points of checkpoints need "
                'config={"checkpoint.mode": "on"}, those of a transaction a real Kafka sink',
            )

    def close(self) -> None:
        """Disarm everything."""
        self._armed.close()
        self._waiting = {}

    def _reached(self, point: CrashPoint) -> None:
        with self._lock:
            if point not in self._waiting:
                return
            self._waiting[point] -= 1
            if self._waiting[point]:
                return
            del self._waiting[point]
            self.happened.append(point)
        raise InjectedFailureError(_mark(point))


def _mark(point: CrashPoint) -> str:
    return f"the test lets the run die at {point}"
