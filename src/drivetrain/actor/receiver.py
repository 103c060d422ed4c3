"""Receivers: what a cell knows of the actor in it.

Problem: an actor has a context, and a context is a view of a cell. If a cell knew the class of actors, the
three would be one module in three files.

Design: what the kernel calls (`receive` and the hooks) and what it reads (`supervision`) is a class of its
own, below cells and contexts. `Actor` adds the context, and is what users derive from.

Called by cells; `lifecycle` says which hook runs when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from drivetrain.core.liveness.supervision import SupervisionPolicy

if TYPE_CHECKING:
    from drivetrain.actor.message import Message


class Receiver(ABC):
    """Handles messages, one at a time, and is told about its own life."""

    __slots__ = ()

    supervision: SupervisionPolicy = SupervisionPolicy()
    """What happens when a child fails."""

    @abstractmethod
    def receive(self, message: Message) -> Awaitable[None] | None:
        """Handle one message. What it raises is a failure, and the parent decides."""

    def pre_start(self) -> Awaitable[None] | None:
        """Get ready; called before the first message."""
        return None

    def post_stop(self) -> Awaitable[None] | None:
        """Clean up; called after the last message, when all children have stopped."""
        return None

    def pre_restart(self, cause: BaseException) -> Awaitable[None] | None:
        """Clean up before this instance is replaced because of `cause`; by default as `post_stop`."""
        return self.post_stop()

    def post_restart(self, cause: BaseException) -> Awaitable[None] | None:
        """Get ready after the instance before this one failed with `cause`; by default as `pre_start`."""
        return self.pre_start()


Factory: TypeAlias = "Callable[[], Receiver]"
"""Makes the instances of one actor; what it returns must be an `Actor`."""

Behaviour: TypeAlias = "Callable[[Message], Awaitable[None] | None]"
"""What handles messages instead of `receive`, after `Context.become`."""
