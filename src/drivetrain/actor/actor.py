"""Actors: what a user writes.

Problem: state that several activities share needs locks, and locks go wrong.

Design: an `Actor` owns its state and handles one message at a time; others reach it only by its reference.
A subclass writes `receive` and, if it likes, hooks. Each of them may be a plain function or a coroutine
function; while a coroutine waits, the actor handles nothing else.

Called by the kernel only: user code never calls the methods of another actor.

>>> from drivetrain.actor import Actor, Message
>>> class Add(Message, frozen=True):
...     amount: int
>>> class Counter(Actor):
...     def __init__(self) -> None:
...         self.total = 0
...     def receive(self, message: Message) -> None:
...         match message:
...             case Add(amount):
...                 self.total += amount
...             case _:
...                 self.context.unhandled(message)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from drivetrain.core.liveness.supervision import SupervisionPolicy

if TYPE_CHECKING:
    from drivetrain.actor.context import Context
    from drivetrain.actor.kernel_messages import Message


class Actor(ABC):
    """The base of all actors.

    `context` is there from `pre_start` on, not yet in `__init__`. `supervision` says what happens when a
    child fails: by default it restarts, and stops when it fails more than ten times within a minute.
    """

    __slots__ = ("context",)

    context: Context
    supervision: SupervisionPolicy = SupervisionPolicy()

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
