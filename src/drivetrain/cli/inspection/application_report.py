"""Everything that is known of one application, queried once; `show` and `explain` print it.

Called by `cli.inspection.explain` and `cli.inspection.show`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.finding import Finding
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.core.job.history import NO_HISTORY
from drivetrain.runtime.control_socket import NotRunningError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain.cluster.client.blocking_client import BlockingClient
    from drivetrain.cluster.messages.applications import ApplicationView, WorkerView
    from drivetrain.cluster.messages.following import JobStatus
    from drivetrain.runtime.run_directory import RunDirectory


@dataclass(frozen=True)
class ApplicationReport:
    """An application, its cluster, and what is wrong with both."""

    view: ApplicationView
    status: JobStatus | None
    workers: Sequence[WorkerView]
    situation: Situation
    findings: tuple[Finding, ...]


def look_at(client: BlockingClient, app: str) -> ApplicationReport:
    """Ask for everything; raises what `Client.status` raises."""
    from drivetrain.cluster.client.cluster_situation import situation_of

    view, status = client.status(app)
    workers = client.workers()
    history, masters = client.history(view), client.masters()
    situation = situation_of(view, status, workers, masters, history)
    return ApplicationReport(view, status, workers, situation, diagnose(situation))


def look_at_run(rundir: RunDirectory) -> ApplicationReport:
    """Ask an application that runs embedded on this machine, or read how it ended."""
    from drivetrain.cluster.client.cluster_situation import situation_of
    from drivetrain.console.embedded.embedded_status import look_at as look_at_directory
    from drivetrain.runtime.control_requests import ANSWERS_S, ControlRequest, ask

    seen = look_at_directory(rundir.path, rundir.writers)
    history = NO_HISTORY if seen.last is None else seen.last.history
    if seen.last is None and seen.status is not None:
        with contextlib.suppress(NotRunningError):  # it has just ended
            history = ask(rundir, ControlRequest("history"), ANSWERS_S).history or NO_HISTORY
    situation = situation_of(seen.view, seen.status, (), history=history)
    return ApplicationReport(seen.view, seen.status, (), situation, diagnose(situation))


def without_leader(client: BlockingClient, app: str) -> Situation:
    """What is known of an application while no master leads; raises NoMasterError when none answers."""
    from drivetrain.cluster.client.cluster_situation import masters_of

    return Situation(app, masters=masters_of(client.masters()))
