"""The status of an application that runs in one process, derived from the events of its run.

Why: pages, commands and diagnoses handle one kind of status, `core.job.job_status`, wherever an application
runs. In one process no event can be missed, so the state of the run has everything that is known of its
fragments.

Called by `cli.views.run_view` and `spark.run.run_reporter`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.job_status import FragmentView
from drivetrain.core.job.run_progress import FragmentProgressed, FragmentState
from drivetrain.core.job.run_state import FragmentView as RunFragment
from drivetrain.core.job.run_state import RunState

_STATES: Final = {
    FragmentState.STARTING: ExecutionState.DEPLOYING,
    FragmentState.RUNNING: ExecutionState.RUNNING,
    FragmentState.RESTARTING: ExecutionState.DEPLOYING,
    FragmentState.DRAINING: ExecutionState.RUNNING,
    FragmentState.FINISHED: ExecutionState.FINISHED,
    FragmentState.STOPPED: ExecutionState.CANCELED,
    FragmentState.FAILED: ExecutionState.FAILED,
}
"""The state of a fragment as that of its execution in a cluster; it runs until its last batch is done."""
_FIGURES: Final = tuple(field.name for field in dataclasses.fields(FragmentProgressed))
"""The fields of a fragment's progress; its view has them by the same names."""


def fragments_of(state: RunState, attempts: Mapping[str, int] | None = None) -> tuple[FragmentView, ...]:
    """The fragments of a run, in its order; `attempts` counts the queries of each from 1.

    >>> fragments_of(RunState(fragments=(RunFragment("one", FragmentState.RUNNING),)))[0].state
    'running'
    """
    return tuple(_fragment(view, (attempts or {}).get(view.fragment, 1)) for view in state.fragments)


def _fragment(view: RunFragment, attempt: int) -> FragmentView:
    state = _STATES[view.state].value
    if view.progress is None:
        return FragmentView(view.fragment, state, attempt)
    if view.state is FragmentState.STARTING:
        state = ExecutionState.RUNNING.value  # it has processed a batch
    figures = {name: getattr(view.progress, name) for name in _FIGURES}
    if view.state in (FragmentState.FINISHED, FragmentState.STOPPED):
        figures |= {"stalled_ms": 0, "blocked_by": None}  # a fragment that has ended waits for nothing
    return FragmentView(state=state, attempt=attempt, **figures)
