"""Asks: a message, and exactly one outcome.

Problem: whoever asks must always come to know: the reply, or why there is none, within a stated time, and
never both, whatever is lost, late, doubled or dead.

Design: an ask has a reference of its own, `/asks/$n`, which is the sender of the message; what arrives there
first decides. A `Failure` decides too: it comes from the asked actor, or from the dead letters when the
message could not be delivered. The waiting is a delayed operation in the purgatory, watched under the ask's
uid: arrival completes it, its timeout expires it.

Invariants:
1. Every ask has exactly one outcome; what comes later is a dead letter (`LATE_REPLY`).
2. An ask whose outcome is known is not in the table of open asks any more.

Called by `ActorRef.ask` and by the system for what comes from others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.errors import (
    ActorFailedError,
    ActorStoppedError,
    AskError,
    AskTimeoutError,
    MailboxFullError,
    UnexpectedReplyError,
    UnhandledMessageError,
    UnreachableError,
)
from drivetrain.actor.messages import Failure, Message, require_message
from drivetrain.actor.path import ASKS, ActorPath, Address
from drivetrain.actor.provider import RemoteRef
from drivetrain.actor.reference import ActorRef
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from drivetrain.actor.system import ActorSystem

_ERRORS: Final[Mapping[str, type[AskError]]] = MappingProxyType(
    {
        error.code: error
        for error in (ActorStoppedError, MailboxFullError, UnhandledMessageError, UnreachableError)
    }
)


class PromiseRef(ActorRef):
    """The reference that stands for one ask; `future` gets the outcome."""

    __slots__ = ("_asks", "asked", "future", "uid")

    def __init__(self, asks: Asks, uid: int, asked: ActorRef) -> None:
        self._asks = asks
        self.uid = uid
        self.asked = asked
        self.future: asyncio.Future[Message] = asks.system.loop.create_future()

    @property
    def path(self) -> ActorPath:
        """The path that a reply goes to."""
        return ActorPath(self._asks.system.address, (ASKS, f"${self.uid}"), self.uid)

    @property
    def system(self) -> ActorSystem:
        """The asker's system."""
        return self._asks.system

    @property
    def expects_answer(self) -> bool:
        """Always."""
        return True

    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Decide the ask, if it is still open; see `ActorRef.tell`."""
        require_message(message)
        self._asks.decide(self, message, sender)

    def __hash__(self) -> int:
        return self.uid


class Asks:
    """The open asks of one system."""

    def __init__(self, system: ActorSystem) -> None:
        self.system: Final = system
        self._open: Final[dict[int, PromiseRef]] = {}

    @property
    def open(self) -> int:
        """How many asks wait for their outcome."""
        return len(self._open)

    def find(self, uid: int) -> PromiseRef | None:
        """Return the open ask with this uid."""
        return self._open.get(uid)

    async def ask(
        self, asked: ActorRef, message: Message, reply: type[Message] | None, timeout_ms: int
    ) -> Message:
        """Tell `message` to `asked` and wait for the outcome; see `ActorRef.ask`."""
        uid = self.system.next_uid()
        promise = self._open[uid] = PromiseRef(self, uid, asked)
        try:
            asked.tell(message, promise)
            timer = self.system.loop.call_later(timeout_ms / 1000, self._expire, promise, message, timeout_ms)
            try:
                answer = await promise.future
            finally:
                timer.cancel()
        finally:
            self._open.pop(uid, None)
        if reply is not None and not isinstance(answer, reply):
            raise UnexpectedReplyError(
                "the reply is of another type than expected",
                where=str(asked.path),
                expected=reply.__qualname__,
                got=repr(answer)[:200],
            )
        return answer

    def decide(self, promise: PromiseRef, message: Message, sender: ActorRef | None) -> None:
        """Give the ask its outcome; if it has one already, make a dead letter."""
        if self._open.pop(promise.uid, None) is None or promise.future.done():
            self.system.dead_letters.put(message, sender, promise.path, DeadLetterReason.LATE_REPLY)
        elif isinstance(message, Failure):
            promise.future.set_exception(_error_of(message, promise.asked))
        else:
            promise.future.set_result(message)

    def system_terminated(self, address: Address) -> None:
        """Fail the asks that wait for a system that was declared dead."""
        for promise in list(self._open.values()):
            if isinstance(promise.asked, RemoteRef) and promise.asked.path.address == address:
                promise.tell(Failure(UnreachableError.code, "the actor's system was declared dead"))

    def close(self) -> None:
        """Fail all open asks: the system ends."""
        for promise in list(self._open.values()):
            promise.tell(Failure(ActorStoppedError.code, "the actor system of the asker has terminated"))

    def check(self) -> None:
        """Verify invariant 2; raises `InternalError`."""
        for uid, promise in self._open.items():
            if promise.future.done() and not promise.future.cancelled():
                raise InternalError("ask invariant 2: a decided ask is still open", where=f"${uid}")

    def _expire(self, promise: PromiseRef, message: Message, timeout_ms: int) -> None:
        if self._open.pop(promise.uid, None) is not None and not promise.future.done():
            promise.future.set_exception(
                AskTimeoutError(
                    f"no reply to {type(message).__qualname__} within {timeout_ms} ms",
                    where=str(promise.asked.path),
                    remedy="the message may or may not have been handled: ask again only if that is harmless",
                )
            )


def _error_of(failure: Failure, asked: ActorRef) -> AskError:
    where = failure.where or str(asked.path)
    cls = _ERRORS.get(failure.code)
    if cls is not None:
        return cls(failure.what, where=where, remedy=failure.remedy)
    return ActorFailedError(failure.what, where=where, failure_code=failure.code, remedy=failure.remedy)
