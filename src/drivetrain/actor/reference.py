"""References: the only way to reach an actor.

Problem: code must not depend on where an actor is, and must never touch the actor's object.

Design: an `ActorRef` has a path and `tell` and `ask`. There are four kinds: of a living or dead cell of
this system (`LocalRef` in `cell`), of an actor elsewhere and of one of this system that no longer exists
(`RemoteRef` and `MissingRef` in `absent_references`), and of an ask that waits for its reply (`PromiseRef` in
`ask`).
References are values: equal when their paths, with uid and incarnation, are equal. In a message they
travel as the text of their path.

Invariants:
1. A reference means one actor for ever.
2. `tell` never blocks. It raises only for the sender's own mistakes: the object is not a message, or
   cannot leave the process.

Called by everyone.
Source: Akka's actor references.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from drivetrain.actor.message import Message
    from drivetrain.actor.path import ActorPath

R = TypeVar("R", bound="Message")


class Asker(Protocol):
    """The part of a system that references use."""

    async def ask(
        self,
        asked: ActorRef,
        message: Message,
        reply: type[Message] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> Message:
        """Send `message` to `asked` and wait for the answer; see `ActorRef.ask`."""


class ActorRef(ABC):
    """The reference of one actor; equal references mean the same actor."""

    __slots__ = ()

    @property
    @abstractmethod
    def path(self) -> ActorPath:
        """The actor's path, with its uid and its system's address."""

    @property
    @abstractmethod
    def system(self) -> Asker:
        """The local system through which this reference sends."""

    @property
    def expects_answer(self) -> bool:
        """Whether this is the reference of an ask that waits, so that failures must be sent to it."""
        return False

    @abstractmethod
    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Send `message` without waiting; at most once, in order per sender and receiver.

        `sender` receives the answer, if any. An undeliverable message becomes a dead letter. Raises
        `NotAMessageError`, or `MessageRefusedError` when it cannot leave this process.
        """

    @overload
    async def ask(self, message: Message, *, timeout_ms: int | None = None) -> Message: ...

    @overload
    async def ask(self, message: Message, reply: type[R], *, timeout_ms: int | None = None) -> R: ...

    async def ask(
        self, message: Message, reply: type[Message] | None = None, *, timeout_ms: int | None = None
    ) -> Message:
        """Send `message` and wait for the answer, which must be an instance of `reply` if given.

        `timeout_ms` None means `actor.ask.timeout`. Every other outcome is an `AskError`: the
        subclasses distinguish a timeout from a stopped, full, failed or unreachable actor.
        """
        return await self.system.ask(self, message, reply, timeout_ms=timeout_ms)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self.path == other.path if isinstance(other, ActorRef) else NotImplemented

    def __hash__(self) -> int:
        return self.path.uid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(f"{self!r} cannot be pickled: send it in a message, or use str(ref.path)")
