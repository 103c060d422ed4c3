"""Whether the clock of a worker's machine is right, as far as a leader can tell.

Problem. Machines whose wall clocks differ widely give misleading times, so a worker whose clock is far from
the leader's is refused. But a clock may step while work runs, on either side: ending the work would be worse
than a wrong time. And the wrong clock may be the leader's.

Design. The latest difference to the leader's clock is kept for each worker. One that is too large is a reason
to refuse a worker that has never been registered; one that was registered before is kept, with a warning. The
majority decides which clock is wrong: when more machines agree with the worker's clock than with the
leader's, the leader suspects its own, and refuses nobody for it.

Invariants:
1. A worker that was registered before is never refused.
2. A worker is refused only while at least as many machines, the leader among them, agree with the leader's
   clock as with the worker's.
3. At most `most` differences are kept.

Called by `drivetrain.cluster.master.workers.worker_manager`.
Source: the median of clocks as in Marzullo's algorithm, reduced to counting.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClockVerdict(Enum):
    """The verdict about a difference of clocks."""

    FINE = "fine"
    WARN = "the worker's clock is wrong, but it was registered before"
    REFUSE = "the worker's clock is wrong"
    SUSPECT_LEADER = "the leader's clock is wrong"


class WorkerClocks:
    """The differences of workers' clocks to the leader's; those up to `limit_ms` are fine."""

    def __init__(self, limit_ms: int, *, most: int = 10_000) -> None:
        self._limit_ms: Final = limit_ms
        self._most: Final = most
        self._apart_ms: dict[str, int] = {}
        self._verdicts: dict[str, ClockVerdict] = {}

    def __len__(self) -> int:
        return len(self._apart_ms)

    def judge(self, worker_id: str, apart_ms: int, *, was_registered: bool) -> tuple[ClockVerdict, bool]:
        """Record a worker's clock minus the leader's; returns the verdict, and whether it is new."""
        self._apart_ms.pop(worker_id, None)
        self._apart_ms[worker_id] = apart_ms
        verdict = self._verdict(apart_ms, was_registered=was_registered)
        is_new = self._verdicts.pop(worker_id, None) is not verdict
        self._verdicts[worker_id] = verdict
        if len(self._apart_ms) > self._most:
            self.forget(next(iter(self._apart_ms)))
        return verdict, is_new

    def forget(self, worker_id: str) -> None:
        """A worker is gone."""
        self._apart_ms.pop(worker_id, None)
        self._verdicts.pop(worker_id, None)

    def _verdict(self, apart_ms: int, *, was_registered: bool) -> ClockVerdict:
        if abs(apart_ms) <= self._limit_ms:
            return ClockVerdict.FINE
        with_worker = sum(1 for other in self._apart_ms.values() if abs(other - apart_ms) <= self._limit_ms)
        with_leader = 1 + sum(1 for other in self._apart_ms.values() if abs(other) <= self._limit_ms)
        if with_worker > with_leader:
            return ClockVerdict.SUSPECT_LEADER
        return ClockVerdict.WARN if was_registered else ClockVerdict.REFUSE
