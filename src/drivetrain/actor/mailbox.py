"""Mailboxes: the messages that wait for an actor, and what happens when a mailbox is full.

Problem: a sender that is faster than its receiver must not fill the memory; nor may the sender be blocked,
because it may be the very actor that the receiver waits for.

Policy: a mailbox has a capacity (`actor.mailbox-capacity`, or the one given to `spawn`). When it is full,
the *newest* message is refused: it becomes a dead letter, and if it is an ask, the asker gets
`MailboxFullError` at once. `tell` neither waits nor raises. Stashed messages count against the capacity.
The kernel's own signals always fit: `Terminated`, at most one per watched actor; a timer's, at most one
per timer; a failure's, at most one per piped piece of work.

Design: a mailbox is a deque of entries; an idle actor has none, and borrows a deque from a pool when needed.
An entry is the message itself, or (message, sender) when there is a sender: fewer objects, and the common
case is cheap.

Invariants (per cell; `invariants` checks them):
1. A cell that is stopping or stopped has no entries.
2. Ordinary entries, waiting and stashed, are at most the capacity, plus the current one when stashed.
3. Entries of one sender leave in the order of arrival, stashed ones before later ones.

Called by cells and references.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.message import Message
from drivetrain.actor.timers import TimerSignal

if TYPE_CHECKING:
    from drivetrain.actor.reference import ActorRef

MAX_SPARE: Final = 1024


class FailureSignal:
    """The entry for a failure outside of the actor's messages: of an awaitable that it piped to itself."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


Signal: TypeAlias = "Terminated | TimerSignal | FailureSignal"
Entry: TypeAlias = "Message | TimerSignal | FailureSignal | tuple[Message, ActorRef]"
Queue: TypeAlias = "deque[Entry]"

KERNEL_ENTRIES: Final = (Terminated, TimerSignal, FailureSignal)


class SpareQueues:
    """Empty deques for cells that get their first message after a pause."""

    __slots__ = ("_spare",)

    def __init__(self) -> None:
        self._spare: list[Queue] = []

    def borrow(self) -> Queue:
        """Return an empty deque."""
        return self._spare.pop() if self._spare else deque()

    def give_back(self, queue: Queue) -> None:
        """Take an empty deque back."""
        if len(self._spare) < MAX_SPARE:
            self._spare.append(queue)


def split_entry(entry: Entry) -> tuple[Message | None, ActorRef | None]:
    """Return the message, None for a signal of the kernel, and the sender of an entry."""
    if isinstance(entry, tuple):
        return entry
    return (None if isinstance(entry, KERNEL_ENTRIES) else entry), None
