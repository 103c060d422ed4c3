"""The state of a run in progress: the sum of its events so far.

Design: a frozen state and one function from state and event to the next state, so that the live table,
the plain lines and the tests agree, and a drawing thread always sees a consistent state.

Invariants:
1. Fragments stand in the order of `RunStarted`; one that was not announced comes last.
2. The share of input that is done never decreases.

Called by `cli.views.run_view`, and by `spark.run.run_reporter` for notebooks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    ProgressEvent,
    RunStarted,
)


@dataclass(frozen=True, slots=True)
class FragmentView:
    """One fragment: its state with the reason, and its latest figures (None before its first batch)."""

    fragment: str
    state: FragmentState = FragmentState.STARTING
    reason: str | None = None
    progress: FragmentProgressed | None = None


@dataclass(frozen=True, slots=True)
class RunState:
    """The whole run: application, fragments in order, the share of bounded input done (None: not bounded).

    `checkpoints` is None before the first event about them.
    """

    application: str = ""
    resumed: bool = False
    fragments: tuple[FragmentView, ...] = ()
    fraction: float | None = None
    checkpoints: CheckpointFigures | None = None

    def after(self, event: ProgressEvent) -> RunState:
        """The state once `event` has happened."""
        match event:
            case RunStarted(application=application, fragments=fragments, resumed=resumed):
                views = tuple(FragmentView(fragment) for fragment in fragments)
                return RunState(application, resumed, views)
            case FragmentStateChanged(fragment, state, reason):
                return self._with(replace(self._view(fragment), state=state, reason=reason))
            case FragmentProgressed():
                return self._with(replace(self._view(event.fragment), progress=event))
            case InputProgressed(fraction):
                return replace(self, fraction=min(1.0, max(fraction, self.fraction or 0.0)))
            case CheckpointsProgressed(figures):
                return replace(self, checkpoints=figures)
            case NoticeGiven():
                return self

    def _view(self, fragment: str) -> FragmentView:
        return next((view for view in self.fragments if view.fragment == fragment), FragmentView(fragment))

    def _with(self, changed: FragmentView) -> RunState:
        if all(view.fragment != changed.fragment for view in self.fragments):
            return replace(self, fragments=(*self.fragments, changed))
        views = tuple(changed if view.fragment == changed.fragment else view for view in self.fragments)
        return replace(self, fragments=views)
