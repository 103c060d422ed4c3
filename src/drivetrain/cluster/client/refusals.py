"""Turns the leader's `Failure` answers, and ends of applications, into errors with a remedy.

Called by the client and by the commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from drivetrain.actor import ActorFailedError
from drivetrain.api.moments import moment_text
from drivetrain.cluster.client.attachment import ReportEnd
from drivetrain.cluster.client.client_errors import (
    AlreadyOverError,
    ApplicationFailedError,
    ApplicationKilledError,
    ApplicationNameError,
    ApplicationNameTakenError,
    ApplicationOverError,
    MasterFailureError,
    SpecificationTooLargeError,
    UnknownApplicationError,
)
from drivetrain.cluster.messages.applications import (
    APPLICATION_NAME,
    ApplicationSpec,
    ApplicationState,
    ApplicationView,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config import did_you_mean
from drivetrain.core.cluster.record_limits import RecordLimits
from drivetrain.core.replay.replay import ReplayError
from drivetrain.errors import DrivetrainError, UserError

_NAME: Final = re.compile(APPLICATION_NAME)


def require_name(name: str) -> None:
    """Raise ApplicationNameError unless `name` can be an application's."""
    if _NAME.fullmatch(name) is None:
        raise ApplicationNameError(
            "not a name for an application in a cluster",
            where=repr(name[:120]),
            expected="a letter or underscore, then letters, digits, underscores and hyphens, "
            "100 characters at most",
            remedy="give it another with --name",
        )


def require_small(spec: ApplicationSpec) -> None:
    """Raise SpecificationTooLargeError when the specification exceeds the masters' limit."""
    size, most = len(msgspec.msgpack.encode(spec)), RecordLimits().spec_bytes
    if size > most:
        raise SpecificationTooLargeError(
            "the settings and the configuration of the application are too large",
            where=spec.name,
            expected=f"at most {most} bytes",
            got=f"{size} bytes",
            remedy="put large values into a file, and use the file's name as the setting",
        )


def error_of_answer(error: ActorFailedError, app: str, known: Sequence[str] = ()) -> DrivetrainError:
    """The error for the leader's `Failure` about the application `app`; `known` are all existing names."""
    match error.failure_code:
        case UnknownApplicationError.code:
            return UnknownApplicationError(
                "the cluster has no application of this id or name",
                where=app,
                remedy=did_you_mean(app, list(known), otherwise="`drivetrain apps` lists all"),
            )
        case ApplicationNameTakenError.code:
            return ApplicationNameTakenError(
                error.what,
                where=app,
                remedy=f"choose another with --name, or end that one with `drivetrain kill {app}`",
            )
        case ApplicationNameError.code:
            return ApplicationNameError(
                error.what, where=app, remedy=error.remedy or "give another by --name"
            )
        case SpecificationTooLargeError.code:
            return SpecificationTooLargeError(error.what, where=app, remedy=error.remedy)
        case AlreadyOverError.code:
            return already_over(app)
        case ReplayError.code:
            return ReplayError(error.what, where=app, remedy=error.remedy)
        case _:
            return MasterFailureError(
                error.what, where=error.where, failure_code=error.failure_code, remedy=error.remedy
            )


def already_over(app: str) -> AlreadyOverError:
    """The error of ending an application that has ended."""
    return AlreadyOverError(
        "the application has already ended",
        where=app,
        remedy=f"`drivetrain show {app}` shows how it ended",
    )


def no_savepoint_of(view: ApplicationView, app: str) -> ApplicationOverError:
    """The error of a savepoint of an application that has ended."""
    return ApplicationOverError(
        "the application has ended, so it can take no savepoint",
        where=app,
        got=view.state.value,
        remedy="`drivetrain savepoint` with --state-dir takes one from its state directory",
    )


def error_of_end(end: ReportEnd) -> DrivetrainError | None:
    """The error for an application's end; None when it succeeded."""
    if end.state is ApplicationState.SUCCEEDED:
        return None
    if end.state is ApplicationState.KILLED:
        return ApplicationKilledError(
            "the application was killed" + (f": {end.why}" if end.why else ""),
            where=end.app_id,
            remedy=f"`drivetrain restart {end.app_id}` starts it again, with its state",
        )
    error = None if end.status is None else end.status.error
    if error is None:
        return ApplicationFailedError(
            end.why or "the application failed",
            failure_code=ApplicationFailedError.code,
            exit_code=UserError.exit_code,
            where=end.app_id,
            remedy=f"`drivetrain logs {end.app_id}` shows what its processes wrote",
        )
    return error_of_view(error)


def error_of_view(view: ErrorView) -> ApplicationFailedError:
    """The client's error for one raised in the cluster, with the same exit code as from `run`."""
    return ApplicationFailedError(
        view.what,
        failure_code=view.code,
        exit_code=_exit_code(view.code),
        where=view.where,
        expected=view.expected,
        got=view.got,
        remedy=view.remedy,
        user_traceback=view.user_traceback,
    )


def _exit_code(code: str) -> int:
    found = next((cls for cls in _all(DrivetrainError) if cls.__dict__.get("code") == code), None)
    return UserError.exit_code if found is None else found.exit_code


def _all(cls: type[DrivetrainError]) -> Iterator[type[DrivetrainError]]:
    yield cls
    for derived in cls.__subclasses__():
        yield from _all(derived)


def clock_not_reached(view: ApplicationView, app: str, wanted_ms: int) -> ApplicationOverError:
    """The error of an application that has ended before its clock was at `wanted_ms`."""
    clock = "without a clock" if view.clock_ms is None else f"clock at {moment_text(view.clock_ms)}"
    return ApplicationOverError(
        f"the application has ended before its clock reached {moment_text(wanted_ms)}",
        where=app,
        got=f"{view.state.value}, {clock}",
        remedy=f"`drivetrain restart {app}` continues it; `drivetrain show {app}` shows why",
    )
