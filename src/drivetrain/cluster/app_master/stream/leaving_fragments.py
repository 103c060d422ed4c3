"""Fragments that leave an application in a cluster: notifies them when no producer writes to them any more.

Problem: a fragment may end its channels, or delete them, only once its producers have stopped writing to them
for good. These run in other executors, and move between them.

Design: an outcome in the state directory names the fragments that have to leave. The executor that runs one
takes its steps (`executor.leaving_attempt`), but for the first it waits for `LeavePermitted`: this process
knows from the reports of the producers' current attempts which channels they write. It sends that message
again and again. A fragment is removed from the job when the files no longer name it; an attempt that ends
before that is followed by another one.

What if we die here: the next application master finds the same fragments in the files.

Invariants:

1. A fragment may leave only when no attempt of its producers writes to it, or can switch to a version that
   does.
2. A fragment leaves the job only after its attempt has ended and its outcome does not name it.

Called by `applied_versions`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.messages.changing import LeavePermitted
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.errors import UnavailableError

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.stream.attempt_reports import AttemptReports
    from drivetrain.cluster.app_master.stream.running_job import RunningJob
    from drivetrain.cluster.app_master.stream.stored_versions import VersionsState
    from drivetrain.core.job.job import Job


class LeavingFragments:
    """The fragments of the job `running` that leave; `epoch` is that of this application master."""

    def __init__(self, running: RunningJob, reports: AttemptReports, epoch: int) -> None:
        self._running: Final = running
        self._reports: Final = reports
        self._epoch: Final = epoch
        self._leaving: Mapping[str, Mapping[str, str]] = {}
        self._known = {execution.fragment for execution in running.job.executions}  # those in the files

    @property
    def names(self) -> tuple[str, ...]:
        """The fragments that have not left yet."""
        return tuple(self._leaving)

    def apply(self, state_read: VersionsState) -> list[str]:
        """Take over the contents of the files; returns the fragments that have left since the last call.

        The job consists of the fragments in the files, and of those that have left, but may still run.
        """
        left = [id for id in self._leaving if id not in state_read.leaving]
        self._leaving = state_read.leaving
        self._known = {vertex.fragment for vertex in state_read.vertices}
        job = self._running.job
        stay = [v for v in job.vertices if v.fragment not in self._known and _may_run(job, v.fragment)]
        self._running.replace_vertices((*state_read.vertices, *stay), state_read.participants)
        return left

    def refusal(self, starts: Iterable[str]) -> UnavailableError | None:
        """Why these fragments cannot start now: earlier ones of their names are not gone."""
        again = [id for id in starts if self._running.job.execution(id) is not None]
        if not again:
            return None
        return UnavailableError(
            "fragments of these names are still leaving the application",
            where=", ".join(again),
            remedy="try again once they have left; they then start with an empty state",
        )

    @property
    def is_behind(self) -> bool:
        """Whether the files have to be read again: an attempt of a fragment that leaves has ended."""
        return any(
            e.is_terminal and (e.fragment in self._leaving or e.fragment not in self._known)
            for e in self._running.job.executions
        )

    def look(self) -> None:
        """Notify fragments that they may leave; have those that have ended, but must still leave, run
        again."""
        for fragment, channels in self._leaving.items():
            execution = self._running.job.execution(fragment)
            if execution is None or execution.executor is None:
                continue
            if all(self._is_released_by(channel, producer) for channel, producer in channels.items()):
                self._running.tell(
                    execution.executor, LeavePermitted(self._epoch, fragment, execution.attempt)
                )

    def run_again(self) -> None:
        """Give another attempt to fragments whose last one has ended, though they have not left."""
        for fragment in self._leaving:
            self._running.perform(self._running.job.runs_again(fragment))

    def _is_released_by(self, channel: str, producer: str) -> bool:
        execution = self._running.job.execution(producer)
        if execution is None or execution.state is ExecutionState.FINISHED:
            return True
        seen = self._reports.of(execution)
        return seen is not None and channel not in seen.writes


def _may_run(job: Job, fragment: str) -> bool:
    execution = job.execution(fragment)
    return execution is not None and execution.is_placed
