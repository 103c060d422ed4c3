"""Long work in steps: a generator that yields where it has to wait, and returns its result.

Problem: a repair waits for locks, for other fragments and for queries. The caller that drives fragments must
not block, and a simulation has one thread for all of them.

Design: such work never sleeps. It yields, and its caller resumes it a little later: in a thread of its own
(`wait_done`), or between the steps of others. Closing it stops it where it is, and releases its resources.

Called by `recovery`, `repair` and `rerun_batch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from drivetrain.errors import UnavailableError

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work in steps that returns a `T`."""

_POLL_S = 0.02


def wait_done(steps: Steps[T], given_up: Callable[[], bool], where: str) -> T:
    """Do the work in this thread; raises its errors, and UnavailableError when `given_up()` is true."""
    while not given_up():
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made
        time.sleep(_POLL_S)
    steps.close()
    raise UnavailableError(
        "a repair was cancelled, because the application stops",
        where=where,
        remedy="the next run completes it",
    )
