"""Everything that a cluster reports about one application, queried once; `show` and `explain` print it.

Called by `cli.inspection.explain` and `cli.inspection.show`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.finding import Finding
from drivetrain.core.diagnosis.situation import Situation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivetrain.cluster.client.blocking_client import BlockingClient
    from drivetrain.cluster.messages.applications import ApplicationView, WorkerView
    from drivetrain.cluster.messages.following import JobStatus


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


def without_leader(client: BlockingClient, app: str) -> Situation:
    """What is known of an application while no master leads; raises NoMasterError when none answers."""
    from drivetrain.cluster.client.cluster_situation import masters_of

    return Situation(app, masters=masters_of(client.masters()))
