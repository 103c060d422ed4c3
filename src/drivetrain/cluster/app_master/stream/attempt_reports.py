"""Collects attempts' reports about the versions that they have seen; finds executors that must look again.

Problem: a message that a version is in force may be lost, and so may the answer; attempts move between
executors, and reports of those that were replaced arrive late.

Design: attempts repeat what they have seen with every report. Only that of a fragment's current attempt
counts. An executor whose attempts have not seen the latest record is asked to look until they have.

Called by `applied_versions`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.messages.changing import VersionReport, VersionReports
from drivetrain.core.job.fragment_execution import Execution, ExecutionState

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.app_master import ApplicationMaster
    from drivetrain.cluster.app_master.stream.running_job import RunningJob


class AttemptReports:
    """The newest report of each fragment's current attempt in the job `running` of `owner`."""

    def __init__(self, owner: ApplicationMaster, running: RunningJob) -> None:
        self._owner: Final = owner
        self._running: Final = running
        self._seen: dict[str, VersionReport] = {}
        self.number = 0
        """The version in force."""
        self.is_trial = False
        """Whether it is on trial."""
        self.newest = 0
        """The largest number of a version."""

    def take(self, message: VersionReports) -> list[VersionReport]:
        """Keep the reports of an executor's attempts; returns those that count."""
        found: list[VersionReport] = []
        for seen in message.seen:
            execution = self._running.job.execution(seen.fragment)
            if (
                execution is not None
                and (execution.attempt, execution.executor) == (seen.attempt, message.executor_id)
                and not execution.is_terminal
            ):
                self._seen[seen.fragment] = seen
                found.append(seen)
        return found

    def of(self, execution: Execution) -> VersionReport | None:
        """The report of an execution's attempt; None if it does not run, or is not up to date."""
        seen = self._seen.get(execution.fragment)
        if execution.state is not ExecutionState.RUNNING or seen is None:
            return None
        return seen if self._is_up_to_date(seen, execution) else None

    def behind(self, fragments: Iterable[str]) -> list[str]:
        """Those of these fragments whose running attempts have not seen the newest record."""
        found: list[str] = []
        for fragment in fragments:
            execution, seen = self._running.job.execution(fragment), self._seen.get(fragment)
            if execution is None or execution.state is not ExecutionState.RUNNING:
                continue
            if seen is None or not self._is_up_to_date(seen, execution):
                found.append(fragment)
        return found

    def poll(self) -> None:
        """Ask the executors whose attempts are not up to date to look again."""
        fragments = [execution.fragment for execution in self._running.job.executions]
        self._running.have_look(self.behind(fragments))

    def _is_up_to_date(self, seen: VersionReport, execution: Execution) -> bool:
        stands = (execution.attempt, self.number, self.is_trial, self.newest)
        return (seen.attempt, seen.number, seen.is_trial, seen.newest) == stands
