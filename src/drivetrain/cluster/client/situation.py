"""Builds the input of a diagnosis from a cluster's view of an application.

Called by `drivetrain explain` and `drivetrain show`, and by the console.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from drivetrain.cluster.messages.applications import ApplicationView, MasterView, WorkerView
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobStatus
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.cluster.application_record import ApplicationState
from drivetrain.core.diagnosis.situation import (
    ChannelSituation,
    CheckpointSituation,
    FailedCheckpoint,
    FragmentSituation,
    Machine,
    Master,
    Problem,
    ProcessorCounts,
    Situation,
)
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.history import NO_HISTORY, History

_DOES_NOT_RUN: Final = frozenset(
    state.value for state in ExecutionState if state not in (ExecutionState.RUNNING, ExecutionState.FINISHED)
)


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
        waits_for=None if status is None else status.waiting_for,
        why=view.why,
        machines=tuple(Machine(w.name, w.slots, w.free, w.memory_free or None) for w in workers),
        masters=masters_of(masters),
        history=history,
    )
    if status is None:
        return known
    return dataclasses.replace(
        known,
        runs_for_ms=max(0, status.now_ms - status.started_ms),
        error=_problem(status.error),
        recovered=tuple(found for error in status.errors if (found := _problem(error)) is not None),
        fragments=tuple(_fragment(fragment) for fragment in status.fragments),
        processors=tuple(
            ProcessorCounts(id, taken, late, dead) for id, (taken, _, late, dead) in status.counts.items()
        ),
        checkpoints=_checkpoints(status.checkpoints, status.checkpoints_now_ms),
        lost=status.lost,
        disk_free=status.disk_free,
        disk_total=status.disk_total,
    )


def masters_of(views: Sequence[MasterView]) -> tuple[Master, ...]:
    """The masters of a cluster, as one of them knows them."""
    return tuple(Master(view.address, view.leads, view.silent_ms) for view in views)


def _problem(error: ErrorView | None) -> Problem | None:
    return None if error is None else Problem(error.code, error.what, error.where, error.remedy)


def _fragment(view: FragmentView) -> FragmentSituation:
    return FragmentSituation(
        id=view.fragment,
        is_running=view.state not in _DOES_NOT_RUN,
        state=view.state,
        attempt=view.attempt,
        batch_ms=view.batch_ms,
        rows_per_s=view.rows_per_s,
        lag_rows=view.lag_rows,
        stalled_ms=view.stalled_ms,
        waiting_for=view.waiting_for,
        blocked_by=view.blocked_by,
        left_out=view.left_out,
        error=_problem(view.error),
        channels=tuple(
            ChannelSituation(
                producer=channel.producer,
                subscriber=channel.subscriber,
                lag_rows=channel.lag_rows,
                lag_ms=channel.lag_ms,
                blocked_ms=channel.blocked_ms,
                losses=channel.losses,
                replays=channel.replays,
            )
            for channel in view.channels
        ),
        figures=view.figures,
    )


def _checkpoints(figures: CheckpointFigures | None, now_ms: int) -> CheckpointSituation | None:
    if figures is None:
        return None
    last = figures.last
    since_ms = 0 if last is None else last.started_ms
    return CheckpointSituation(
        completed=figures.completed,
        last_ago_ms=None if last is None else max(0, now_ms - last.started_ms - last.duration_ms),
        last_took_ms=None if last is None else last.duration_ms,
        running_ms=figures.running_ms,
        failures=tuple(
            FailedCheckpoint(max(0, now_ms - failure.at_ms), failure.fragments, failure.reason)
            for failure in figures.failures
            if last is None or failure.at_ms > since_ms
        ),
        interval_ms=figures.interval_ms,
    )
