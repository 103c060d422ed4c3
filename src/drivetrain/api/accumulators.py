"""User-defined counters, to which Python functions add wherever they run.

    from drivetrain import accumulator

    bad_lines = accumulator("bad_lines")

    def parse(line: str) -> int | None:
        try:
            return int(line)
        except ValueError:
            bad_lines.add(1)
            return None

Problem: a function runs in other processes, on other machines, and again after a failure. The values of
global variables in those processes cannot be collected.

Design: an `Accumulator` is a name. When a function that uses it is sent to Spark's workers, the engine
attaches an `AmountCollector` to the copy that is sent (`bound`). That collects the amounts, which come back
when Spark has finished the task. This module does not depend on an engine:
`drivetrain.spark.batch.user_counters` provides the collector.

Invariants:
1. Two accumulators with one name are the same.
2. Amounts added in a task that fails are not counted; those added in a batch that runs again count again.

Called by applications; the engine reads the values.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
from collections.abc import Iterator
from typing import Any, Protocol

from drivetrain.api.location import caller
from drivetrain.errors import GraphError

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]*")


class AmountCollector(Protocol):
    """Collects amounts, as pairs (name, amount). It can be sent to Spark's workers."""

    def add(self, term: Any, /) -> None:
        """Add an amount to the total of a name."""


_collector: contextvars.ContextVar[AmountCollector | None] = contextvars.ContextVar(
    "accumulators", default=None
)


class Accumulator:
    """A named counter; create one with `accumulator`, next to the functions that add to it."""

    __slots__ = ("_bound", "name")

    def __init__(self, name: str, bound: AmountCollector | None = None) -> None:
        self.name = name
        self._bound = bound

    def __repr__(self) -> str:
        return f"accumulator({self.name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Accumulator, (self.name, self._bound or _collector.get()))

    def add(self, amount: int | float = 1) -> None:
        """Add `amount`, a finite number, which may be negative.

        Outside a running application, for example in a test of the function, this does nothing.
        """
        collector = self._bound or _collector.get()
        if collector is not None:
            collector.add((self.name, amount))


def accumulator(name: str) -> Accumulator:
    """A counter that Python functions and Tasks add to: `accumulator("bad_lines").add(1)`.

    Its value is in the `RunResult`, in the summary of `drivetrain run`, and in `drivetrain show`. Create it
    in the application's file, or in a module next to it, as a variable that the functions use; an accumulator
    that such a function creates itself counts nothing.

    It counts work, not messages. A failed task counts nothing; when Spark tries it again, the successful
    attempt counts. A batch that runs again, because the process died or an output failed, counts again, and
    so may a task that Spark repeats because its output was lost. A run that continues after a stop begins
    at 0; in a cluster the values of all attempts of a fragment are added up. So
    for a run without failures the value is exact, otherwise it is an upper bound. For exact counts aggregate
    a stream.

    Raises `GraphError` for a name that is not made of letters, digits and `_.-`.

    >>> accumulator("bad_lines")
    accumulator('bad_lines')
    """
    if not _NAME.fullmatch(name):
        raise GraphError(
            "not a name for an accumulator",
            where=str(caller()),
            expected="letters, digits, _, . and -, starting with a letter or _",
            got=repr(name),
        )
    return Accumulator(name)


@contextlib.contextmanager
def collecting_into(collector: AmountCollector) -> Iterator[None]:
    """Make functions that are sent to workers within this block add to `collector`; used by the engine."""
    token = _collector.set(collector)
    try:
        yield
    finally:
        _collector.reset(token)


def current_collector() -> AmountCollector | None:
    """The collector to which functions that are sent to workers now will add; used by the engine."""
    return _collector.get()
