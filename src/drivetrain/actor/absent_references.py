"""References of actors without a cell here: actors of other systems, and missing ones.

Design: a message to an actor elsewhere goes to the provider as an envelope, through the system that made
the reference; a message to a missing actor becomes a dead letter.

Called by the system, which makes them, and by asks and watches, which treat remote ones differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.message import require_message
from drivetrain.actor.path import ASKS
from drivetrain.actor.provider import Envelope
from drivetrain.actor.reference import ActorRef

if TYPE_CHECKING:
    from drivetrain.actor.message import Message
    from drivetrain.actor.path import ActorPath
    from drivetrain.actor.system_views import KernelView, SystemView


class RemoteRef(ActorRef):
    """The reference of an actor in another system; only `ActorSystem.reference` makes them."""

    __slots__ = ("_path", "_system")

    def __init__(self, system: KernelView, path: ActorPath) -> None:
        self._system = system
        self._path = path

    def __hash__(self) -> int:
        return self._path.uid

    @property
    def path(self) -> ActorPath:
        """The actor's path in its own system."""
        return self._path

    @property
    def system(self) -> KernelView:
        """The local system that sends for this reference."""
        return self._system

    @property
    def expects_answer(self) -> bool:
        """Whether this is an ask in the other system."""
        return self._path.names[:1] == (ASKS,)

    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Hand the message to the remote layer; see `ActorRef.tell`."""
        self._system.deliver_outbound(Envelope(self._path, message, None if sender is None else sender.path))


class MissingRef(ActorRef):
    """A reference to an actor of this system that does not exist, or no longer exists."""

    __slots__ = ("_path", "_system")

    def __init__(self, system: SystemView, path: ActorPath) -> None:
        self._system = system
        self._path = path

    @property
    def path(self) -> ActorPath:
        """The path, which no actor has."""
        return self._path

    @property
    def system(self) -> SystemView:
        """The system that the actor would live in."""
        return self._system

    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Make a dead letter of the message; see `ActorRef.tell`."""
        require_message(message)
        late = self._path.names[:1] == (ASKS,)
        reason = DeadLetterReason.LATE_REPLY if late else DeadLetterReason.NO_ACTOR
        self._system.dead_letters.put(message, sender, self._path, reason)
