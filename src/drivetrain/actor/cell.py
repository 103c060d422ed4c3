"""Cells: the kernel's side of one actor.

Problem: a hundred thousand idle actors must fit into 200 MiB, and a message must cost about a microsecond,
while every rule of the life cycle, supervision, watching and stashing holds.

Design: a `Cell` is one object with slots; what most actors do not use (children, queue, stash, timers,
watches) is None until it is. A cell takes turns: the dispatcher calls `take_turn`, which does what the
phase needs (`lifecycle.advance`), then handles messages until there are none, the batch is over, the
phase changes, or a handler waits. A handler that waits is carried on by a `Carrier`; until it is done the
cell is not open, and its mailbox fills.

Invariants:
1. One thing at a time: between the call of a handler or hook and its end, no other of this cell begins.
2. Messages are handled in the order in which they were put in; a failed one is not handled again.
3. An open cell with messages is scheduled or taking its turn.
4. Children and parent agree: `parent.children[name] is child` until the child has stopped.

and those of `lifecycle`, `mailbox`, `timers` and `watch`; `invariants` checks all.

Called by references, the dispatcher and the modules named above.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from drivetrain.actor import lifecycle
from drivetrain.actor.actor_errors import ActorCancelledError, ActorStoppedError, AskError, ContextError
from drivetrain.actor.context import Context
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.dispatch import BATCH
from drivetrain.actor.kernel_messages import Failure, Message, Terminated
from drivetrain.actor.lifecycle import FAILURES, RUNNING, STARTING, STOPPED, STOPPING, Phase
from drivetrain.actor.local_reference import LocalRef
from drivetrain.actor.mailbox import Queue, Signal, split_entry
from drivetrain.actor.path import ActorPath
from drivetrain.actor.signals import SIGNALS
from drivetrain.actor.supervising import supervise
from drivetrain.actor.timers import Timers
from drivetrain.core.liveness.supervision import ChildName
from drivetrain.errors import DrivetrainError

if TYPE_CHECKING:
    from drivetrain.actor.actor import Actor
    from drivetrain.actor.carrier import Carrier
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system import ActorSystem
    from drivetrain.core.liveness.supervision import Supervisor

_log: Final = logging.getLogger("drivetrain.actor")

Factory = Callable[[], "Actor"]
Behaviour = Callable[[Message], "Awaitable[None] | None"]


class Cell:
    """One actor: its place in the tree, its phase, its mailbox and its present instance."""

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
        self, system: ActorSystem, parent: Cell | None, name: str, uid: int, factory: Factory, capacity: int
    ) -> None:
        self.system = system
        self.parent = parent
        self.name = name
        self.uid = uid
        self.factory = factory
        self.ref = LocalRef(self)
        # The life
        self.phase = Phase.STARTING
        self.actor: Actor | None = None
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
        # The present
        self.is_open = False
        self.scheduled = False
        self.message: Message | None = None
        self.sender: ActorRef | None = None
        self.work: Carrier | None = None
        # What few actors have
        self.children: dict[str, Cell] | None = None
        self.supervisor: Supervisor | None = None
        self.timers: Timers | None = None
        self.pipes: dict[asyncio.Future[Any], None] | None = None
        self.watching: dict[ActorRef, None] | None = None
        self.watchers: dict[ActorRef, None] | None = None

    # ---- what it is

    @property
    def path(self) -> ActorPath:
        """The path with the system's present address."""
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
        """Return the queue of a cell that has none; a stopped one has no room in it."""
        queue = self.system.spare_queues.borrow()
        if not self.is_ending:
            self.queue = queue
        return queue

    def refuse(self, message: Message, sender: ActorRef | None) -> None:
        """Make a dead letter of a message for which there is no room."""
        reason = DeadLetterReason.STOPPED if self.is_ending else DeadLetterReason.MAILBOX_FULL
        self.system.dead_letters.put(message, sender, self.ref.path, reason)

    def put_signal(self, signal: Signal) -> None:
        """Put in what the kernel says, whether there is room or not; nothing if it is stopping."""
        if self.is_ending:
            return
        if self.queue is None:
            self.borrow_queue()
        assert self.queue is not None
        self.queue.append(signal)
        if self.is_open:
            self.schedule()

    def stash(self) -> None:
        """Keep the message in hand for later."""
        message, sender = self.message, self.sender
        if message is None:
            raise ContextError("only a message in hand can be stashed, and only once", where=str(self.path))
        self.message = self.sender = None
        if isinstance(message, Terminated):
            # Its watch is open again until it is handed over for good.
            self.watching = self.watching or {}
            self.watching[message.actor] = None
        if self.stashed is None:
            self.stashed = self.system.spare_queues.borrow()
        self.stashed.append(message if sender is None else (message, sender))
        self.limit = self.capacity - len(self.stashed)

    def unstash(self) -> None:
        """Put what was stashed before what waits, in the order in which it came."""
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
        """Refuse what comes from now on, and make dead letters of what is there."""
        self.unstash()
        self.limit = 0
        queue, self.queue = self.queue, None
        for entry in queue or ():
            message, sender = split_entry(entry)
            if message is not None:
                self.system.dead_letters.put(message, sender, self.ref.path, DeadLetterReason.STOPPED)

    # ---- turns

    def give_context(self, actor: Actor) -> None:
        """Connect an instance with this cell."""
        actor.context = Context(self)

    def schedule(self) -> None:
        """See to it that a turn comes."""
        if not self.scheduled:
            self.scheduled = True
            self.system.dispatcher.enqueue(self)

    def take_turn(self) -> int:
        """Do what there is to do, up to a batch of messages; return about how much that was."""
        self.scheduled = False
        if self.phase is not RUNNING:
            lifecycle.advance(self)
        if not (self.is_open and self.queue):
            return 1
        self.scheduled = True  # a message to itself needs no second place in the line
        used = self._handle_batch(self.queue)
        self.scheduled = False
        if self.phase is not RUNNING or (self.is_open and self.queue):
            self.schedule()
        return used

    def _handle_batch(self, queue: Queue) -> int:
        actor = self.actor
        assert actor is not None
        left = BATCH
        while queue and left and self.is_open:
            left -= 1
            entry = queue.popleft()
            message: Any  # a message, or a signal that becomes one or nothing
            if entry.__class__ is tuple:
                message, self.sender = entry
            else:
                message = entry
                self.sender = None
            try:
                take = SIGNALS.get(message.__class__)
                if take is not None:
                    message = take(self, message)
                    if message is None:
                        continue
                self.message = message
                behaviour = self.behaviour
                result = actor.receive(message) if behaviour is None else behaviour(message)
                if result is not None:
                    self.run(result)
            except FAILURES as error:
                self.fail(error)
        if self.work is None:
            self.message = self.sender = None
        if not queue and self.queue is queue:
            self.queue = None
            self.system.spare_queues.give_back(queue)
        return BATCH - left

    def run(self, result: Awaitable[None] | None) -> bool:
        """Carry out what a handler or hook returned; return False when it waits for something.

        Raises what the coroutine raises before it waits.
        """
        if result is None:
            return True
        coroutine = result if isinstance(result, CoroutineType) else _await(result, self.path)
        work = self.work = self.system.carriers.step(coroutine, self._work_done)
        if work is None:
            return True
        self.is_open = False
        if self.wants_interrupt and not self.in_last_hook:
            work.cancel()
        return False

    def interrupt(self) -> None:
        """Cancel the handler or first hook in hand; the last hooks are left to finish."""
        if self.in_last_hook:
            return
        if self.work is not None:
            self.work.cancel()
        else:
            self.wants_interrupt = True

    def _work_done(self, error: BaseException | None) -> None:
        """Go on after a handler or hook that waited."""
        self.work = None
        if self.in_last_hook:
            if error is not None:
                _log.error("%s failed in its last hook", self.path, exc_info=error)
        elif error is not None:
            self.fail(error)
        elif not self.started:
            lifecycle.started(self)
        self.message = self.sender = None
        self.is_open = self.phase is RUNNING
        self.schedule()

    def fail(self, error: BaseException) -> None:
        """Let the parent decide about a failure of a handler or first hook; an asker is told."""
        sender, message = self.sender, self.message
        self.message = self.sender = None
        stopping = not self.is_active
        if isinstance(error, asyncio.CancelledError) and not stopping:
            cause, error = (
                error,
                ActorCancelledError(
                    "what the actor waited for was cancelled by someone else", where=str(self.path)
                ),
            )
            error.__cause__ = cause
        if sender is not None and sender.expects_answer:
            sender.tell(self._failure(error))
        if not stopping:
            self.system.failures += 1
            supervise(self.parent, self, error, message)
        elif not isinstance(error, asyncio.CancelledError):
            _log.error(
                "%s failed while %s, handling %r", self.path, self.phase.value, message, exc_info=error
            )

    def _failure(self, error: BaseException) -> Failure:
        # The code of an ask that failed inside the actor would look like the outcome of the one outside.
        if isinstance(error, DrivetrainError) and not isinstance(error, AskError):
            return Failure(error.code, error.what, str(self.path), error.remedy)
        if isinstance(error, asyncio.CancelledError):
            return Failure(
                ActorStoppedError.code, "the actor stopped while it handled the message", str(self.path)
            )
        what = error.what if isinstance(error, DrivetrainError) else error
        return Failure("actor-failed", f"{type(error).__qualname__}: {what}", str(self.path))

    # ---- the family

    def child_stopped(self, child: Cell) -> None:
        """Forget a child; its name is free again."""
        assert self.children is not None
        del self.children[child.name]
        if self.supervisor is not None:
            self.supervisor.forget(ChildName(child.name))
        if not self.children:
            self.children = None
            if not self.is_active:
                self.schedule()


async def _await(result: object, path: ActorPath) -> None:
    if not isinstance(result, Awaitable):
        raise TypeError(f"{path}: a handler must return None or a coroutine, not {type(result).__qualname__}")
    await result
