"""Errors on their way from an executor to its application master.

What may be retried: an error that another attempt could be spared. Spark, a disk, a network may be better the
next time, and so may a user's function that met the world (a service, a clock, a file). A wrong graph, a
missing input, an output that is somebody else's stay what they are.

Called by the executor.
"""

from __future__ import annotations

import logging

from drivetrain.errors import DrivetrainError, InternalError, OperatorError, UserError
from drivetrain.spark.session.spark_errors import translated

log = logging.getLogger(__name__)


class HookError(UserError):
    """A `when_finished` hook raised; the application has finished all the same."""

    code = "when-finished"
    exit_code = 3

    def __init__(self, what: str, *, where: str, user_traceback: str) -> None:
        super().__init__(
            what, where=where, remedy="the outputs are complete: correct the hook, or call it on its own"
        )
        self.user_traceback = user_traceback


def error_of(raised: BaseException, where: str | None = None) -> DrivetrainError:
    """What to tell of anything that was raised while `where` was prepared or ran; logs what only we read."""
    error = translated(raised, where=where)
    if isinstance(raised, DrivetrainError):
        return error
    log.error("%s", where or "raised", exc_info=raised)
    if type(error) is UserError and type(raised).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return InternalError(f"{type(raised).__name__}: {raised}", where=where)
    return error


def is_retryable(error: DrivetrainError, *, running: bool) -> bool:
    """Whether another attempt may succeed; `running` says that the application had been prepared.

    Before it runs a plain `UserError` is about the application: its graph has changed. While it runs it is
    what Spark said about one batch.
    """
    if isinstance(error, OperatorError) or not isinstance(error, UserError):
        return True
    return running and type(error) is UserError
