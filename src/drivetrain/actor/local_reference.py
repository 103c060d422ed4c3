"""References of this system's own actors: `LocalRef` for those it has or had, `MissingRef` for strangers.

Called by cells, which make one `LocalRef` each, and by `ActorSystem.reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.message import Message, require_message
from drivetrain.actor.path import ASKS
from drivetrain.actor.reference import ActorRef

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.path import ActorPath
    from drivetrain.actor.system_views import KernelView, SystemView


class LocalRef(ActorRef):
    """The one reference of a cell, also after it has stopped."""

    __slots__ = ("_path", "cell")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self._path: ActorPath | None = None

    @property
    def path(self) -> ActorPath:
        """The actor's path; the address in it is final once a provider is attached."""
        path = self._path
        if path is None or path.address is not self.cell.system.address:
            path = self._path = self.cell.path
        return path

    @property
    def system(self) -> KernelView:
        """The system that the actor lives in."""
        return self.cell.system

    # The hot path of the whole kernel: no call that can be avoided.
    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        """Put the message into the mailbox; see `ActorRef.tell`."""
        if not isinstance(message, Message):
            require_message(message)  # type: ignore[unreachable]  # callers need not be type-checked
        cell = self.cell
        queue = cell.queue
        if queue is None:
            queue = cell.borrow_queue()
        if len(queue) >= cell.limit:
            cell.refuse(message, sender)
            return
        queue.append(message if sender is None else (message, sender))
        if cell.is_open and not cell.scheduled:
            cell.schedule()

    def __hash__(self) -> int:
        return self.cell.uid


class MissingRef(ActorRef):
    """A reference to an actor of this system that does not exist, or no longer."""

    __slots__ = ("_path", "_system")

    def __init__(self, system: SystemView, path: ActorPath) -> None:
        self._system = system
        self._path = path

    @property
    def path(self) -> ActorPath:
        """The path that nobody has."""
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
