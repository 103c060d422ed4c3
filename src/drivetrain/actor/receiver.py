"""Receivers: the interface between a cell and its actor.

Problem: an actor has a context, and a context is a view of a cell. If a cell knew the class of actors, the
three would be one module in three files.

Design: the methods that the kernel calls (`receive` and the hooks) and the attribute it reads (`supervision`)
are a class of their own, below cells and contexts. `Actor` adds the context, and is what users derive from.

Called by cells; `lifecycle` lists which hook runs when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from drivetrain.core.liveness.supervision import SupervisionPolicy

if TYPE_CHECKING:
    from drivetrain.actor.message import Message


class Receiver(ABC):
    """Handles messages, one at a time, with hooks for its own life cycle."""

    __slots__ = ()

    supervision: SupervisionPolicy = SupervisionPolicy()
    """What happens when a child fails."""

    @abstractmethod
    def receive(self, message: Message) -> Awaitable[None] | None:
        """Handle one message. An exception is a failure, about which the parent decides."""

    def pre_start(self) -> Awaitable[None] | None:
        """Prepare; called before the first message."""
        return None

    def post_stop(self) -> Awaitable[None] | None:
        """Clean up; called after the last message, when all children have stopped."""
        return None

    def pre_restart(self, cause: BaseException) -> Awaitable[None] | None:
        """Clean up before this instance is replaced because of `cause`; by default as `post_stop`."""
        return self.post_stop()

    def post_restart(self, cause: BaseException) -> Awaitable[None] | None:
        """Prepare after the previous instance failed with `cause`; by default as `pre_start`."""
        return self.pre_start()


Factory: TypeAlias = "Callable[[], Receiver]"
"""Creates the instances of one actor; the result must be an `Actor`."""

Behaviour: TypeAlias = "Callable[[Message], Awaitable[None] | None]"
"""Handles messages instead of `receive`, after `Context.become`."""
