"""Dead letters: messages that could not be delivered, each with the reason.

Problem: `tell` gives no answer, so an undeliverable message would vanish without a trace; and an asker would
wait for its whole timeout although the outcome is known.

Design: every undelivered message passes through here once. It is counted by reason, kept among the most
recent, logged (the first of a reason, then the 10th, the 100th, …, so that a flood does not become a flood of
log lines) and sent to subscribers. If its sender waits for an answer, the ask fails immediately with the
error that corresponds to the reason.

Invariants:
1. Every undelivered message is counted exactly once.
2. A dead letter about a dead letter is counted, and goes no further.

Called by references, cells and the system.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from drivetrain.actor.actor_errors import (
    ActorStoppedError,
    AskError,
    MailboxFullError,
    UnhandledMessageError,
    UnreachableError,
)
from drivetrain.actor.kernel_messages import Failure
from drivetrain.actor.message import Message
from drivetrain.actor.path import ActorPath
from drivetrain.actor.reference import ActorRef

_log: Final = logging.getLogger("drivetrain.actor.dead_letters")

KEPT: Final = 100


class DeadLetterReason(Enum):
    """Why a message was not delivered."""

    STOPPED = "the actor has stopped"
    NO_ACTOR = "there is no such actor"
    MAILBOX_FULL = "the mailbox is full"
    UNHANDLED = "the actor does not handle it"
    LATE_REPLY = "nobody waits for this reply any more"
    STALE = "it is for another incarnation of the system"
    UNREACHABLE = "the actor's system cannot be reached"


_ERRORS: Final[Mapping[DeadLetterReason, tuple[type[AskError], str]]] = MappingProxyType(
    {
        DeadLetterReason.STOPPED: (ActorStoppedError, "look the actor up again, or watch it"),
        DeadLetterReason.NO_ACTOR: (ActorStoppedError, "look the actor up again, or watch it"),
        DeadLetterReason.MAILBOX_FULL: (MailboxFullError, "ask again later, or ask less often"),
        DeadLetterReason.UNHANDLED: (UnhandledMessageError, "check that the right actor was asked"),
        DeadLetterReason.STALE: (ActorStoppedError, "look the actor up again: its system was restarted"),
        DeadLetterReason.UNREACHABLE: (UnreachableError, "check that the other system runs, and ask again"),
    }
)
"""The error of an ask, by reason; a late reply belongs to no ask."""


class DeadLetter(Message, frozen=True, tag="dt.local.dead-letter"):
    """Sent to subscribers: `message` from `sender` to `recipient` was not delivered."""

    message: Message
    sender: ActorRef | None
    recipient: ActorPath
    reason: DeadLetterReason


class DeadLetters:
    """The dead letters of one system."""

    def __init__(self) -> None:
        self._counts: Final[dict[DeadLetterReason, int]] = dict.fromkeys(DeadLetterReason, 0)
        self._subscribers: Final[dict[ActorRef, None]] = {}
        self.recent: Final[deque[DeadLetter]] = deque(maxlen=KEPT)
        """The most recent ones, oldest first."""

    @property
    def counts(self) -> Mapping[DeadLetterReason, int]:
        """How many there were, by reason."""
        return MappingProxyType(self._counts)

    @property
    def total(self) -> int:
        """How many there were in all."""
        return sum(self._counts.values())

    def subscribe(self, subscriber: ActorRef) -> None:
        """Send every `DeadLetter` to `subscriber` until it unsubscribes or stops."""
        self._subscribers[subscriber] = None

    def unsubscribe(self, subscriber: ActorRef) -> None:
        """Send it no more."""
        self._subscribers.pop(subscriber, None)

    def put(
        self, message: Message, sender: ActorRef | None, recipient: ActorPath, reason: DeadLetterReason
    ) -> None:
        """Record an undelivered message; an asker gets its outcome."""
        self._counts[reason] += 1
        if isinstance(message, DeadLetter):
            if reason is DeadLetterReason.STOPPED:
                self._forget(recipient)
            return
        letter = DeadLetter(message, sender, recipient, reason)
        self.recent.append(letter)
        self._report(letter)
        for subscriber in list(self._subscribers):
            subscriber.tell(letter)
        if sender is not None and sender.expects_answer and reason in _ERRORS:
            error, remedy = _ERRORS[reason]
            sender.tell(
                Failure(error.code, f"the message was not delivered: {reason.value}", str(recipient), remedy)
            )

    def _forget(self, path: ActorPath) -> None:
        for subscriber in list(self._subscribers):
            if subscriber.path == path:
                self.unsubscribe(subscriber)

    def _report(self, letter: DeadLetter) -> None:
        count = self._counts[letter.reason]
        if count == 10 ** (len(str(count)) - 1):
            # Messages to an actor that has stopped are normal when a system ends.
            level = logging.INFO if letter.reason is DeadLetterReason.STOPPED else logging.WARNING
            _log.log(
                level,
                "%s was not delivered to %s: %s (number %d)",
                type(letter.message).__qualname__,
                letter.recipient,
                letter.reason.value,
                count,
            )
