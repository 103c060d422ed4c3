"""What a worker says to itself: delays that are over, and what came of work beside the actor.

Called by the modules of this package.
"""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message


class Answered(Message, frozen=True, tag="dt.local.worker.answered"):
    """What the leader says to a registration; None when it says nothing."""

    attempt: int
    answer: Message | None


class WakeRegistration(Message, frozen=True, tag="dt.local.worker.wake"):
    """The registration wants to know that time has passed."""


class Report(Message, frozen=True, tag="dt.local.worker.report"):
    """It is time for a report."""


class Tidy(Message, frozen=True, tag="dt.local.worker.tidy"):
    """It is time to remove code and logs that nobody needs."""


class Started(Message, frozen=True, tag="dt.local.worker.started"):
    """A launch has its process."""

    launch_id: str
    pid: int


class NotStarted(Message, frozen=True, tag="dt.local.worker.not-started"):
    """A launch came to nothing."""

    launch_id: str
    code: str
    why: str
    remedy: str | None


class Ended(Message, frozen=True, tag="dt.local.worker.ended"):
    """A process has ended, with all that it started; `log` is the end of its log."""

    launch_id: str
    status: int
    log: str


class Ownerless(Message, frozen=True, tag="dt.local.worker.ownerless"):
    """An application master has been gone for long enough."""

    owner: ActorRef


class LogRead(Message, frozen=True, tag="dt.local.worker.log-read"):
    """A piece of a log, or why there is none, for whoever asked."""

    asker: ActorRef
    answer: Message


class Done(Message, frozen=True, tag="dt.local.worker.done"):
    """Something beside the actor is done, or `failure` says why it is not."""

    failure: str | None
