"""The few messages that the kernel itself sends or understands.

Design: they are ordinary messages, with tags that begin with "dt.". They hold references, and references send
messages: so `Message` itself is below both, in `message`.

Called by the kernel, by the remote layer, and by actors that watch or answer with a failure.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from drivetrain.actor.message import Message
from drivetrain.actor.reference import ActorRef

if TYPE_CHECKING:
    from drivetrain.errors import DrivetrainError


class TerminationCause(Enum):
    """Why a watched actor counts as terminated."""

    STOPPED = "stopped"
    NEVER_EXISTED = "never existed"  # or stopped so long ago that it is forgotten
    UNREACHABLE = "unreachable"  # its system was declared dead


class Terminated(Message, frozen=True, tag="dt.terminated"):
    """Sent once to every watcher of `actor`, after everything `actor` itself had sent to it."""

    actor: ActorRef
    cause: TerminationCause = TerminationCause.STOPPED


class PoisonPill(Message, frozen=True, tag="dt.local.poison-pill"):
    """Stops its receiver, an actor of the same system, after the messages before it."""


class Failure(Message, frozen=True, tag="dt.failure"):
    """The answer to an ask that failed: it becomes an `AskError` at the asker."""

    code: str
    what: str
    where: str | None = None
    remedy: str | None = None

    @classmethod
    def of(cls, error: DrivetrainError) -> Failure:
        """Describe `error`, keeping its stable code."""
        return cls(error.code, error.what, error.where, error.remedy)


class Watch(Message, frozen=True, tag="dt.watch"):
    """Between systems: report to `watcher` when the receiver terminates. May be repeated."""

    watcher: ActorRef


class Unwatch(Message, frozen=True, tag="dt.unwatch"):
    """Between systems: no longer report to `watcher`."""

    watcher: ActorRef


class Identify(Message, frozen=True, tag="dt.identify"):
    """Asks the actor at a path for its reference; answered with `Identified`."""


class Identified(Message, frozen=True, tag="dt.identified"):
    """The answer to `Identify`: the reference with its uid, or None when no actor is there."""

    actor: ActorRef | None
