"""The errors that a client of a cluster raises.

Their base classes are those of `drivetrain.errors`: by who must act. The errors for a missing leader, a
missing master and a wrong secret are in `drivetrain.cluster.leader`.

Called by the client; the commands show them.
"""

from __future__ import annotations

from drivetrain.errors import UnavailableError, UserError


class UnknownApplicationError(UserError):
    """The cluster has no application with this id or name."""

    code = "unknown-application"


class SpecificationTooLargeError(UserError):
    """The settings and the configuration of an application are larger than the masters' limit."""

    code = "too-large"


class ApplicationNameTakenError(UserError):
    """Another application of this name is alive."""

    code = "name-taken"


class ApplicationNameError(UserError):
    """The name is not valid for an application in a cluster."""

    code = "bad-name"


class AlreadyOverError(UserError):
    """The application has ended already, so it cannot be killed."""

    code = "already-over"


class NoLogError(UserError):
    """No worker has a log of this application, or of this process of it."""

    code = "no-log"


class MasterFailureError(UnavailableError):
    """The leading master could not fulfil a request; `failure_code` is the code of its reason."""

    code = "master-failure"

    def __init__(self, what: str, *, where: str | None, failure_code: str, remedy: str | None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.failure_code = failure_code


class StillUnderWayError(UnavailableError):
    """The awaited event has not happened in time; it may still happen."""

    code = "still-under-way"


class ApplicationOverError(UserError):
    """An application has ended before the awaited event; it can be restarted."""

    code = "application-over"


class ApplicationFailedError(UserError):
    """An application that ran in the cluster failed: the error as it was raised there.

    `code` and exit code are those of the original error, so that scripts see the same as from `run`;
    `user_traceback` is the user's own traceback if there is one.
    """

    code = "application-failed"

    def __init__(
        self,
        what: str,
        *,
        failure_code: str,
        exit_code: int,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        user_traceback: str | None = None,
    ) -> None:
        super().__init__(what, where=where, expected=expected, got=got, remedy=remedy)
        self.user_traceback = user_traceback
        # Of this instance, in place of the class's.
        self.code = failure_code  # type: ignore[misc]
        self.exit_code = exit_code  # type: ignore[misc]


class ApplicationKilledError(UnavailableError):
    """An awaited application was killed; it can be restarted."""

    code = "application-killed"
