"""Converts an executor's errors for its application master, and decides which may be retried.

Another attempt may avoid errors of Spark, a disk or a network, and of a user's function that depends on its
surroundings (a service, a clock, a file). It cannot avoid a wrong graph, a missing input, or an output that
belongs to another application.

Called by the executor.
"""

from __future__ import annotations

import logging

from drivetrain.cluster.messages.following import ErrorView
from drivetrain.errors import DrivetrainError, InternalError, OperatorError, UnavailableError, UserError
from drivetrain.runtime.lock_marks import LostLockError
from drivetrain.spark.session.spark_errors import translated

log = logging.getLogger(__name__)


class HookError(UserError):
    """A `when_finished` hook raised; the application has finished nevertheless."""

    code = "when-finished"
    exit_code = 3

    def __init__(self, what: str, *, where: str, user_traceback: str) -> None:
        super().__init__(
            what, where=where, remedy="the outputs are complete: correct the hook, or call it on its own"
        )
        self.user_traceback = user_traceback


def error_of(raised: BaseException, where: str | None = None) -> DrivetrainError:
    """Convert any exception from preparing or running `where`; logs the details that it leaves out."""
    error = translated(raised, where=where)
    if isinstance(raised, DrivetrainError):
        return error
    log.error("%s", where or "raised", exc_info=raised)
    if type(error) is UserError and type(raised).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return InternalError(f"{type(raised).__name__}: {raised}", where=where)
    return error


def is_retryable(error: DrivetrainError, *, running: bool) -> bool:
    """Whether another attempt may succeed; `running` when the application was prepared before.

    Before that, a plain `UserError` is about the application (its graph has changed, for example). Afterwards
    it comes from Spark and concerns one batch.
    """
    if isinstance(error, OperatorError) or not isinstance(error, UserError):
        return True
    return running and type(error) is UserError


def why_it_ends(error: ErrorView | None) -> str:
    """Why an executor ends when an attempt that failed with this error cannot be followed by another."""
    is_replaced = error is not None and error.code == LostLockError.code
    return "another process has what it runs" if is_replaced else "Spark has ended"


def java_is_lost(error: DrivetrainError | None) -> DrivetrainError:
    """The error of an attempt whose Java process has ended; `error` is the one that it met."""
    return UnavailableError(
        "Spark has ended while a fragment was running",
        got=None if error is None else error.got or error.what,
        remedy="a new executor continues; see the logs of this one and of Spark's master and workers",
    )
