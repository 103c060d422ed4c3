"""Blocking work of an application master, in a thread; the result arrives as a message to itself.

Called by the parts of application masters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from drivetrain.cluster.app_master.app_master_messages import RunAction
from drivetrain.runtime.error_views import error_view

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster

T = TypeVar("T")


def noted_and_repeated(
    owner: ApplicationMaster, timer: str, act: Callable[[], None], delay_ms: int
) -> Callable[[Exception], None]:
    """A handler for failures of work that must be done eventually: notes the error, calls `act` again
    later."""

    def failed(error: Exception) -> None:
        owner.note(error_view(error))
        owner.context.timers.start_once(timer, RunAction(act), delay_ms=delay_ms)

    return failed


def in_thread(
    owner: ApplicationMaster,
    work: Callable[[], T],
    then: Callable[[T], None],
    failed: Callable[[Exception], None],
) -> None:
    """Do `work` in a thread, and afterwards call `then` with its result, or `failed` with its error."""
    owner.context.pipe_to_self(
        owner.context.blocking(work),
        lambda result: RunAction(functools.partial(then, result)),
        lambda error: RunAction(functools.partial(failed, error)),
    )
