"""Client and application master: what `show` and an attached client see."""

from __future__ import annotations

from enum import Enum

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures


class JobState(Enum):
    """The life of an application's job within its application master; see `core.job.job`."""

    CREATED = "created"
    RUNNING = "running"
    FAILING = "failing"
    RESTARTING = "restarting"
    CANCELLING = "cancelling"
    CANCELED = "canceled"
    FINISHED = "finished"
    FAILED = "failed"


class ErrorView(msgspec.Struct, frozen=True, array_like=True):
    """An error as it was raised elsewhere: its stable code and fields, and the user's traceback if any."""

    code: str
    what: str
    where: str | None = None
    expected: str | None = None
    got: str | None = None
    remedy: str | None = None
    user_traceback: str | None = None


class FragmentView(msgspec.Struct, frozen=True, array_like=True):
    """A fragment: its execution's state, which attempt, where, and its progress (see
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


class OutputView(msgspec.Struct, frozen=True, array_like=True):
    """What a sink wrote, as `core.job.run_progress.OutputResult`."""

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
    """All of an application at one moment. `counts` are messages in, out, late, dead-lettered by processor;
    `accumulators` the user's counters; `fraction` the share of bounded input that was taken. `life` counts
    the lives of its state, `replay_from_ms` is where this one began (None: with everything), `skipped` are
    the messages that sources gave and that were older, `lost` those that were gone before they were read."""

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
    """The latest errors, oldest first, those that were recovered from included."""
    printed: str = ""
    """What the application's `when_finished` hooks wrote to standard output, once it has finished."""
    life: int = 1
    replay_from_ms: int | None = None
    skipped: int = 0
    lost: int = 0
    checkpoints: CheckpointFigures | None = None
    """None while nothing is known of any."""
    checkpoints_now_ms: int = 0
    """Now, on the clock of `checkpoints`."""


class GetStatus(Message, frozen=True, tag="cluster.get-status"):
    """Asks an application master for its `Status`."""


class Status(Message, frozen=True, tag="cluster.status"):
    """The answer to `GetStatus`, and what followers are told whenever something changed."""

    status: JobStatus


class Follow(Message, frozen=True, tag="cluster.follow"):
    """From now on tell `follower` every `Status`, at most some a second, the final one certainly."""

    follower: ActorRef


class Unfollow(Message, frozen=True, tag="cluster.unfollow"):
    """Stop telling."""

    follower: ActorRef


class StopApplication(Message, frozen=True, tag="cluster.stop-application"):
    """The leader, or a worker on its behalf, tells an application master to cancel its job and to end."""

    epoch: Count
    why: str
