"""The events of a run, and its result.

Problem: the engine must not depend on what displays a run (a terminal, a log, a test, a dashboard), and a
display must not depend on the engine.

Design: the engine reports `ProgressEvent`s, frozen records of what has happened, to one `RunListener`,
and asks it at every batch boundary whether to stop. At the end it returns a `RunResult`. Nothing here
computes: rates and clocks are the engine's.

Order of events of one run: `RunStarted` first; then for each fragment `FragmentStateChanged` and
`FragmentProgressed` in the order in which they happened, `InputProgressed` in between when all input is
bounded; `CheckpointsProgressed` and `NoticeGiven` at any time. The `RunResult` is the return value, not an
event.

Invariants, checked by `check()` of a result:
1. Counts and durations are never negative; each processor is listed once.
2. A run that was already finished processed nothing in this run.

Called by the engine (`drivetrain.spark`), shown by `drivetrain.cli`. All listener calls come from one
thread at a time; a listener must return quickly, because the engine waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.fragment_figures import NO_FIGURES, FragmentFigures
from drivetrain.errors import InternalError


class FragmentState(StrEnum):
    """The life of a fragment within one run, as shown to the user."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    DRAINING = "draining"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class RunOutcome(StrEnum):
    """How a run ended without an error: the input ended, someone stopped it, or there was nothing to do."""

    FINISHED = "finished"
    STOPPED = "stopped"
    ALREADY_FINISHED = "already finished"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The application is about to start; `fragments` in topological order, `resumed` from an earlier run.

    `life` counts the lives of its state, `replay_from_ms` is where this one began (None: with everything).
    """

    application: str
    fragments: tuple[str, ...]
    resumed: bool = False
    life: int = 1
    replay_from_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FragmentStateChanged:
    """A fragment's state became `state`; `reason` is given for unusual transitions."""

    fragment: str
    state: FragmentState
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FragmentProgressed:
    """A fragment committed a batch, or was polled while idle.

    `rows_total` counts the messages taken in this run, `rows_per_s` is the recent rate, `lag_rows` the number
    of messages known to wait in its inputs (None when the source cannot count them), `clock_ms` its
    event-time clock in ms since the epoch (None before the first message), `batch_ms` the duration of its
    last batch.

    `channels` are its inputs that are channels. `watermark_delay_ms` is the newest timestamp that it took
    minus its clock (None: one of them is not known, or the input has ended). `stalled_ms` is how long its
    clock has stood still (0: it moves), `waiting_for` what it waits for, `blocked_by` the subscriber whose
    window is full. `left_out` are the messages that an application which runs at most once left out since it
    began, as far as they could be counted. `figures` show where the time of its batches goes.
    """

    fragment: str
    batch_id: int
    rows_total: int
    rows_per_s: float
    batch_ms: int
    lag_rows: int | None = None
    clock_ms: int | None = None
    channels: tuple[ChannelProgress, ...] = ()
    watermark_delay_ms: int | None = None
    stalled_ms: int = 0
    waiting_for: str | None = None
    blocked_by: str | None = None
    left_out: int = 0
    figures: FragmentFigures = NO_FIGURES


@dataclass(frozen=True, slots=True)
class InputProgressed:
    """The share of all bounded input taken so far, 0 to 1; it never decreases within a run."""

    fraction: float


@dataclass(frozen=True, slots=True)
class NoticeGiven:
    """A notice for the user that is neither progress nor an error."""

    text: str


@dataclass(frozen=True, slots=True)
class CheckpointsProgressed:
    """A checkpoint of the application began, was committed, or failed."""

    figures: CheckpointFigures


ProgressEvent: TypeAlias = (
    RunStarted
    | FragmentStateChanged
    | FragmentProgressed
    | InputProgressed
    | CheckpointsProgressed
    | NoticeGiven
)


class RunListener(Protocol):
    """An observer of a run."""

    def on_event(self, event: ProgressEvent) -> None:
        """Handle an event; called often, must return quickly and not raise."""

    def stop_requested(self) -> bool:
        """Whether the run should drain and stop; once true it stays true. Called at least every 250 ms."""


class QuietListener:
    """A listener that shows nothing and never stops the run: for programs that only want the result."""

    def on_event(self, event: ProgressEvent) -> None:
        """Ignore the event."""

    def stop_requested(self) -> bool:
        """False."""
        return False


@dataclass(frozen=True, slots=True)
class ProcessorResult:
    """The figures of one processor in this run: messages in and out, late ones, dead-lettered ones.

    A source (`is_source`) takes its messages from outside: the sum over sources is the run's input.
    """

    processor: str
    messages_in: int
    messages_out: int
    late: int = 0
    dead_lettered: int = 0
    is_source: bool = False


@dataclass(frozen=True, slots=True)
class OutputResult:
    """The figures of one sink in this run: what it wrote, where, and its guarantee ("exactly once")."""

    processor: str
    target: str
    messages: int
    guarantee: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a run; figures are of this run only.

    `clock_ms` is the application's event-time clock (None: no message yet). `accumulators` are the user's own
    counters by name; see `drivetrain.accumulator` for their values when batches run again.
    `fragments` is the progress of each fragment, with its channels, in topological order. `life` counts the
    lives of the application's state; `replay_from_ms` is the start of this one (None: all messages), and
    `skipped` is the number of older messages. `lost` is the number of messages, since the state began, that
    disappeared before sources that may continue without them could read them. `checkpoints` describes the
    checkpoints of this run (None: there was none), `version` is the version of the graph at its end.

    >>> result = RunResult("shop", RunOutcome.FINISHED, 1200, processors=(), outputs=(), batches=3)
    >>> result.batches, result.late, result.dead_lettered
    (3, 0, 0)
    """

    application: str
    outcome: RunOutcome
    duration_ms: int
    processors: tuple[ProcessorResult, ...]
    outputs: tuple[OutputResult, ...]
    batches: int = 0
    clock_ms: int | None = None
    accumulators: Mapping[str, int | float] = field(default_factory=dict)
    fragments: tuple[FragmentProgressed, ...] = ()
    life: int = 1
    replay_from_ms: int | None = None
    skipped: int = 0
    lost: int = 0
    checkpoints: CheckpointFigures | None = None
    version: int | None = None

    @property
    def late(self) -> int:
        """Late messages of all processors."""
        return sum(processor.late for processor in self.processors)

    @property
    def dead_lettered(self) -> int:
        """Messages of all processors that went to a dead-letter channel."""
        return sum(processor.dead_lettered for processor in self.processors)

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        counts = [self.duration_ms, self.batches, *(output.messages for output in self.outputs)]
        for processor in self.processors:
            counts += [
                processor.messages_in,
                processor.messages_out,
                processor.late,
                processor.dead_lettered,
            ]
        if any(count < 0 for count in counts):
            raise InternalError("a run's result holds a negative count", where=self.application)
        names = [processor.processor for processor in self.processors]
        if len(names) != len(set(names)):
            raise InternalError("a run's result lists a processor twice", where=self.application)
        if self.outcome is RunOutcome.ALREADY_FINISHED and self.batches:
            raise InternalError("a finished application processed batches", where=self.application)
