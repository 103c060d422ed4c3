"""Actors: what a user writes.

Problem: state that several activities share needs locks, and locks go wrong.

Design: an `Actor` owns its state and handles one message at a time; others reach it only by its reference.
A subclass defines `receive` and, optionally, hooks. Each of them may be a plain function or a coroutine
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

from typing import TYPE_CHECKING

from drivetrain.actor.receiver import Receiver

if TYPE_CHECKING:
    from drivetrain.actor.context import Context


class Actor(Receiver):
    """The base of all actors: `receive` and the hooks of `Receiver`, and a `context`.

    `context` is available from `pre_start` on, not yet in `__init__`. `supervision` decides what happens when
    a child fails: by default it restarts, and stops when it fails more than ten times within a minute.
    """

    __slots__ = ("context",)

    context: Context
