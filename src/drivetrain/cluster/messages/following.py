"""Client and application master: the status that `show` and an attached client display."""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import ErrorView as ErrorView
from drivetrain.core.job.job_status import ExecutorView as ExecutorView
from drivetrain.core.job.job_status import FragmentView as FragmentView
from drivetrain.core.job.job_status import JobState as JobState
from drivetrain.core.job.job_status import JobStatus as JobStatus
from drivetrain.core.job.job_status import OutputView as OutputView


class GetStatus(Message, frozen=True, tag="cluster.get-status"):
    """Asks an application master for its `Status`."""


class Status(Message, frozen=True, tag="cluster.status"):
    """The answer to `GetStatus`; also sent to followers after every change."""

    status: JobStatus


class Follow(Message, frozen=True, tag="cluster.follow"):
    """From now on send `follower` the `Status` after changes, at most a few a second, and always the last."""

    follower: ActorRef


class Unfollow(Message, frozen=True, tag="cluster.unfollow"):
    """Send `follower` no more."""

    follower: ActorRef


class GetHistory(Message, frozen=True, tag="cluster.get-history"):
    """Asks an application master for its `HistoryReport`: the last quarter of an hour."""


class HistoryReport(Message, frozen=True, tag="cluster.history-report"):
    """The answer to `GetHistory`; empty for an application without fragments."""

    history: History


class GetThreads(Message, frozen=True, tag="cluster.get-threads"):
    """Asks an executor for its `ThreadStacks`, or an application master for those of an executor.

    `executor` is the id of the latter (None: any that is ready).
    """

    executor: str | None = None


class ThreadStacks(Message, frozen=True, tag="cluster.thread-stacks"):
    """Stacks of an executor's threads, as text: of its process, and of Spark's Java (empty without it)."""

    executor: str
    python: str
    java: str


class StopApplication(Message, frozen=True, tag="cluster.stop-application"):
    """From the leader, or a worker on its behalf: the application master cancels its job and ends."""

    epoch: Count
    why: str
