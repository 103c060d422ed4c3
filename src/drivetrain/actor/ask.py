"""Asks: a message, and exactly one outcome.

Problem: every asker must learn, within a stated time, either the reply or the reason why there is none, and
never both, whatever is lost, late, duplicated or dead.

Design: an ask has a reference of its own, `/asks/$n`, which is the sender of the message; the first message
that arrives there decides. A `Failure` decides too: it comes from the asked actor, or from the dead letters
when the message could not be delivered. The wait is a delayed operation in the system's purgatory, watched
under its uid: arrival completes it, its timeout expires it.

Invariants:
1. Every ask has exactly one outcome; later arrivals are dead letters (`LATE_REPLY`).
2. An ask whose outcome is known is no longer in the table of open asks.

Called by `ActorRef.ask` and by the system for arrivals from other systems.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain.actor.absent_references import RemoteRef
from drivetrain.actor.actor_errors import (
    ActorFailedError,
    ActorStoppedError,
    AskError,
    AskTimeoutError,
    MailboxFullError,
    UnexpectedReplyError,
    UnhandledMessageError,
    UnreachableError,
)
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.kernel_messages import Failure
from drivetrain.actor.message import Message, require_message
from drivetrain.actor.path import ASKS, ActorPath, Address
from drivetrain.actor.purgatory import ThreadSafePurgatory
from drivetrain.actor.reference import ActorRef
from drivetrain.core.waiting.waiting_operations import DelayedOperation
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from drivetrain.actor.system_views import KernelView

_ERRORS: Final[Mapping[str, type[AskError]]] = MappingProxyType(
    {
        error.code: error
        for error in (ActorStoppedError, MailboxFullError, UnhandledMessageError, UnreachableError)
    }
)


class AskOperation(DelayedOperation):
    """The wait for one outcome; `future` receives it."""

    __slots__ = ("_asks", "asked", "future", "key", "message_type", "outcome", "promise")

    def __init__(self, asks: Asks, uid: int, asked: ActorRef, message: Message, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self._asks = asks
        self.asked = asked
        self.message_type = type(message)
        self.key = (ASKS, uid)
        self.promise = PromiseRef(asks, uid, self)
        self.outcome: Message | None = None
        self.future: asyncio.Future[Message] = asks.system.loop.create_future()

    def try_complete(self) -> bool:
        """Complete when the outcome is there."""
        return self.outcome is not None and self.force_complete()

    def on_complete(self) -> None:
        """Pass the outcome to the asker, unless it is gone; without an outcome the ask has timed out."""
        self._asks.forget(self)
        outcome, future = self.outcome, self.future
        if future.done():
            return
        if outcome is None:
            future.set_exception(self._timeout())
        elif isinstance(outcome, Failure):
            future.set_exception(_error_of(outcome, self.asked))
        else:
            future.set_result(outcome)

    def _timeout(self) -> AskTimeoutError:
        return AskTimeoutError(
            f"no reply to {self.message_type.__qualname__} within {self.delay_ms} ms",
            where=str(self.asked.path),
            remedy="the message may or may not have been handled: ask again only if that is harmless",
        )


class PromiseRef(ActorRef):
    """The reference that stands for one ask."""

    __slots__ = ("_asks", "operation", "uid")

    def __init__(self, asks: Asks, uid: int, operation: AskOperation) -> None:
        self._asks = asks
        self.uid = uid
        self.operation = operation

    @property
    def path(self) -> ActorPath:
        """The path to which a reply goes."""
        return ActorPath(self._asks.system.address, (ASKS, f"${self.uid}"), self.uid)

    @property
    def system(self) -> KernelView:
        """The asker's system."""
        return self._asks.system

    @property
    def expects_answer(self) -> bool:
        """True."""
        return True

    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Decide the ask, if it is still open; see `ActorRef.tell`."""
        require_message(message)
        self._asks.decide(self.operation, message, sender)

    def __hash__(self) -> int:
        return self.uid


class Asks:
    """The open asks of one system; they wait in `purgatory`."""

    def __init__(self, system: KernelView, purgatory: ThreadSafePurgatory[DelayedOperation]) -> None:
        self.system: Final = system
        self._purgatory: Final = purgatory
        self._open: Final[dict[int, AskOperation]] = {}

    @property
    def open(self) -> int:
        """How many asks wait for their outcome."""
        return len(self._open)

    def find(self, uid: int) -> PromiseRef | None:
        """Return the reference of the open ask with this uid."""
        operation = self._open.get(uid)
        return None if operation is None else operation.promise

    async def ask(
        self, asked: ActorRef, message: Message, reply: type[Message] | None, timeout_ms: int
    ) -> Message:
        """Send `message` to `asked` and wait for the outcome; see `ActorRef.ask`."""
        uid = self.system.next_uid()
        operation = self._open[uid] = AskOperation(self, uid, asked, message, timeout_ms)
        try:
            asked.tell(message, operation.promise)
            self._purgatory.try_complete_else_watch(operation, (operation.key,))
            answer = await operation.future
        except BaseException:
            # The message could not be sent, or the asker was cancelled: nothing waits for it any more.
            if operation.force_complete():
                self._purgatory.check_and_complete(operation.key)
            raise
        if reply is not None and not isinstance(answer, reply):
            raise UnexpectedReplyError(
                "the reply has an unexpected type",
                where=str(asked.path),
                expected=reply.__qualname__,
                got=repr(answer)[:200],
            )
        return answer

    def decide(self, operation: AskOperation, message: Message, sender: ActorRef | None) -> None:
        """Give the ask its outcome; if it has one already, make a dead letter."""
        if operation.outcome is not None or operation.completed:
            self.system.dead_letters.put(message, sender, operation.promise.path, DeadLetterReason.LATE_REPLY)
        else:
            operation.outcome = message
            self._purgatory.check_and_complete(operation.key)

    def forget(self, operation: AskOperation) -> None:
        """Remove a completed ask from the table."""
        del self._open[operation.promise.uid]

    def system_terminated(self, address: Address) -> None:
        """Fail the asks that wait for a system that was declared dead."""
        for operation in list(self._open.values()):
            if isinstance(operation.asked, RemoteRef) and operation.asked.path.address == address:
                operation.promise.tell(Failure(UnreachableError.code, "the actor's system was declared dead"))

    def close(self) -> None:
        """Fail all open asks: the system ends."""
        for operation in list(self._open.values()):
            operation.promise.tell(
                Failure(ActorStoppedError.code, "the actor system of the asker has terminated")
            )

    def check(self) -> None:
        """Verify invariant 2; raises `InternalError`."""
        for uid, operation in self._open.items():
            if operation.completed or (operation.outcome is not None and operation.future.done()):
                raise InternalError("ask invariant 2: a decided ask is still open", where=f"${uid}")


def _error_of(failure: Failure, asked: ActorRef) -> AskError:
    where = failure.where or str(asked.path)
    cls = _ERRORS.get(failure.code)
    if cls is not None:
        return cls(failure.what, where=where, remedy=failure.remedy)
    return ActorFailedError(failure.what, where=where, failure_code=failure.code, remedy=failure.remedy)
