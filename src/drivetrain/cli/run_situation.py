"""Turns the state of a run in progress into the input of a diagnosis, and returns the findings.

Called by `cli.run_view`, for embedded runs and for applications of a cluster that are watched.
"""

from __future__ import annotations

from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.situation import ChannelSituation, FragmentSituation, Situation
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.core.job.run_state import FragmentView, RunState

_WAITS: frozenset[FragmentState] = frozenset({FragmentState.RESTARTING, FragmentState.FAILED})


def findings_of(state: RunState) -> list[str]:
    """The problems of a run, one line each, the worst first, worded as in `drivetrain explain`."""
    fragments = tuple(_fragment(view) for view in state.fragments if view.progress is not None)
    return [
        f"{found.subject}: {found.what}"
        for found in diagnose(Situation(state.application, fragments=fragments))
    ]


def _fragment(view: FragmentView) -> FragmentSituation:
    progress = view.progress
    assert progress is not None
    is_over = view.state in (FragmentState.FINISHED, FragmentState.STOPPED)
    return FragmentSituation(
        view.fragment,
        is_running=view.state not in _WAITS,
        state=view.state.value,
        batch_ms=progress.batch_ms,
        rows_per_s=progress.rows_per_s,
        lag_rows=progress.lag_rows,
        stalled_ms=0 if is_over else progress.stalled_ms,
        waiting_for=progress.waiting_for,
        blocked_by=None if is_over else progress.blocked_by,
        left_out=progress.left_out,
        channels=tuple(
            ChannelSituation(
                channel.producer,
                channel.subscriber,
                channel.lag_rows,
                channel.lag_ms,
                channel.blocked_ms,
                channel.losses,
                channel.replays,
            )
            for channel in progress.channels
        ),
        figures=progress.figures,
    )
