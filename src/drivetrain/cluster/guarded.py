"""Actors that no message from outside can fail.

Problem. Masters and workers hold what must survive any message: a term, running processes. A message that is
wrong in a way nobody thought of (a field out of range, no sender, an answer too large to send) raises
somewhere in its handler; if the actor failed with it, one client could end a term, or a worker with all that
runs there.

Design. `GuardedActor.receive` is the boundary. What the handling of one message raises is the end of that
message: it is logged, counted, and answered to whoever asked; `recovered` then puts right what the handler
left half done. An `InternalError` passes: an invariant of a core is broken, and going on could do harm.

Invariants:
1. Only an `InternalError` makes a guarded actor fail.
2. Whoever asked gets an answer, also when the proper one cannot be sent.
3. The same error is logged when it comes for the 1st, 2nd, 4th, 8th time and so on, not more often.

Called by the actors of masters, workers and executors, which derive from it, and by application masters.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from drivetrain.actor import Actor, ActorRef, AskError, Failure, Message, MessageRefusedError
from drivetrain.errors import DrivetrainError, InternalError

log: Final = logging.getLogger("drivetrain.cluster")

_SHOWN_CHARACTERS: Final = 200
_MOST_KINDS: Final = 200


class Mishaps:
    """Counts what went wrong, by kind, and logs it ever more rarely."""

    def __init__(self) -> None:
        self.total = 0
        self._by_kind: Final[dict[str, int]] = {}

    def note(self, kind: str, error: Exception) -> None:
        """One more of a kind; `kind` is taken from the program, not from the message."""
        self.total += 1
        if kind not in self._by_kind and len(self._by_kind) >= _MOST_KINDS:
            kind = "more"
        count = self._by_kind[kind] = self._by_kind.get(kind, 0) + 1
        if count & (count - 1) == 0:
            told = str(error)[:_SHOWN_CHARACTERS].replace("\n", " ")
            log.warning("%s: %s: %s (%d times so far)", kind, type(error).__name__, told, count)
            log.debug("%s", kind, exc_info=error)


class GuardedActor(Actor):
    """An actor that goes on whatever a message does; subclasses write `act` in place of `receive`."""

    _mishaps: Mishaps | None = None

    @property
    def mishaps(self) -> Mishaps:
        """What this actor refused because handling it raised."""
        if self._mishaps is None:
            self._mishaps = Mishaps()
        return self._mishaps

    def receive(self, message: Message) -> Awaitable[None] | None:
        """Have `act` handle one message."""
        try:
            waiting = self.act(message)
        except InternalError:
            raise
        except Exception as error:  # noqa: BLE001 - this is the boundary, see the module
            self._mishandled(message, error)
            return None
        return None if waiting is None else self._finish(message, waiting)

    async def _finish(self, message: Message, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except InternalError:
            raise
        except Exception as error:  # noqa: BLE001 - this is the boundary, see the module
            self._mishandled(message, error)

    def act(self, message: Message) -> Awaitable[None] | None:
        """Handle one message."""
        raise NotImplementedError

    def asker_of(self, message: Message) -> ActorRef | None:
        """Who waits for the answer to a message: its sender, unless it carries another."""
        return self.context.sender

    def recovered(self) -> None:
        """Put right what a handler that raised has left half done; nothing by default."""

    def _mishandled(self, message: Message, error: Exception) -> None:
        kind = f"{type(self).__name__} could not handle {type(message).__name__}"
        self.mishaps.note(kind, error)
        refuse(self.context.me, self.asker_of(message), error)
        attempt(f"{type(self).__name__} could not recover", self.mishaps, self.recovered)


def failure_of(error: Exception, where: str) -> Failure:
    """What an asker is answered in place of what raised `error`."""
    if isinstance(error, DrivetrainError) and not isinstance(error, AskError):
        return Failure(error.code, error.what, where, error.remedy)
    return Failure("actor-failed", f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS], where)


def refuse(me: ActorRef, asker: ActorRef | None, error: Exception) -> None:
    """Answer whoever asked `me`, if anybody did, that handling the message raised."""
    if asker is not None and asker.expects_answer:
        asker.tell(failure_of(error, str(me.path)))


def answer(asker: ActorRef, message: Message, sender: ActorRef | None = None) -> None:
    """Answer `asker`; with an error that says so when the answer cannot be sent, being too large for one."""
    try:
        asker.tell(message, sender)
    except MessageRefusedError as error:
        log.warning("an answer to %s was not sent: %s", asker.path, error.what)
        asker.tell(failure_of(error, str(asker.path)), sender)


def attempt(kind: str, mishaps: Mishaps, action: Callable[[], None]) -> None:
    """Do one of several things, so that the others do not suffer when it raises."""
    try:
        action()
    except InternalError:
        raise
    except Exception as error:  # noqa: BLE001 - as in `GuardedActor.receive`
        mishaps.note(kind, error)
