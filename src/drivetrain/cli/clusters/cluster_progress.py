"""Turns an application's statuses from a cluster into the events of a run in this process.

Why: an application looks the same wherever it runs, and the views handle only one kind of event.

Invariants:
1. `RunStarted` comes once, first.
2. Every event reports a difference from the previous status.

Called by `submit` and `show --watch`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection
from typing import Final

import msgspec

from drivetrain.cluster.messages.following import FragmentView, JobState, JobStatus
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    OutputResult,
    ProcessorResult,
    ProgressEvent,
    RunOutcome,
    RunResult,
    RunStarted,
)

_STATES: Final = {
    ExecutionState.CREATED: FragmentState.STARTING,
    ExecutionState.SCHEDULED: FragmentState.STARTING,
    ExecutionState.DEPLOYING: FragmentState.STARTING,
    ExecutionState.RUNNING: FragmentState.RUNNING,
    ExecutionState.FINISHED: FragmentState.FINISHED,
    ExecutionState.CANCELING: FragmentState.DRAINING,
    ExecutionState.CANCELED: FragmentState.STOPPED,
    ExecutionState.FAILED: FragmentState.FAILED,
}

_FIGURES: Final = tuple(field.name for field in dataclasses.fields(FragmentProgressed))
"""The fields of a fragment's progress; its view has them by the same names."""


class StatusEvents:
    """Turns each status into events for the news in it."""

    def __init__(self) -> None:
        self._before: JobStatus | None = None

    def of(self, status: JobStatus) -> list[ProgressEvent]:
        """The differences from the previous status, as events."""
        before, self._before = self._before, status
        events: list[ProgressEvent] = []
        if before is None:
            events.append(
                RunStarted(status.app_id, tuple(view.fragment for view in status.fragments), status.epoch > 1)
            )
        earlier = {} if before is None else {view.fragment: view for view in before.fragments}
        for view in status.fragments:
            events += _fragment_events(earlier.get(view.fragment), view)
        if status.fraction is not None and (before is None or before.fraction != status.fraction):
            events.append(InputProgressed(status.fraction))
        figures = status.checkpoints
        if figures is not None and (before is None or before.checkpoints != figures):
            events.append(CheckpointsProgressed(_here(figures, status.checkpoints_now_ms)))
        if status.waiting_for and (before is None or before.waiting_for != status.waiting_for):
            events.append(NoticeGiven(f"waiting: {status.waiting_for}"))
        if status.state is JobState.RESTARTING and (before is None or before.state is not status.state):
            why = f": {status.errors[-1].what}" if status.errors else ""
            events.append(NoticeGiven(f"the application restarts{why}"))
        return events


def _here(figures: CheckpointFigures, now_ms: int) -> CheckpointFigures:
    """The figures with times on this process's own clock, from which a view computes their age."""
    if figures.last is None:
        return figures
    shift_ms = int(time.monotonic() * 1000) - now_ms
    last = msgspec.structs.replace(figures.last, started_ms=figures.last.started_ms + shift_ms)
    return msgspec.structs.replace(figures, last=last)


def fragment_state(view: FragmentView) -> FragmentState:
    """The state of a fragment, as the state of one in this process."""
    try:
        state = _STATES[ExecutionState(view.state)]
    except ValueError:  # a state of a newer version
        state = FragmentState.STARTING
    return FragmentState.RESTARTING if state is FragmentState.STARTING and view.attempt > 1 else state


def result_of(app_id: str, status: JobStatus, sources: Collection[str]) -> RunResult:
    """The result of an application that succeeded; `sources` are the ids of its source processors.

    `counts` are in the order of the status, durations in ms.
    """
    return RunResult(
        application=app_id,
        outcome=RunOutcome.FINISHED,
        duration_ms=max(0, status.now_ms - status.started_ms),
        processors=tuple(
            ProcessorResult(processor, *counts, is_source=processor in sources)
            for processor, counts in status.counts.items()
        ),
        outputs=tuple(
            OutputResult(output.processor, output.target, output.messages, output.guarantee)
            for output in status.outputs
        ),
        batches=sum(view.batch_id + 1 for view in status.fragments),
        clock_ms=status.clock_ms,
        accumulators=dict(status.accumulators),
        fragments=tuple(_figures(view) for view in status.fragments),
    )


def _fragment_events(before: FragmentView | None, view: FragmentView) -> list[ProgressEvent]:
    events: list[ProgressEvent] = []
    state = fragment_state(view)
    if before is None or fragment_state(before) is not state or before.attempt != view.attempt:
        is_news = before is None or before.error != view.error
        events.append(FragmentStateChanged(view.fragment, state, _reason(view, state, is_news)))
    figures = _figures(view)
    if view.batch_id >= 0 and (before is None or _figures(before) != figures):
        events.append(figures)
    return events


def _reason(view: FragmentView, state: FragmentState, is_news: bool) -> str | None:
    attempt = f"attempt {view.attempt}" if view.attempt > 1 else None
    # A fragment keeps its last error, even when it restarts for another reason.
    if not is_news or view.error is None or state not in (FragmentState.RESTARTING, FragmentState.FAILED):
        return attempt
    return view.error.what if attempt is None else f"{attempt}: {view.error.what}"


def _figures(view: FragmentView) -> FragmentProgressed:
    return FragmentProgressed(**{name: getattr(view, name) for name in _FIGURES})
