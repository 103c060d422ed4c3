"""A worker's messages to itself: elapsed delays, and results of background work.

Called by the modules of this package.
"""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message


class RegistrationAnswered(Message, frozen=True, tag="dt.local.worker.answered"):
    """The leader's answer to a registration; None without an answer."""

    attempt: int
    answer: Message | None


class WakeRegistration(Message, frozen=True, tag="dt.local.worker.wake"):
    """The registration's timer."""


class ReportDue(Message, frozen=True, tag="dt.local.worker.report"):
    """It is time for a report."""


class CleanUpDue(Message, frozen=True, tag="dt.local.worker.tidy"):
    """It is time to remove code and logs that are no longer needed."""


class LaunchStarted(Message, frozen=True, tag="dt.local.worker.started"):
    """A launch has its process."""

    launch_id: str
    pid: int


class LaunchNotStarted(Message, frozen=True, tag="dt.local.worker.not-started"):
    """A launch failed."""

    launch_id: str
    code: str
    why: str
    remedy: str | None


class LaunchEnded(Message, frozen=True, tag="dt.local.worker.ended"):
    """A process and its descendants have ended; `log` is the end of its log."""

    launch_id: str
    status: int
    log: str


class OwnerExpired(Message, frozen=True, tag="dt.local.worker.ownerless"):
    """An application master has been gone for long enough."""

    owner: ActorRef


class LeaveRequested(Message, frozen=True, tag="dt.local.worker.leave"):
    """From the process: the worker was asked to end."""


class DrainExpired(Message, frozen=True, tag="dt.local.worker.drain-over"):
    """The time for draining has passed."""


class LogRead(Message, frozen=True, tag="dt.local.worker.log-read"):
    """A piece of a log, or the reason for its absence, to answer `asker`."""

    asker: ActorRef
    answer: Message


class BackgroundWorkDone(Message, frozen=True, tag="dt.local.worker.done"):
    """Background work is done, or failed for the reason `failure`."""

    failure: str | None
