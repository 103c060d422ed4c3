"""Converts reports of fragments to events of a version's trial.

Called by `application_changes`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.cluster.app_master.stream.restore_request import RESTORE_NEEDED
from drivetrain.core.change.change_events import (
    BatchBegan,
    BatchCommitted,
    BatchFailed,
    Change,
    Event,
    FragmentEnded,
    FragmentWaited,
)
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.errors import UnavailableError

if TYPE_CHECKING:
    from drivetrain.cluster.messages.changing import VersionReport
    from drivetrain.cluster.messages.following import ErrorView
    from drivetrain.core.job.job import Job


def events_of(seen: VersionReport, change: Change) -> list[Event]:
    """The events that follow from an attempt's report about the version on trial."""
    if seen.number != change.number or seen.fragment not in change.touched:
        return []
    found: list[Event] = []
    if seen.began is not None:
        found.append(BatchBegan(seen.fragment, seen.began))
    if seen.failure is not None:  # also after a batch without messages, which it has committed
        found.append(BatchFailed(seen.fragment, seen.failure))
    elif seen.has_committed and seen.began is not None:
        found.append(BatchCommitted(seen.fragment))
    elif seen.has_committed:  # of a version at an event time, which the clock has reached
        found.append(FragmentEnded(seen.fragment))
    elif seen.has_waited:
        found.append(FragmentWaited(seen.fragment))
    return found


def failure_of(fragment: str, error: ErrorView, change: Change) -> BatchFailed | None:
    """The end of the trial by a fragment that cannot start; None for an error that another attempt may
    avoid."""
    if fragment not in change.may_fail_before_a_batch or error.code in (
        UnavailableError.code,
        RESTORE_NEEDED,
    ):
        return None
    parts = (error.what, error.got, error.user_traceback)
    return BatchFailed(fragment, "\n".join(part for part in parts if part))


def ended_of(change: Change, job: Job) -> list[Event]:
    """The changed fragments that have read all their input."""
    found: list[Event] = []
    for fragment in sorted(change.touched):
        execution = job.execution(fragment)
        if execution is not None and execution.state is ExecutionState.FINISHED:
            found.append(FragmentEnded(fragment))
    return found
