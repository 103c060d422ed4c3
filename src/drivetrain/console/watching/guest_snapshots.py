"""Removes from an application's status what guests may not see: the texts of errors.

Problem: an error quotes the message that it is about, and a traceback lines of code. Only users may read
those; but the text of an error is in many places: in errors, in the reason of an application's end, in failed
checkpoints, and in the findings, which are derived from all of these.

Design: the texts are removed from the cluster's reports, before any answer is made from them. The errors
themselves stay, with their codes, which are ours: guests see what does not work.

Invariants:

1. No answer to a guest contains a text of an error, of a log or of a process.
2. An application without such texts is the same object for guests and for users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from drivetrain.cluster.client.cluster_situation import situation_of
from drivetrain.cluster.messages import applications as messages
from drivetrain.cluster.messages.following import ErrorView, JobStatus
from drivetrain.console.answers.applications import ApplicationSnapshot
from drivetrain.console.watching.rates import Rates
from drivetrain.console.watching.status_answers import snapshot_of
from drivetrain.core.job.history import History

WITHHELD: Final = "only users may read why"

V = TypeVar("V", messages.ApplicationView, messages.ApplicationSummary)


class Snapshots(NamedTuple):
    """A snapshot for users, and the one for guests."""

    for_users: ApplicationSnapshot
    for_guests: ApplicationSnapshot

    def of(self, *, sees_errors: bool) -> ApplicationSnapshot:
        """The one for a caller who may read errors, or may not."""
        return self.for_users if sees_errors else self.for_guests


def snapshots_of(
    view: messages.ApplicationView,
    status: JobStatus | None,
    workers: Sequence[messages.WorkerView],
    masters: Sequence[messages.MasterView],
    history: History,
    rates: Rates,
    now_ms: int,
) -> Snapshots:
    """All of an application, as its application master reported it (None: it does not answer)."""

    def made(view: messages.ApplicationView, status: JobStatus | None) -> ApplicationSnapshot:
        situation = situation_of(view, status, workers, masters, history)
        return snapshot_of(view, status, situation, rates, now_ms)

    for_users = made(view, status)
    shown, reported = without_texts(view), None if status is None else without_errors(status)
    if shown is view and reported is status:
        return Snapshots(for_users, for_users)
    return Snapshots(for_users, made(shown, reported))


def without_texts(view: V) -> V:
    """An application whose reason for its end, or for being started again, has no text of a process.

    Of other reasons what follows a colon is left out: it may be the end of a log.
    """
    if view.why is None:
        return view
    has_failed = view.state is messages.ApplicationState.FAILED
    why = WITHHELD if has_failed else view.why.partition(": ")[0]
    return view if why == view.why else msgspec.structs.replace(view, why=why)


def without_errors(status: JobStatus) -> JobStatus:
    """A status with the codes of its errors, and without their texts and what the application printed."""
    checkpoints = status.checkpoints
    has_failures = checkpoints is not None and checkpoints.failures
    has_errors = status.error is not None or status.errors or any(each.error for each in status.fragments)
    if not has_errors and not has_failures and not status.printed:
        return status
    if checkpoints is not None:
        checkpoints = msgspec.structs.replace(
            checkpoints,
            failures=tuple(
                msgspec.structs.replace(failure, reason=WITHHELD) for failure in checkpoints.failures
            ),
        )
    return msgspec.structs.replace(
        status,
        error=_code(status.error),
        errors=tuple(_code(error) for error in status.errors),
        fragments=tuple(msgspec.structs.replace(each, error=_code(each.error)) for each in status.fragments),
        checkpoints=checkpoints,
        printed="",
    )


def _code(error: ErrorView | None) -> ErrorView | None:
    return None if error is None else ErrorView(error.code, f"an error of the kind {error.code}: {WITHHELD}")
