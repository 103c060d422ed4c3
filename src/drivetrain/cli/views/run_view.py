"""Shows a run in progress: a live table on a terminal, plain lines elsewhere.

Design: both views write to the standard error stream, so that standard output holds results only. The
live table redraws itself; the lines come at most once per interval, plus one for each change of state and
each notice.

Called by `drivetrain run`; the engine calls it as its `RunListener`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar

from drivetrain.cli.views.channel_view import attention, show_delay
from drivetrain.cli.views.checkpoint_view import failed_checkpoint, last_checkpoint
from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.diagnosis.situation import Situation
from drivetrain.core.diagnosis.status_situation import with_status
from drivetrain.core.figures import show_clock, show_count, show_counted, show_rate, show_share, show_span
from drivetrain.core.job.job_status import JobState, JobStatus
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentState,
    FragmentStateChanged,
    NoticeGiven,
    ProgressEvent,
    RunStarted,
)
from drivetrain.core.job.run_state import FragmentView, RunState
from drivetrain.core.job.run_status import fragments_of
from drivetrain.terminal import Console, Table, Text, print_line

_STOPPING: Final = "stopping after the batches in progress (Ctrl-C again stops at once)"
_STYLES: Final = {
    FragmentState.STARTING: "yellow",
    FragmentState.RUNNING: "green",
    FragmentState.RESTARTING: "bold yellow",
    FragmentState.DRAINING: "yellow",
    FragmentState.FINISHED: "bold green",
    FragmentState.STOPPED: "yellow",
    FragmentState.FAILED: "bold red",
}


class RunView(Protocol):
    """Shows a run; `tick` is called often, even without events."""

    def on_event(self, event: ProgressEvent) -> None:
        """Handle an event."""

    def tick(self) -> None:
        """Update the output if it is time."""

    def on_stop_requested(self) -> None:
        """Show that the run will stop; called from a signal handler, in the middle of anything."""

    def showing(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the view is shown."""


@dataclass(frozen=True, slots=True)
class ViewTexts:
    """The texts of a view that depend on where the application runs."""

    starting: str = "starting Spark …"
    hint: str = "Ctrl-C stops"
    stopping: str = _STOPPING


