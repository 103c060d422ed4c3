"""Converts an error to a record and back, so that another process can raise it as if it were its own.

Called by `spark.run.control_answers` and `runtime.checkpoints.savepoint_requests`: a running application
answers a request with the record of an error, and the command that asked raises the error.
"""

from __future__ import annotations

import msgspec

from drivetrain.config.references import scrub, scrubbed
from drivetrain.errors import DrivetrainError, InternalError, UnavailableError, UserError


class ErrorRecord(msgspec.Struct, frozen=True):
    """The fields of an error; see `DrivetrainError`."""

    exit_code: int
    what: str
    where: str | None = None
    expected: str | None = None
    got: str | None = None
    remedy: str | None = None

    def error(self) -> DrivetrainError:
        """The error as an exception: internal, unavailable or the user's, by `exit_code`."""
        if self.exit_code == InternalError.exit_code:
            return InternalError(self.what, where=self.where)
        kind = UnavailableError if self.exit_code == UnavailableError.exit_code else UserError
        return kind(self.what, where=self.where, expected=self.expected, got=self.got, remedy=self.remedy)


def error_record(error: Exception) -> ErrorRecord:
    """The record of an error, without secrets; a foreign one becomes an internal error with type and text."""
    scrub(error)
    if isinstance(error, DrivetrainError):
        return ErrorRecord(error.exit_code, error.what, error.where, error.expected, error.got, error.remedy)
    return ErrorRecord(InternalError.exit_code, scrubbed(f"{type(error).__name__}: {error}"))
