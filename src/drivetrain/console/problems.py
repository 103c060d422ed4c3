"""Errors as problem details, by RFC 9457: the status and the body of the answer to each error.

Problem: programs need a stable code, users need the remedy, and neither may see internals of the console.

Design: errors of Drivetrain are answered with their own code and fields, by who must act: 4xx for users, 503
for anything that is unavailable right now. Any other error is a bug of the console: it is logged completely,
and answered without details. The answer is JSON, so texts from users stay data.

Called by `console.endpoints`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.config.references import scrubbed
from drivetrain.console.answers.problem import Problem
from drivetrain.errors import DrivetrainError, PeerViolationError, UnavailableError, UserError

_STATUSES: Final = {
    "unknown-application": 404,
    "no-log": 404,
    "not-found": 404,
    "state-not-here": 404,
    "method-not-allowed": 405,
    "not-signed-in": 401,
    "not-allowed": 403,
    "foreign-origin": 403,
    "foreign-host": 421,
    "too-large": 413,
    "name-taken": 409,
    "already-over": 409,
    "application-over": 409,
    "key-reused": 409,
    "no-change": 409,
    "changed-meanwhile": 409,
    "change-underway": 409,
    "rolled-back": 409,
    "only-in-cluster": 409,
    "not-local": 409,
    "not-running": 409,
    "too-many": 429,
    "still-under-way": 504,
    "peer-violation": 502,
}
"""Statuses of codes; without one it follows from the branch of the error."""

RETRY_AFTER_S: Final = 5

_TITLES: Final = {
    400: "the request must be changed",
    401: "sign in first",
    403: "this is not allowed",
    404: "there is no such thing",
    405: "this cannot be done here",
    409: "this does not fit the present state",
    413: "this is too large",
    421: "this is not the console of that host",
    429: "this is too much at once",
    500: "a bug in Drivetrain",
    502: "the cluster's answer cannot be understood",
    503: "this is not available right now",
    504: "this takes longer than you wanted to wait",
}


class RequestError(UserError):
    """A request that is refused as it is; `code` (of the instance, not of the class) is the reason.

    One that is too much at once (429) can be sent again after `retry_after_s`.
    """

    code = "bad-request"

    def __init__(
        self,
        what: str,
        *,
        code: str = "bad-request",
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        retry_after_s: int = RETRY_AFTER_S,
    ) -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        self.retry_after_s = retry_after_s
        self.code = code  # type: ignore[misc]


def headers_of(error: DrivetrainError) -> dict[str, str]:
    """The headers with which an error is answered: how to sign in, or when to try again."""
    match status_of(error):
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 429 | 503:
            return {"Retry-After": str(getattr(error, "retry_after_s", RETRY_AFTER_S))}
        case _:
            return {}


def status_of(error: DrivetrainError) -> int:
    """The HTTP status of an error."""
    if error.code in _STATUSES:
        return _STATUSES[error.code]
    match error:
        case UserError():
            return 400
        case UnavailableError():
            return 503
        case PeerViolationError():
            return 502
        case _:
            return 500


def problem_of(error: DrivetrainError, instance: str) -> Problem:
    """The answer to an error of the request to the path `instance`."""
    status = status_of(error)
    traceback = getattr(error, "user_traceback", None)
    return Problem(
        type=f"urn:drivetrain:problem:{error.code}",
        title=_TITLES[status],
        status=status,
        detail=scrubbed(error.what),
        instance=instance,
        code=error.code,
        where=_scrubbed(error.where),
        expected=_scrubbed(error.expected),
        got=_scrubbed(error.got),
        remedy=_scrubbed(error.remedy),
        user_traceback=_scrubbed(traceback),
    )


def unexpected(instance: str) -> Problem:
    """The answer to an error that is a bug; its details are in the log of the console."""
    return Problem(
        type="urn:drivetrain:problem:internal",
        title=_TITLES[500],
        status=500,
        detail="the console met an error that it does not expect",
        instance=instance,
        code="internal",
        remedy="its log has the details: please report them",
    )


def _scrubbed(text: str | None) -> str | None:
    return None if text is None else scrubbed(text)