class LiveView:
    """A table that redraws itself, on the terminal of `console`; `now_s` is a monotonic clock."""

    def __init__(
        self,
        console: Console,
        now_s: Callable[[], float] = time.monotonic,
        redirect_stdout: bool = True,
        words: ViewTexts = ViewTexts(),
    ) -> None:
        self._console = console
        self._words = words
        self._now_s = now_s
        self._started_s = now_s()
        self._state = RunState()
        self._stopping = False
        # The application's own output appears above the table, if it goes to the same terminal.
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=5,
            transient=True,
            redirect_stdout=redirect_stdout,
            redirect_stderr=True,
        )

    def on_event(self, event: ProgressEvent) -> None:
        """Handle an event; notices are printed above the table."""
        before, self._state = self._state, self._state.after(event)
        if isinstance(event, CheckpointsProgressed):
            for text in _new_failures(before, event):
                self.say(text)
        if isinstance(event, NoticeGiven):
            self.say(event.text)
        if isinstance(event, FragmentStateChanged) and event.reason:
            self.say(f"{event.fragment}: {event.state.value}: {event.reason}")

    def tick(self) -> None:
        """Do nothing: the table redraws itself."""

    def on_stop_requested(self) -> None:
        """Show it with the next drawing: the signal may have interrupted a print, so do not print here."""
        self._stopping = True

    def say(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(Text(text, style="bold"))

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Show the table while the block runs, and remove it afterwards."""
        with self._live:
            yield

    def _draw(self) -> RenderableType:
        elapsed_ms = int((self._now_s() - self._started_s) * 1000)
        state = self._state
        if not state.fragments:
            starting = Text(f"{self._words.starting} {show_span(elapsed_ms)}", style="dim")
            return Group(starting, Text(self._words.stopping, "bold yellow")) if self._stopping else starting
        table = Table(
            title=None, expand=False, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold"
        )
        table.add_column("fragment", no_wrap=True, overflow="ellipsis", max_width=32)
        table.add_column("state", no_wrap=True)
        for heading in ("messages", "messages/s", "lag", "batch"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("clock (UTC)", no_wrap=True)
        table.add_column("delay", justify="right", no_wrap=True)
        for view in state.fragments:
            table.add_row(*_cells(view))
        now_ms = int(self._now_s() * 1000)
        saved = [Text(f"  checkpoint {text}", "dim") for text in _checkpoints(state, now_ms)]
        notes = [Text(note, "yellow", no_wrap=True, overflow="ellipsis") for note in _notes(state)]
        below = [Text(self._words.stopping, "bold yellow")] if self._stopping else []
        return Group(table, *notes, *saved, _overall(state, elapsed_ms, self._words.hint), *below)


class LineView:
    """Plain lines for logs and pipes: at most one per fragment in each `interval_ms`."""

    def __init__(
        self,
        stream: TextIO,
        interval_ms: int,
        now_s: Callable[[], float] = time.monotonic,
        words: ViewTexts = ViewTexts(),
    ) -> None:
        self._stream = stream
        self._words = words
        self._interval_s = interval_ms / 1000
        self._now_s = now_s
        self._started_s = self._shown_s = now_s()
        self._state = RunState()
        self._shown: RunState | None = None
        self._owed: str | None = None

    def on_event(self, event: ProgressEvent) -> None:
        """Handle an event; starts, changes of state and notices are printed at once."""
        before, self._state = self._state, self._state.after(event)
        if isinstance(event, CheckpointsProgressed):
            for text in _new_failures(before, event):
                self.say(text)
        if isinstance(event, RunStarted):
            resumed = ", resuming where it stopped" if event.resumed else ""
            if event.replay_from_ms is not None:
                resumed += f", replaying from {show_clock(event.replay_from_ms)} (life {event.life})"
            self.say(f"{event.application}: {show_counted(len(event.fragments), 'fragment')}{resumed}")
        elif isinstance(event, FragmentStateChanged):
            self.say(f"{event.fragment}: {event.state.value}" + (f": {event.reason}" if event.reason else ""))
        elif isinstance(event, NoticeGiven):
            self.say(event.text)
        self.tick()

    def on_stop_requested(self) -> None:
        """Print it now, or at the next tick if the signal has interrupted a print."""
        try:
            self.say(self._words.stopping)
        except RuntimeError:  # Python's streams are not reentrant
            self._owed = self._words.stopping

    def tick(self) -> None:
        """Print the figures that have changed, once per interval."""
        if self._owed is not None:
            self.say(self._owed)
            self._owed = None
        if self._now_s() - self._shown_s < self._interval_s or self._state == self._shown:
            return
        self._shown_s = self._now_s()
        before = {view.fragment: view for view in self._shown.fragments} if self._shown else {}
        for view in self._state.fragments:
            if view.progress is not None and before.get(view.fragment) != view:
                self.say(_line(view))
        known = [] if self._shown is None else findings_of(self._shown)
        for line in findings_of(self._state):
            if line not in known:
                self.say(line)
        if self._shown is None or self._shown.checkpoints != self._state.checkpoints:
            for text in _checkpoints(self._state, int(self._now_s() * 1000)):
                self.say(f"checkpoint {text}")
        if self._state.fraction is not None:
            self.say(f"input: {show_share(self._state.fraction)}")
        self._shown = self._state

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        elapsed_s = int(self._now_s() - self._started_s)
        print_line(f"[{elapsed_s // 60:02d}:{elapsed_s % 60:02d}] {text}", file=self._stream, flush=True)

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Do nothing: lines need no set-up."""
        yield


def _cells(view: FragmentView) -> list[RenderableType]:
    state = Text(view.state.value, style=_STYLES[view.state])
    progress = view.progress
    if progress is None:
        return [view.fragment, state, "–", "–", "–", "–", "–", "–"]
    return [
        view.fragment,
        state,
        show_count(progress.rows_total),
        show_rate(progress.rows_per_s),
        show_count(progress.lag_rows),
        show_span(progress.batch_ms),
        show_clock(progress.clock_ms),
        show_delay(progress),
    ]


def findings_of(state: RunState) -> list[str]:
    """The problems of a run, one line each, the worst first, worded as in `drivetrain explain`."""
    begun = replace(state, fragments=tuple(view for view in state.fragments if view.progress is not None))
    status = JobStatus(state.application, 1, JobState.RUNNING, 0, 0, fragments=fragments_of(begun))
    situation = with_status(Situation(state.application), status)
    return [f"{found.subject}: {found.what}" for found in diagnose(situation)]


def _notes(state: RunState) -> list[str]:
    """What is wrong, the worst first; then what waits in channels, in the order of the fragments."""
    wrong = [f"  {line}" for line in findings_of(state)]
    return wrong + [
        f"  {view.fragment}: {phrase}"
        for view in state.fragments
        if view.progress is not None
        for phrase in attention(view.progress)
    ]


def _checkpoints(state: RunState, now_ms: int) -> list[str]:
    """The last checkpoint, if there is one."""
    figures = state.checkpoints
    return [] if figures is None or figures.last is None else [last_checkpoint(figures, now_ms)]


def _new_failures(before: RunState, event: CheckpointsProgressed) -> list[str]:
    """The checkpoints that have failed since `before`, as far as `event` still lists them."""
    known = 0 if before.checkpoints is None else before.checkpoints.failed
    new = event.figures.failed - known
    return [failed_checkpoint(failure) for failure in event.figures.failures[-new:]] if new > 0 else []


def _line(view: FragmentView) -> str:
    progress = view.progress
    assert progress is not None
    problems = "".join(f"; {phrase}" for phrase in attention(progress))
    return (
        f"{view.fragment}: {show_count(progress.rows_total)} messages, {show_rate(progress.rows_per_s)}, "
        f"lag {show_count(progress.lag_rows)}, clock {show_clock(progress.clock_ms)}, "
        f"batch {show_span(progress.batch_ms)}{problems}"
    )


def _overall(state: RunState, elapsed_ms: int, hint: str) -> RenderableType:
    if state.fraction is None:
        return Text(f"{state.application} · {show_span(elapsed_ms)} · {hint}", style="dim")
    line = Table.of_facts()
    left = ""
    if 0.02 < state.fraction < 1:
        left = f" · about {show_span(int(elapsed_ms * (1 - state.fraction) / state.fraction))} left"
    line.add_row(
        ProgressBar(total=1.0, completed=state.fraction, width=40),
        show_share(state.fraction),
        Text(f"{state.application} · {show_span(elapsed_ms)}{left}", style="dim"),
    )
    return line
