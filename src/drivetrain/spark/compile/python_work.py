"""The time that Python code takes in Spark's workers, measured there and returned without a job or a call.

Problem: Spark reports how long a job took, not how much of that was the user's Python. Its own metrics of
Python are in the plan, and reading them takes many calls.

Design: every function sent to the workers is wrapped. The wrapper reads a clock once for each Arrow batch
that comes in and goes out, subtracts the time spent waiting for input, and adds the rest to the accumulator
that the functions carry anyway (`user_counters`), once for each task.

Invariants:

1. The wrapper changes neither results nor errors.
2. Measurements of failed tasks are discarded.

Called by `frame`, `tasks`, `keyed` and `persistent`; `user_counters` reads the measurements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from drivetrain.api.accumulators import Accumulator

HIDDEN: Final = "\0"
"""The beginning of the names of Drivetrain's own counters: no user's counter has such a name."""
SPENT_NS: Final = f"{HIDDEN}spent"
TASKS: Final = f"{HIDDEN}tasks"
LONGEST_NS: Final = f"{HIDDEN}longest"
"""Not added up: the largest one counts."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class _Work:
    """Where a wrapper counts; the accumulators are bound when it is sent."""

    spent: Accumulator = field(default_factory=lambda: Accumulator(SPENT_NS))
    tasks: Accumulator = field(default_factory=lambda: Accumulator(TASKS))
    longest: Accumulator = field(default_factory=lambda: Accumulator(LONGEST_NS))


@dataclass(frozen=True)
class MeasuredStage:
    """A function over the Arrow batches of a task, measured."""

    stage: Callable[[Iterable[Any]], Iterator[Any]]
    work: _Work = field(default_factory=_Work)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The function's results for the batches."""

        def spent(ns: int) -> None:
            self.work.spent.add(ns)
            self.work.tasks.add(1)
            self.work.longest.add(ns)

        return measured(self.stage, batches, spent)


@dataclass(frozen=True)
class MeasuredBuckets:
    """A measured function that Spark calls for each bucket of a state; the number of its tasks is unknown."""

    function: Callable[..., Iterator[Any]]
    work: _Work = field(default_factory=_Work)

    def __call__(self, key: Any, frames: Iterable[Any], state: Any) -> Iterator[Any]:
        """The function's results for a bucket."""
        return measured(lambda given: self.function(key, given, state), frames, self.work.spent.add)


def measured(
    function: Callable[[Iterator[T]], Iterator[U]],
    given: Iterable[T],
    spent: Callable[[int], None],
    now_ns: Callable[[], int] = time.perf_counter_ns,
) -> Iterator[U]:
    """The results of `function(given)`; at the end `spent` receives the time in ns, without that of `given`.

    >>> list(measured(lambda numbers: (2 * n for n in numbers), iter([1, 2]), lambda ns: None))
    [2, 4]
    """
    source, waited_ns = iter(given), 0  # Spark gives a list where a state has timed out

    def upstream() -> Iterator[T]:
        nonlocal waited_ns
        while True:
            began_ns = now_ns()
            try:
                one = next(source)
            except StopIteration:
                return
            finally:
                waited_ns += now_ns() - began_ns
            yield one

    total_ns = 0
    made = iter(function(upstream()))
    try:
        while True:
            began_ns = now_ns()
            try:
                one = next(made)
            except StopIteration:
                return
            finally:
                total_ns += now_ns() - began_ns
            yield one
    finally:
        spent(max(0, total_ns - waited_ns))
