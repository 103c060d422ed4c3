"""Errors as other processes are told of them.

Called by executors and application masters.
"""

from __future__ import annotations

import traceback

from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config.references import scrub
from drivetrain.errors import DrivetrainError

_MOST_CHARACTERS = 8_000
"""Of any field: an error must fit a message, and a screen."""


def error_view(error: BaseException) -> ErrorView:
    """`error` as others are told of it, with the user's own traceback where there is one.

    What is not of Drivetrain's own tree was raised by the application. Secrets are taken out of it.
    """
    scrub(error)
    if not isinstance(error, DrivetrainError):
        told = "".join(traceback.format_exception(error))[-_MOST_CHARACTERS:]
        what = _cut(f"{type(error).__name__}: {error}") or ""
        return ErrorView("application", what, remedy="correct the application", user_traceback=told)
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
    """A defect of Drivetrain's own that another process's message has met; `count` are all so far."""
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
    told = str(text)
    # The end of a traceback says most, the beginning of anything else.
    if len(told) <= _MOST_CHARACTERS:
        return told
    if told.startswith("Traceback"):
        return f"…\n{told[-_MOST_CHARACTERS:]}"
    return f"{told[:_MOST_CHARACTERS]}…"
