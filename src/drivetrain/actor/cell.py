"""Cells: the kernel's side of one actor.

Problem: a hundred thousand idle actors must fit into 200 MiB, and a message must cost about a microsecond,
while all rules of the life cycle, supervision, watching and stashing hold.

Design: a `Cell` is one object with slots; what most actors do not use (children, queue, stash, timers,
watches) is None until it is needed. This module has the data of a cell: its place in the tree, its phase, its
mailbox, the state of the modules that manage each; and its reference, which adds messages. `turns` handles
one message after another: every cell is an `ActorCell`, but most modules need only this class.

Invariants:
1. Children and parents agree: `parent.children[name] is child` until the child has stopped.

and those of `turns`, `lifecycle`, `mailbox`, `timers` and `watch`; `invariants` checks all.

Called by references, and by the modules named above.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from drivetrain.actor.actor_errors import ContextError
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.mailbox import Queue, Signal, split_entry
from drivetrain.actor.message import Message, require_message
from drivetrain.actor.path import ActorPath
from drivetrain.actor.reference import ActorRef

if TYPE_CHECKING:
    import asyncio

    from drivetrain.actor.carrier import Carrier
    from drivetrain.actor.receiver import Behaviour, Factory, Receiver
    from drivetrain.actor.system_views import KernelView
    from drivetrain.actor.timers import Timers
    from drivetrain.core.liveness.supervision import Supervisor


class Phase(Enum):
    """The phases of an actor's life."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


STARTING: Final = Phase.STARTING
RUNNING: Final = Phase.RUNNING
RESTARTING: Final = Phase.RESTARTING
STOPPING: Final = Phase.STOPPING
STOPPED: Final = Phase.STOPPED


class Cell(ABC):
    """One actor: its place in the tree, its phase, its mailbox and its current instance."""

    __slots__ = (
        "actor",
        "behaviour",
        "capacity",
        "children",
        "factory",
        "in_last_hook",
        "is_open",
        "limit",
        "message",
        "name",
        "parent",
        "phase",
        "pipes",
        "queue",
        "ref",
        "restart_cause",
        "restart_timer",
        "scheduled",
        "sender",
        "started",
        "stashed",
        "supervisor",
        "system",
        "timers",
        "uid",
        "wants_interrupt",
        "watchers",
        "watching",
        "work",
    )

    def __init__(
        self, system: KernelView, parent: Cell | None, name: str, uid: int, factory: Factory, capacity: int
    ) -> None:
        self.system = system
        self.parent = parent
        self.name = name
        self.uid = uid
        self.factory = factory
        self.ref = LocalRef(self)
        # The life
        self.phase = STARTING
        self.actor: Receiver | None = None
        self.behaviour: Behaviour | None = None
        self.started = False  # the first hook of this instance has succeeded
        self.in_last_hook = False
        self.wants_interrupt = False
        self.restart_cause: BaseException | None = None
        self.restart_timer: asyncio.TimerHandle | None = None
        # The mailbox
        self.capacity = capacity
        self.limit = capacity
        self.queue: Queue | None = None
        self.stashed: Queue | None = None
        # The current instance
        self.is_open = False
        self.scheduled = False
        self.message: Message | None = None
        self.sender: ActorRef | None = None
        self.work: Carrier | None = None
        # What few actors use
        self.children: dict[str, Cell] | None = None
        self.supervisor: Supervisor | None = None
        self.timers: Timers | None = None
        self.pipes: dict[asyncio.Future[Any], None] | None = None
        self.watching: dict[ActorRef, None] | None = None
        self.watchers: dict[ActorRef, None] | None = None

    # ---- identity and phase

    @property
    def path(self) -> ActorPath:
        """The path with the system's current address."""
        names: list[str] = []
        cell: Cell = self
        while cell.parent is not None:
            names.append(cell.name)
            cell = cell.parent
        return ActorPath(self.system.address, tuple(reversed(names)), self.uid)

    @property
    def is_guardian(self) -> bool:
        """Whether it belongs to the system itself: the root, or one of its children."""
        return self.parent is None or self.parent.parent is None

    @property
    def is_active(self) -> bool:
        """Whether it starts or runs, rather than restarts, stops or is gone."""
        return self.phase is RUNNING or self.phase is STARTING

    @property
    def is_ending(self) -> bool:
        """Whether it stops or has stopped."""
        return self.phase is STOPPING or self.phase is STOPPED

    @property
    def is_stopped(self) -> bool:
        """Whether it has stopped."""
        return self.phase is STOPPED

    # ---- the mailbox

    def borrow_queue(self) -> Queue:
        """Return a new queue for a cell without one; that of a stopped cell takes nothing."""
        queue = self.system.spare_queues.borrow()
        if not self.is_ending:
            self.queue = queue
        return queue

    def refuse(self, message: Message, sender: ActorRef | None) -> None:
        """Make a dead letter of a message that does not fit into the mailbox."""
        reason = DeadLetterReason.STOPPED if self.is_ending else DeadLetterReason.MAILBOX_FULL
        self.system.dead_letters.put(message, sender, self.ref.path, reason)

    def put_signal(self, signal: Signal) -> None:
        """Add a signal of the kernel, even if the mailbox is full; ignored if the cell is stopping."""
        if self.is_ending:
            return
        if self.queue is None:
            self.borrow_queue()
        assert self.queue is not None
        self.queue.append(signal)
        if self.is_open:
            self.schedule()

    def stash(self) -> None:
        """Keep the current message for later."""
        message, sender = self.message, self.sender
        if message is None:
            raise ContextError("only the current message can be stashed, and only once", where=str(self.path))
        self.message = self.sender = None
        if isinstance(message, Terminated):
            # Its watch stays open until the message is finally handled.
            self.watching = self.watching or {}
            self.watching[message.actor] = None
        if self.stashed is None:
            self.stashed = self.system.spare_queues.borrow()
        self.stashed.append(message if sender is None else (message, sender))
        self.limit = self.capacity - len(self.stashed)

    def unstash(self) -> None:
        """Put stashed messages before waiting ones, in the order of arrival."""
        stashed, self.stashed = self.stashed, None
        if stashed is None:
            return
        self.limit = self.capacity
        if self.queue is None:
            self.queue = stashed
        else:
            # The same queue: a turn may be taking messages from it at this moment.
            self.queue.extendleft(reversed(stashed))
            stashed.clear()
            self.system.spare_queues.give_back(stashed)
        if self.is_open:
            self.schedule()

    def close_mailbox(self) -> None:
        """Refuse further messages, and make dead letters of the waiting ones."""
        self.unstash()
        self.limit = 0
        queue, self.queue = self.queue, None
        for entry in queue or ():
            message, sender = split_entry(entry)
            if message is not None:
                self.system.dead_letters.put(message, sender, self.ref.path, DeadLetterReason.STOPPED)

    # ---- turns

    def schedule(self) -> None:
        """Schedule a turn."""
        if not self.scheduled:
            self.scheduled = True
            self.system.dispatcher.enqueue(self)

    @abstractmethod
    def take_turn(self) -> int:
        """Do the pending work, up to a batch of messages; return about how much was done."""

    def interrupt(self) -> None:
        """Cancel the running handler or first hook; last hooks may finish."""
        if self.in_last_hook:
            return
        if self.work is not None:
            self.work.cancel()
        else:
            self.wants_interrupt = True


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
        """The system of the actor."""
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
