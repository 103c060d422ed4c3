"""Builds the input of a diagnosis from the status of an application, wherever it runs.

Called by `cluster.client.cluster_situation`, which knows the cluster around it, and by
`cli.views.run_view` for a run that is shown while it runs.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.diagnosis.situation import (
    ChannelSituation,
    CheckpointSituation,
    FailedCheckpoint,
    FragmentSituation,
    Problem,
    ProcessorCounts,
    Situation,
)
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.job_status import ErrorView, FragmentView, JobStatus

_DOES_NOT_RUN: Final = frozenset(
    state.value for state in ExecutionState if state not in (ExecutionState.RUNNING, ExecutionState.FINISHED)
)


def with_status(known: Situation, status: JobStatus) -> Situation:
    """The situation, completed from the application's status."""
    return dataclasses.replace(
        known,
        waits_for=status.waiting_for,
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
