"""The progress of an application: its job with fragments, channels, processors, checkpoints and errors.

Called by `console.watching.status_answers`, which makes these from what an application master reported.
"""

from __future__ import annotations

import msgspec

from drivetrain.console.answers.figures import FragmentFigures


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error as it was raised, with its stable code. All of it is text of users or about their data: show
    it as text, never as markup."""

    code: str
    what: str
    where: str | None
    expected: str | None
    got: str | None
    remedy: str | None
    user_traceback: str | None


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A fragment. `batch_ms` (of the last batch), `stalled_ms` and `clock_delay_ms` are durations; the last
    is how far its clock is behind the newest timestamp that it took.

    `stalled_ms` is for how long its clock has held up the application's; `waiting_for` and `blocked_by` say
    what it waits for. `silent_partitions` are partitions of its sources that the clock ignores.
    """

    fragment: str
    state: str
    attempt: int
    executor: str | None
    worker: str | None
    batch_id: int
    batch_ms: int
    messages: int
    messages_per_s: float
    lag_messages: int | None
    clock_ms: int | None
    clock_delay_ms: int | None
    stalled_ms: int
    waiting_for: str | None
    blocked_by: str | None
    silent_partitions: int
    error: ErrorReport | None
    figures: FragmentFigures


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """A channel, from the fragment `producer` to the fragment `subscriber`.

    Lag is what the subscriber has not committed: in messages, bytes, and event time (`lag_ms`, a duration).
    The producer waits when what is unacknowledged reaches a window; it has waited for `blocked_ms` (0: it
    does not). `losses` and `replays` count since the application began. The rate at which messages enter it
    is that at which they leave the processor that the graph names as its producer.
    """

    channel: str
    producer: str
    subscriber: str
    clock_ms: int | None
    lag_messages: int
    lag_bytes: int
    lag_ms: int | None
    unacknowledged_messages: int
    unacknowledged_bytes: int
    window_messages: int
    window_bytes: int
    blocked_ms: int
    losses: int
    replays: int
    kept_bytes: int


class Processor(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a processor in this epoch of the application; rates are null before two readings."""

    processor: str
    messages_in: int
    messages_out: int
    late: int
    dead_letters: int
    in_per_s: float | None
    out_per_s: float | None


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """An executor process."""

    executor: str
    worker: str | None
    host: str | None
    pid: int | None
    slots: int
    state: str
    spark_master: str | None


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink wrote."""

    processor: str
    target: str
    messages: int
    guarantee: str


class CompletedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A committed checkpoint: when it started (a moment), how long it took, and each fragment's part of that.

    `as_of_ms` is its application time, a moment.
    """

    txid: int
    as_of_ms: int | None
    started_ms: int
    duration_ms: int
    size_bytes: int
    fragment_ms: dict[str, int]


class FailedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that failed at the moment `at_ms`, because of these fragments."""

    txid: int
    action: str | None
    at_ms: int
    fragments: tuple[str, ...]
    reason: str


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints of an application; the current one, if any, has been running for `running_ms`.

    All times are of the coordinator's clock, which showed `now_ms` at the time of this report.
    """

    now_ms: int
    txid: int
    phase: str
    is_recovering: bool
    running_ms: int | None
    completed: int
    failed: int
    last: CompletedCheckpoint | None
    failures: tuple[FailedCheckpoint, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The report that the application master of `epoch` sent at `now_ms`, by its own clock.

    `state` is created, running, failing, restarting, cancelling, canceled, finished or failed. `fraction` is
    the share of bounded input that was taken, 0 to 1. `life` counts the lives of its state; the current life
    began at `replay_from_ms` (null: with everything). `printed` is what its hooks, or the application master
    of a custom application, have printed, as text. `skipped` messages were older than that, `lost` ones
    were deleted before they were read. `change` is what is under way: a change, a handover or a scaling, in
    words. `errors` are the latest errors, oldest first, including those that it
    recovered from; `error` is the one that ended it.
    """

    state: str
    epoch: int
    started_ms: int
    now_ms: int
    clock_ms: int | None
    fraction: float | None
    waiting_for: str | None
    change: str | None
    life: int
    replay_from_ms: int | None
    skipped: int
    lost: int
    fragments: tuple[Fragment, ...]
    channels: tuple[Channel, ...]
    processors: tuple[Processor, ...]
    executors: tuple[Executor, ...]
    outputs: tuple[Output, ...]
    accumulators: dict[str, int | float]
    checkpoints: Checkpoints | None
    error: ErrorReport | None
    errors: tuple[ErrorReport, ...]
    printed: str


# ---- parts of a job, for requests that need no more


class Fragments(msgspec.Struct, frozen=True, kw_only=True):
    """The fragments of an application, producers first; none while no application master answers."""

    fragments: tuple[Fragment, ...]


class Channels(msgspec.Struct, frozen=True, kw_only=True):
    """The channels of an application; none while no application master answers."""

    channels: tuple[Channel, ...]


class FragmentClock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of a fragment; `holds_minimum` if no other fragment's is earlier."""

    fragment: str
    clock_ms: int | None
    clock_delay_ms: int | None
    holds_minimum: bool
    stalled_ms: int
    waiting_for: str | None
    silent_partitions: int


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """The application's clock, the fragments' clocks, and the channels' by id."""

    clock_ms: int | None
    fragments: tuple[FragmentClock, ...]
    channels: dict[str, int | None]


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """The error that ended the application, and the latest errors, oldest first."""

    error: ErrorReport | None
    errors: tuple[ErrorReport, ...]


class CheckpointReport(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of an application; null while nothing is known of any."""

    checkpoints: Checkpoints | None
