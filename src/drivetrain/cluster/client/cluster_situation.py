"""Builds the input of a diagnosis from a cluster's view of an application.

Called by `drivetrain explain` and `drivetrain show`, and by the console.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivetrain.cluster.messages.applications import ApplicationView, MasterView, WorkerView
from drivetrain.cluster.messages.following import JobStatus
from drivetrain.core.cluster.application_record import ApplicationState
from drivetrain.core.diagnosis.situation import Machine, Master, Situation
from drivetrain.core.diagnosis.status_situation import with_status
from drivetrain.core.job.history import NO_HISTORY, History


def situation_of(
    view: ApplicationView,
    status: JobStatus | None,
    workers: Sequence[WorkerView],
    masters: Sequence[MasterView] = (),
    history: History = NO_HISTORY,
) -> Situation:
    """The situation of an application; `status` is None while no application master answers.

    `history` is what its application master has kept; without it there are no findings about trends.
    """
    known = Situation(
        application=view.app_id,
        is_over=view.state.is_over,
        has_failed=view.state is ApplicationState.FAILED,
        answers=status is not None,
        epoch=view.epoch,
        why=view.why,
        machines=tuple(Machine(w.name, w.slots, w.free, w.memory_free or None) for w in workers),
        masters=masters_of(masters),
        history=history,
    )
    return known if status is None else with_status(known, status)


def masters_of(views: Sequence[MasterView]) -> tuple[Master, ...]:
    """The masters of a cluster, as one of them knows them."""
    return tuple(Master(view.address, view.leads, view.silent_ms) for view in views)
