"""Application master and executor: fragments.

Both make the same plan from the same files and settings; only ids of fragments travel. The order: the
executor registers; one executor of a new epoch is asked to `Prepare`; fragments are deployed; when all have
finished, one executor is asked to `Conclude`. Executors watch their application master and end when it does.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.following import ErrorView, OutputView
from drivetrain.cluster.messages.numbers import Count, DurationMs, Figure, TimeMs
from drivetrain.core.channel.channel_progress import ChannelProgress


class RegisterExecutor(Message, frozen=True, tag="cluster.register-executor"):
    """An executor is there, its Spark session is not started yet; asked.

    Answered with `ExecutorRegistered`, or `Failure("stale-epoch", …)` upon which it ends.
    """

    executor_id: str
    app_id: str
    epoch: Count
    executor: ActorRef
    pid: Count
    host: str


class ExecutorRegistered(Message, frozen=True, tag="cluster.executor-registered"):
    """What the executor works for, and how often it reports."""

    spec: ApplicationSpec
    report_interval_ms: DurationMs


class Prepare(Message, frozen=True, tag="cluster.prepare"):
    """Start Spark, load the application, check every source and sink, and begin (or go on with) its state
    directory; `fresh` forgets the state first, `replay_from_ms` begins a new life of it from then on,
    `savepoint` is a place where it goes on from. Asked; answered with `Prepared` or `PrepareFailed`."""

    app_id: str
    epoch: Count
    fresh: bool
    replay_from_ms: int | None = None
    savepoint: str | None = None


class Prepared(Message, frozen=True, tag="cluster.prepared"):
    """Fragments may be deployed; or all was `finished` by an earlier run, and there is nothing to do.

    `life` counts the lives of the state, `replay_from_ms` is where this one began (None: with everything).
    `notices` are what people should know of it.
    """

    finished: bool
    resumed: bool
    spark_master: str
    outputs: tuple[OutputView, ...] = ()
    life: int = 1
    replay_from_ms: int | None = None
    notices: tuple[str, ...] = ()


class PrepareFailed(Message, frozen=True, tag="cluster.prepare-failed"):
    """The application cannot run; `retryable` says that trying again may help."""

    error: ErrorView
    retryable: bool


class Deploy(Message, frozen=True, tag="cluster.deploy"):
    """Run a fragment from its last committed batch; told. The executor says how it goes by
    `FragmentChanged`."""

    fragment: str
    attempt: Count
    epoch: Count


class CancelFragment(Message, frozen=True, tag="cluster.cancel-fragment"):
    """Stop a fragment: at its next batch boundary (`drain`) or now; told."""

    fragment: str
    attempt: Count
    drain: bool = False


class FragmentOutcome(Enum):
    """What an executor says of a fragment it was told to run."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"


class FragmentChanged(Message, frozen=True, tag="cluster.fragment-changed"):
    """Asked, so that the executor knows it was heard; answered with `Known`."""

    executor_id: str
    fragment: str
    attempt: Count
    outcome: FragmentOutcome
    error: ErrorView | None = None
    retryable: bool = True
    """False for an error that another attempt would only repeat: a wrong graph, a missing input."""
    report: ExecutorReport | None = None
    """What is final with a `FINISHED`, again: the told one is lost when its connection breaks."""


class Known(Message, frozen=True, tag="cluster.known"):
    """Whether the application master knows that attempt; if not, the executor drops the fragment."""

    known: bool


class FragmentProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far an attempt has come, since it began; see `core.job.run_progress.FragmentProgressed`.

    `out` and `into` are messages that left each processor and that reached each sink, `late` and `dead` those
    late and dead-lettered, by processor id. `taken` of `total` is the bounded input (bytes or rows), if
    known. `skipped` are the messages that were older than the replay, `lost` those that were gone before
    sources read them. `settled_clock_ms` is the clock after the last batch that is committed, which the
    application's clock rests on; `waiting_for` what keeps it, if the fragment knows.
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


class ExecutorReport(Message, frozen=True, tag="cluster.executor-report"):
    """Told every `report_interval_ms`, and with what is final before a fragment's `FINISHED`.

    `accumulators` are the user's counters by fragment and name, since that attempt began.
    """

    executor_id: str
    epoch: Count
    fragments: tuple[FragmentProgress, ...]
    accumulators: dict[str, dict[str, int | float]]


class Conclude(Message, frozen=True, tag="cluster.conclude"):
    """All fragments have finished: note it in the state directory and call the application's `when_finished`
    with these counts. Asked; answered with `Concluded` or `PrepareFailed`."""

    epoch: Count
    counts: dict[str, tuple[int, int, int, int]]
    outputs: tuple[OutputView, ...]
    duration_ms: int
    clock_ms: int | None


class Concluded(Message, frozen=True, tag="cluster.concluded"):
    """Done; `printed` is what the application's hooks wrote to standard output."""

    printed: str


class EndExecutor(Message, frozen=True, tag="cluster.end-executor"):
    """Drain the fragments that run, stop Spark, end the process; told."""

    epoch: Count
    why: str
