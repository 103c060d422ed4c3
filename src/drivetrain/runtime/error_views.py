"""Converts errors to the form that is sent to other processes.

Called by executors, application masters and the processes that plan for the console.
"""

from __future__ import annotations

import traceback

from drivetrain.config.references import scrub
from drivetrain.core.job.job_status import ErrorView
from drivetrain.errors import DrivetrainError

_MOST_CHARACTERS = 8_000
"""The limit of each field: an error must fit into a message, and on a screen."""


def error_view(error: BaseException) -> ErrorView:
    """Convert `error` for other processes, with the user's own traceback if there is one.

    An error that is not a DrivetrainError came from the application. Secrets are removed.
    """
    scrub(error)
    if not isinstance(error, DrivetrainError):
        trace = "".join(traceback.format_exception(error))[-_MOST_CHARACTERS:]
        what = _cut(f"{type(error).__name__}: {error}") or ""
        return ErrorView("application", what, remedy="correct the application", user_traceback=trace)
    got = error.got
    if got is None and (message := getattr(error, "message", None)) is not None:
        got = f"the message {message}"
    return ErrorView(
        code=error.code,
        what=_cut(error.what) or "",
        where=_cut(error.where),
        expected=_cut(error.expected),
        got=_cut(got),
        remedy=_cut(error.remedy),
        user_traceback=_cut(getattr(error, "user_traceback", None)),
    )


def defect_view(kind: str, error: Exception, count: int) -> ErrorView:
    """A defect of Drivetrain that a message of another process revealed; `count` is the total so far."""
    scrub(error)
    return ErrorView(
        "internal",
        _cut(f"{kind}: {type(error).__name__}: {error}") or "",
        got="a message of another process, which was refused" + (f" ({count} so far)" if count > 1 else ""),
        remedy="this is a bug in Drivetrain: please report it with the traceback in the process's log",
    )


def _cut(text: object) -> str | None:
    if text is None:
        return None
    shown = str(text)
    # The end of a traceback is its most useful part; of any other text it is the beginning.
    if len(shown) <= _MOST_CHARACTERS:
        return shown
    if shown.startswith("Traceback"):
        return f"…\n{shown[-_MOST_CHARACTERS:]}"
    return f"{shown[:_MOST_CHARACTERS]}…"
