"""Renders a run as HTML: its fragments, their progress, and their clocks on a common axis.

Problem: in a notebook a run continues after the cell that started it has ended, and its user wants to follow
its progress.

Design: the HTML is a function of the run's state, like the terminal's table. The clocks are bars on one axis
of event time, from the earliest clock so far to the newest message, which shows the fragments that lag. All
text is escaped, because names and reasons come from users.

Called by `spark.run.running_application`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Final

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.figures import show_clock, show_count, show_counted, show_rate, show_share, show_span
from drivetrain.core.job.run_progress import FragmentProgressed, ProgressEvent
from drivetrain.core.job.run_state import FragmentView, RunState

_WIDTH: Final = 260
_HEIGHT: Final = 14
_BAR: Final = "#4338ca"
_TRACK: Final = "#e0e7ff"


@dataclass
class RunPage:
    """The state that a notebook shows of a run. `html` may be called at any time, in any thread."""

    state: RunState = field(default_factory=RunState)
    _span_ms: tuple[int, int] | None = None
    """The earliest clock and the newest message."""

    def take(self, event: ProgressEvent) -> None:
        """Apply an event to the state."""
        self.state = self.state.after(event)
        if isinstance(event, FragmentProgressed) and event.clock_ms is not None:
            if event.clock_ms >= FINAL_CLOCK_MS - 1:
                return
            newest_ms = event.clock_ms + (event.watermark_delay_ms or 0)
            earliest_ms, latest_ms = self._span_ms or (event.clock_ms, newest_ms)
            self._span_ms = min(event.clock_ms, earliest_ms), max(newest_ms, latest_ms)

    def html(self, outcome: str) -> str:
        """The run in its current state; `outcome` is a short text such as "running"."""
        state = self.state
        done = "" if state.fraction is None else f", {show_share(state.fraction)} of the input"
        headings = "".join(
            f"<th>{name}</th>"
            for name in ("fragment", "state", "messages", "rate", "waiting", "last batch", "clock", "")
        )
        rows = "\n".join(self._row(view) for view in state.fragments)
        return (
            f"<table><caption>{escape(state.application)}: {escape(outcome)}{done}, "
            f"{show_counted(len(state.fragments), 'fragment')}</caption>\n"
            f"<thead><tr>{headings}</tr></thead>\n<tbody>{rows}</tbody></table>"
        )

    def _row(self, view: FragmentView) -> str:
        progress = view.progress
        why = view.reason or (progress and progress.waiting_for)
        cells = [view.fragment, f"{view.state.value}: {why}" if why else view.state.value]
        if progress is None:
            cells += ["–"] * 5
        else:
            cells += [
                show_count(progress.rows_total),
                show_rate(progress.rows_per_s),
                show_count(progress.lag_rows),
                show_span(progress.batch_ms),
                show_clock(progress.clock_ms),
            ]
        shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        return f"<tr>{shown}<td>{self._bar(None if progress is None else progress.clock_ms)}</td></tr>"

    def _bar(self, clock_ms: int | None) -> str:
        width = _WIDTH * self._share(clock_ms)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
            f'aria-label="clock {escape(show_clock(clock_ms))}">'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="3" fill="{_TRACK}"/>'
            f'<rect width="{width:.1f}" height="{_HEIGHT}" rx="3" fill="{_BAR}"/></svg>'
        )

    def _share(self, clock_ms: int | None) -> float:
        """How far a clock is between the earliest one and the newest message, 0 to 1."""
        if clock_ms is None:
            return 0.0
        span_ms = self._span_ms  # once: `take` may replace it meanwhile, in another thread
        if span_ms is None or clock_ms >= span_ms[1]:
            return 1.0
        earliest_ms, newest_ms = span_ms
        return max(0, clock_ms - earliest_ms) / max(1, newest_ms - earliest_ms)
