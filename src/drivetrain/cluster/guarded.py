"""Actors that keep running whatever message another process sends.

Problem. Masters, workers, application masters and executors hold state that must survive any message: a term,
running processes, a running application. A message that is wrong in an unforeseen way (a field out of range,
no sender, an answer too large to send) raises somewhere in its handler; if the actor failed with it, one peer
could end a term, or a worker with all its processes.

Design. `GuardedActor.receive` is the boundary. An exception ends the handling of that one message: the actor
logs it with the sender, counts it, and answers the asker with a failure; `recovered` then repairs what the
handler left half done. An error that is raised on purpose describes what is wrong with the message. Any
other exception, including `InternalError`, is a defect of Drivetrain that the message revealed: it is
logged with its traceback and counted separately. `ends_with` decides which exceptions pass the boundary
nevertheless.

Invariants:
1. Only an exception that `ends_with` lets through makes a guarded actor fail. No message from outside does
   that, except in actors that another process replaces when they fail (masters let an `InternalError`
   through).
2. Every asker gets an answer, even when the intended one cannot be sent.
3. The same error is logged at its 1st, 2nd, 4th, 8th occurrence and so on, not more often.

Called by the actors of masters, workers and executors, which derive from it, and by application masters.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

from drivetrain.actor import Actor, ActorRef, AskError, Failure, Message, MessageRefusedError
from drivetrain.actor.message import LOCAL_TAG
from drivetrain.errors import DrivetrainError, InternalError

log: Final = logging.getLogger("drivetrain.cluster")

_SHOWN_CHARACTERS: Final = 200
_MOST_KINDS: Final = 200


class ErrorCounts:
    """Counts errors by kind, and logs each kind ever more rarely; `defects` counts Drivetrain's own."""

    def __init__(self) -> None:
        self.total = 0
        self.defects = 0
        self._by_kind: Final[dict[str, int]] = {}

    def note(self, kind: str, error: Exception, sender: ActorRef | None = None) -> bool:
        """Count one more error of a kind; returns whether it was logged.

        `kind` must come from the program, not from the message.
        """
        is_ours = is_defect(error)
        self.total += 1
        self.defects += is_ours
        kind = f"{kind}: {type(error).__name__}"
        if kind not in self._by_kind and len(self._by_kind) >= _MOST_KINDS:
            kind = "more"
        count = self._by_kind[kind] = self._by_kind.get(kind, 0) + 1
        if count & (count - 1) != 0:
            return False
        shown = str(error)[:_SHOWN_CHARACTERS].replace("\n", " ")
        origin = "" if sender is None else f", from {str(sender.path)[:_SHOWN_CHARACTERS]}"
        if is_ours:
            # Not `exc_info`: the text of an error may be as long as the message that caused it.
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s: %s%s (%d times so far)\n%s", kind, shown, origin, count, frames)
        else:
            log.warning("%s: %s%s (%d times so far)", kind, shown, origin, count)
        return True


def is_defect(error: Exception) -> bool:
    """Whether an exception in a message's handler is a defect of Drivetrain, not a fault of the message."""
    return not isinstance(error, DrivetrainError) or isinstance(error, InternalError)


def is_own(message: Message) -> bool:
    """Whether a message never leaves its process, so that no other process can have sent it."""
    return str(type(message).__struct_config__.tag).startswith(LOCAL_TAG)


class GuardedActor(Actor):
    """An actor that survives exceptions of its handlers; subclasses define `act` in place of `receive`."""

    _mishaps: ErrorCounts | None = None

    @property
    def mishaps(self) -> ErrorCounts:
        """Counts of the messages that this actor refused because handling them raised."""
        if self._mishaps is None:
            self._mishaps = ErrorCounts()
        return self._mishaps

    def receive(self, message: Message) -> Awaitable[None] | None:
        """Have `act` handle one message."""
        try:
            waiting = self.act(message)
        except Exception as error:
            if self.ends_with(message, error):
                raise
            self._mishandled(message, error)
            return None
        return None if waiting is None else self._finish(message, waiting)

    async def _finish(self, message: Message, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except Exception as error:
            if self.ends_with(message, error):
                raise
            self._mishandled(message, error)

    def act(self, message: Message) -> Awaitable[None] | None:
        """Handle one message."""
        raise NotImplementedError

    def asker_of(self, message: Message) -> ActorRef | None:
        """The actor that waits for the answer: by default the sender."""
        return self.context.sender

    def ends_with(self, message: Message, error: Exception) -> bool:
        """Whether the actor fails with an exception from its handler; by default with a broken invariant."""
        return isinstance(error, InternalError)

    def recovered(self) -> None:
        """Repair what a handler that raised has left half done; does nothing by default."""

    def _mishandled(self, message: Message, error: Exception) -> None:
        kind = f"{type(self).__name__} could not handle {type(message).__name__}"
        self.mishaps.note(kind, error, self.context.sender)
        refuse(self.context.me, self.asker_of(message), error)
        attempt(f"{type(self).__name__} could not recover", self.mishaps, self.recovered)


def failure_of(error: Exception, where: str) -> Failure:
    """The answer to an asker whose request raised `error`."""
    if isinstance(error, DrivetrainError) and not isinstance(error, AskError):
        return Failure(error.code, error.what, where, error.remedy)
    return Failure("actor-failed", f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS], where)


def refuse(me: ActorRef, asker: ActorRef | None, error: Exception) -> None:
    """Answer the asker of `me`, if there is one, that handling its message raised."""
    if asker is not None and asker.expects_answer:
        asker.tell(failure_of(error, str(me.path)))


def answer(asker: ActorRef, message: Message, sender: ActorRef | None = None) -> None:
    """Answer `asker`, or send it the error when the answer is too large for a message."""
    try:
        asker.tell(message, sender)
    except MessageRefusedError as error:
        log.warning("an answer to %s was not sent: %s", asker.path, error.what)
        asker.tell(failure_of(error, str(asker.path)), sender)


def attempt(kind: str, mishaps: ErrorCounts, action: Callable[[], None]) -> None:
    """Do one of several things; log its exception, so that the others still happen."""
    try:
        action()
    except InternalError:
        raise
    except Exception as error:  # noqa: BLE001 - as in `GuardedActor.receive`
        mishaps.note(kind, error)
