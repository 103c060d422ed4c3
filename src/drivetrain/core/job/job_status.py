"""The status of an application at one moment: what every program that shows one gets.

Problem: an application runs in a cluster or in one process. The programs that show or diagnose it must not
need to know where.

Design: plain records of what is known of its fragments, executors, outputs, checkpoints and errors. An
application master makes them from what executors report, a run in one process from its own queries.

Called by `cluster.messages.following`, which carries them, by `spark.run.run_reporter`, and by the modules
that show an application.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.fragment_figures import NO_FIGURES, FragmentFigures
from drivetrain.core.job.history import FragmentMoment, Moment, late_and_dead


class JobState(Enum):
    """The state of an application's job within its application master; see `core.job.job`."""

    CREATED = "created"
    RUNNING = "running"
    FAILING = "failing"
    RESTARTING = "restarting"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"
    FAILED = "failed"


class ErrorView(msgspec.Struct, frozen=True, array_like=True):
    """An error raised in another process: its stable code and fields, and the user's traceback if any."""

    code: str
    what: str
    where: str | None = None
    expected: str | None = None
    got: str | None = None
    remedy: str | None = None
    user_traceback: str | None = None


class FragmentView(msgspec.Struct, frozen=True, array_like=True):
    """A fragment: the state of its execution, its attempt, its executor, and its progress (see
    `core.job.run_progress`)."""

    fragment: str
    state: str
    attempt: int
    executor: str | None = None
    worker: str | None = None
    batch_id: int = -1
    rows_total: int = 0
    rows_per_s: float = 0.0
    batch_ms: int = 0
    lag_rows: int | None = None
    clock_ms: int | None = None
    error: ErrorView | None = None
    channels: tuple[ChannelProgress, ...] = ()
    watermark_delay_ms: int | None = None
    stalled_ms: int = 0
    waiting_for: str | None = None
    blocked_by: str | None = None
    left_out: int = 0
    figures: FragmentFigures = NO_FIGURES


class OutputView(msgspec.Struct, frozen=True, array_like=True):
    """The output of a sink, as `core.job.run_progress.OutputResult`."""

    processor: str
    target: str
    messages: int
    guarantee: str


class ExecutorView(msgspec.Struct, frozen=True, array_like=True):
    """An executor process."""

    executor: str
    worker: str | None
    host: str | None
    pid: int | None
    slots: int
    state: str
    spark_master: str | None = None


class JobStatus(msgspec.Struct, frozen=True, array_like=True):
    """The status of a whole application at one moment.

    `counts` are messages in, out, late, dead-lettered by processor; `accumulators` the user's counters;
    `fraction` the share of bounded input that was read. `life` is the number of its life, `replay_from_ms`
    the timestamp from which this one processes (None: everything), `skipped` the number of messages older
    than that, `lost` the number deleted before sources read them.
    """

    app_id: str
    epoch: int
    state: JobState
    started_ms: int
    now_ms: int
    clock_ms: int | None = None
    fragments: tuple[FragmentView, ...] = ()
    executors: tuple[ExecutorView, ...] = ()
    outputs: tuple[OutputView, ...] = ()
    counts: dict[str, tuple[int, int, int, int]] = {}
    accumulators: dict[str, int | float] = {}
    fraction: float | None = None
    error: ErrorView | None = None
    waiting_for: str | None = None
    errors: tuple[ErrorView, ...] = ()
    """The latest errors, oldest first, including those recovered from."""
    printed: str = ""
    """The standard output of the application's `when_finished` hooks, once it has finished."""
    life: int = 1
    replay_from_ms: int | None = None
    skipped: int = 0
    lost: int = 0
    checkpoints: CheckpointFigures | None = None
    """None before the application has checkpoints."""
    checkpoints_now_ms: int = 0
    """Now, on the clock of `checkpoints`."""
    disk_free: int | None = None
    """Free bytes of the file system that holds the state directory; None: not known."""
    disk_total: int | None = None
    """How large that file system is."""
    change: str | None = None
    """The change of the application that is under way, in words."""


def moment_of(status: JobStatus) -> Moment:
    """The part of a status that is kept for trends and charts."""
    late, dead_lettered = late_and_dead(status.counts)
    return Moment(
        status.now_ms,
        status.clock_ms,
        late,
        dead_lettered,
        status.disk_free,
        {fragment.fragment: _fragment_moment(fragment) for fragment in status.fragments},
    )


def _fragment_moment(view: FragmentView) -> FragmentMoment:
    figures = view.figures
    return FragmentMoment(
        view.attempt,
        figures.counters.batches,
        view.rows_total,
        view.batch_ms,
        view.lag_rows,
        view.clock_ms,
        figures.state_rows,
        figures.state_bytes,
        figures.latency_p50_ms,
        figures.latency_p99_ms,
        sum(figures.counters.blocked_ms.values()),
        figures.counters.phases,
        view.watermark_delay_ms,
    )
