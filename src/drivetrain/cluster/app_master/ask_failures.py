"""Codes for failed asks of an application master.

Called by the application masters.
"""

from __future__ import annotations

from drivetrain.actor import ActorFailedError, AskError, UnexpectedReplyError


def code_of(error: Exception) -> str:
    """`timeout`, `unreachable`, `unexpected`, or the code of the failure that was the answer."""
    match error:
        case ActorFailedError():
            return error.failure_code
        case UnexpectedReplyError():
            return "unexpected"
        case AskError():
            return "unreachable" if error.code == "unreachable" else "timeout"
        case _:
            return "failed"
