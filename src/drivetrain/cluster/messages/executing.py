"""Application master and executor: fragments.

Both make the same plan from the same files and settings; messages contain only ids of fragments. The order:
the executor registers; one executor of a new epoch is asked to `Prepare`; fragments are deployed; when all
have finished, one executor is asked to `Conclude`. Executors watch their application master and end when it
does.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.following import ErrorView, OutputView
from drivetrain.cluster.messages.numbers import Count, DurationMs, Figure, TimeMs
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.job.fragment_figures import NO_FIGURES, FragmentFigures
from drivetrain.core.plan.counts import CountRule


class RegisterExecutor(Message, frozen=True, tag="cluster.register-executor"):
    """An executor has started, but not its Spark session yet; asked.

    Answered with `ExecutorRegistered`, or with `Failure("stale-epoch", …)`, after which the executor ends.
    """

    executor_id: str
    app_id: str
    epoch: Count
    executor: ActorRef
    pid: Count
    host: str


class ExecutorRegistered(Message, frozen=True, tag="cluster.executor-registered"):
    """The executor's application, and how often to report."""

    spec: ApplicationSpec
    report_interval_ms: DurationMs


class Prepare(Message, frozen=True, tag="cluster.prepare"):
    """Start Spark, load the application, check every source and sink, and create or open its state directory;
    `fresh` deletes the state first, `replay_from_ms` begins a new life from that timestamp on, `savepoint` is
    a directory to continue from. Asked; answered with `Prepared`, `PrepareDeferred` or `PrepareFailed`."""

    app_id: str
    epoch: Count
    fresh: bool
    replay_from_ms: int | None = None
    savepoint: str | None = None


class Prepared(Message, frozen=True, tag="cluster.prepared"):
    """Fragments may be deployed, unless an earlier run has `finished` everything.

    `life` is the number of the application's life, `replay_from_ms` the timestamp from which this one
    processes (None: everything). `notices` are for the user, `rules` for the counts of processors. Those of
    the version `before` are for a rollback of the version that runs, if it is on trial.
    """

    finished: bool
    resumed: bool
    spark_master: str
    outputs: tuple[OutputView, ...] = ()
    life: int = 1
    replay_from_ms: int | None = None
    notices: tuple[str, ...] = ()
    rules: dict[str, CountRule] = msgspec.field(default_factory=dict)
    before: tuple[tuple[OutputView, ...], dict[str, CountRule]] | None = None


class PrepareFailed(Message, frozen=True, tag="cluster.prepare-failed"):
    """The application cannot run; `retryable` when another attempt may help."""

    error: ErrorView
    retryable: bool


class PrepareDeferred(Message, frozen=True, tag="cluster.prepare-waits"):
    """The application cannot be prepared yet, and is to be asked for again; `why` follows "waiting for"."""

    why: str


class Deploy(Message, frozen=True, tag="cluster.deploy"):
    """Run a fragment from its last committed batch; sent, not asked. The executor reports its outcome in
    `FragmentChanged`."""

    fragment: str
    attempt: Count
    epoch: Count


class CancelFragment(Message, frozen=True, tag="cluster.cancel-fragment"):
    """Stop a fragment: at its next batch boundary (`drain`) or now; sent, not asked."""

    fragment: str
    attempt: Count
    drain: bool = False


class FragmentOutcome(Enum):
    """The outcome of a deployed fragment so far, reported by its executor."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"


class FragmentChanged(Message, frozen=True, tag="cluster.fragment-changed"):
    """A new outcome of an attempt; asked, and repeated until the answer `FragmentChangedReply` arrives."""

    executor_id: str
    fragment: str
    attempt: Count
    outcome: FragmentOutcome
    error: ErrorView | None = None
    retryable: bool = True
    """False for an error that every attempt would repeat: a wrong graph, a missing input."""
    report: ExecutorReport | None = None
    """The final report, with a `FINISHED`: the one sent before may be lost with its connection."""


class FragmentChangedReply(Message, frozen=True, tag="cluster.known"):
    """Whether the application master knows the attempt; if not, the executor drops the fragment."""

    known: bool


class FragmentProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of an attempt since it began; see `core.job.run_progress.FragmentProgressed`.

    `out` and `into` count messages that left each processor and that reached each sink, `late` and `dead`
    the late and dead-lettered ones, by processor id. `taken` of `total` is the bounded input read (bytes or
    rows), if known. `skipped` counts messages older than the replay, `lost` those deleted before sources read
    them. `settled_clock_ms` is the clock after the last committed batch, from which the application's clock
    is computed; `waiting_for` is what holds it back, if the fragment knows.
    """

    fragment: str
    attempt: Count
    batch_id: Figure
    rows_total: Figure
    rows_per_s: float
    batch_ms: Figure
    lag_rows: Figure | None
    clock_ms: TimeMs | None
    out: dict[str, Figure] = {}
    into: dict[str, Figure] = {}
    late: dict[str, Figure] = {}
    dead: dict[str, Figure] = {}
    taken: Figure = 0
    total: Figure | None = None
    channels: tuple[ChannelProgress, ...] = ()
    watermark_delay_ms: Figure | None = None
    settled_clock_ms: TimeMs | None = None
    waiting_for: str | None = None
    blocked_by: str | None = None
    skipped: Figure = 0
    left_out: Figure = 0
    lost: Figure = 0
    figures: FragmentFigures = NO_FIGURES


class ExecutorReport(Message, frozen=True, tag="cluster.executor-report"):
    """Sent every `report_interval_ms`, and with the final figures before a fragment's `FINISHED`.

    `accumulators` are the user's counters by fragment and name, since that attempt began. `disk_free` and
    `disk_total` are bytes of the file system that holds the state directory (None: not known).
    """

    executor_id: str
    epoch: Count
    fragments: tuple[FragmentProgress, ...]
    accumulators: dict[str, dict[str, int | float]]
    disk_free: Count | None = None
    disk_total: Count | None = None


class Conclude(Message, frozen=True, tag="cluster.conclude"):
    """All fragments have finished: record it in the state directory and call the application's
    `when_finished` hooks with these counts. Asked; answered with `Concluded` or `PrepareFailed`."""

    epoch: Count
    counts: dict[str, tuple[int, int, int, int]]
    outputs: tuple[OutputView, ...]
    duration_ms: int
    clock_ms: int | None


class Concluded(Message, frozen=True, tag="cluster.concluded"):
    """The end is recorded; `printed` is the standard output of the application's hooks."""

    printed: str


class EndExecutor(Message, frozen=True, tag="cluster.end-executor"):
    """Drain the running fragments, stop Spark, end the process; sent, not asked."""

    epoch: Count
    why: str
