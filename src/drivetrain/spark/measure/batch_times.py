"""A stopwatch for the steps of one batch, in the thread that runs it.

Problem: when a batch takes long, one of its steps is the cause, and the steps are in many modules, including
connectors. Each must be measured without being counted in the step around it as well.

Design: `spending` opens a span of a phase; a span within it stops the one around it, so that every moment
belongs to the innermost. The stopwatch of the current batch is found by the context of the thread; where no
batch runs, spans are not measured. Reading a clock twice for a step is all that it costs.

Invariants:

1. Spans are disjoint: together they are at most as long as the batch.

Called by `micro_batch_query` and the steps of a batch; `computing` by modules that begin a job of Spark's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum


class Phase(StrEnum):
    """The phases of a batch; see `core.job.fragment_figures.Phases`."""

    WAITING = "waiting"
    SOURCE = "source"
    PLANNING = "planning"
    COMPUTING = "computing"
    SINK = "sink"
    CHANNEL = "channel"


class BatchTimes:
    """The stopwatch of one batch; `now_ns` is a clock that does not go back."""

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._spent_ns: dict[tuple[Phase, str], int] = {}
        self._open: list[tuple[Phase, str]] = []
        self._since_ns = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block, the time of this thread counts for the batch."""
        token = _present.set(self)
        try:
            yield
        finally:
            _present.reset(token)

    @contextmanager
    def spending(self, phase: Phase, of: str = "") -> Iterator[None]:
        """Within the block, time counts for this phase, and for the sink `of`."""
        self._settle()
        self._open.append((phase, of))
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    def ms(self, phase: Phase) -> int:
        """How long a phase took, all sinks together, in ms."""
        return sum(ns for (spent, _), ns in self._spent_ns.items() if spent is phase) // 1_000_000

    def by_name(self, phase: Phase) -> dict[str, int]:
        """How long a phase took for each sink, in ms."""
        return {of: ns // 1_000_000 for (spent, of), ns in self._spent_ns.items() if spent is phase}

    def _settle(self) -> None:
        """Add the time since the last call to the innermost span."""
        now_ns = self._now_ns()
        if self._open:
            at = self._open[-1]
            self._spent_ns[at] = self._spent_ns.get(at, 0) + now_ns - self._since_ns
        self._since_ns = now_ns


_present: ContextVar[BatchTimes | None] = ContextVar("batch_times", default=None)


@contextmanager
def spending(phase: Phase, of: str = "") -> Iterator[None]:
    """Within the block, time counts for this phase of the current batch, if there is one."""
    times = _present.get()
    if times is None:
        yield
        return
    with times.spending(phase, of):
        yield


@contextmanager
def computing() -> Iterator[None]:
    """Within the block, Spark runs a job."""
    with spending(Phase.COMPUTING):
        yield
