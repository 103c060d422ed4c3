"""The context of an actor: everything that it can do.

Design: a view of the actor's cell with only what user code may use. Only its own actor may use it, from its
handlers and hooks, in the thread of the event loop (blocking functions return their result instead of sending
it).

Called by actors.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from drivetrain.actor import lifecycle
from drivetrain.actor.actor_errors import ActorCancelledError, ContextError, DeathPactError
from drivetrain.actor.cell import LocalRef
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.mailbox import FailureSignal
from drivetrain.actor.message import Message
from drivetrain.actor.timers import Timers
from drivetrain.actor.tree import start_child
from drivetrain.actor.watch import unwatch, watch

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.receiver import Behaviour, Factory
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system_views import SystemView

T = TypeVar("T")
P = ParamSpec("P")


class Context:
    """The surroundings of one actor instance."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    # ---- identity

    @property
    def me(self) -> ActorRef:
        """The actor's own reference, to hand to others."""
        return self._cell.ref

    @property
    def system(self) -> SystemView:
        """The actor's system."""
        return self._cell.system

    @property
    def parent(self) -> ActorRef:
        """The actor that started it."""
        parent = self._cell.parent
        return self._cell.ref if parent is None else parent.ref

    @property
    def children(self) -> list[ActorRef]:
        """Its children, in the order in which they were started; those that are stopping included."""
        return [child.ref for child in (self._cell.children or {}).values()]

    def child(self, name: str) -> ActorRef | None:
        """The child with this name, None when there is none."""
        child = (self._cell.children or {}).get(name)
        return None if child is None else child.ref

    # ---- the current message

    @property
    def sender(self) -> ActorRef | None:
        """The sender of the current message, for answers; None outside of `receive`, and without a sender."""
        return self._cell.sender

    def reply(self, message: Message) -> None:
        """Answer the sender; raises `ContextError` when the message has none."""
        sender = self._cell.sender
        if sender is None:
            raise ContextError(
                "the message has no sender to reply to",
                where=str(self._cell.path),
                got=repr(self._cell.message)[:200],
                remedy="let the sender use ask, or tell(..., sender=...); or look at context.sender first",
            )
        sender.tell(message, self._cell.ref)

    def forward(self, recipient: ActorRef) -> None:
        """Pass the current message on to `recipient`, which answers the original sender."""
        message = self._cell.message
        if message is None:
            raise ContextError("there is no current message to forward", where=str(self._cell.path))
        recipient.tell(message, self._cell.sender)

    def unhandled(self, message: Message) -> None:
        """Report that this actor does not handle `message`: it becomes a dead letter.

        A `Terminated` raises `DeathPactError` instead: a watcher that does not handle it fails.
        """
        cell = self._cell
        if isinstance(message, Terminated):
            raise DeathPactError(
                f"{message.actor.path} has terminated and its watcher does not handle that",
                where=str(cell.path),
                remedy="handle Terminated in receive, or do not watch",
            )
        cell.system.dead_letters.put(message, cell.sender, cell.ref.path, DeadLetterReason.UNHANDLED)

    def stash(self) -> None:
        """Keep the current message until `unstash_all`; it counts against the mailbox's capacity."""
        self._cell.stash()

    def unstash_all(self) -> None:
        """Handle all stashed messages next, in the order of arrival."""
        self._cell.unstash()

    def become(self, behaviour: Behaviour | None) -> None:
        """Handle messages with `behaviour` from the next one on; None returns to `receive`."""
        self._cell.behaviour = behaviour

    # ---- the family

    def spawn(
        self, factory: Factory, name: str | None = None, *, mailbox_capacity: int | None = None
    ) -> ActorRef:
        """Start a child made by `factory` and return its reference immediately.

        `factory` is called again at each restart; a class whose `__init__` needs no arguments is enough.
        Raises `NameTakenError`, `InvalidPathError`, and `ContextError` while this actor stops or restarts.
        """
        return start_child(self._cell, factory, name, mailbox_capacity).ref

    def stop(self, child: ActorRef | None = None) -> None:
        """Stop a child, or this actor itself after the current message; waiting messages become dead letters.

        A child that waits in a handler is cancelled there. Raises `ContextError` for an actor that is not its
        child.
        """
        cell = self._cell
        if child is None:
            lifecycle.stop(cell, interrupt=False)
        elif isinstance(child, LocalRef) and child.cell.parent is cell:
            lifecycle.stop(child.cell, interrupt=True)
        else:
            raise ContextError(
                "an actor can stop only itself and its children",
                where=str(cell.path),
                got=str(child.path),
                remedy="send it a PoisonPill",
            )

    # ---- others

    def watch(self, other: ActorRef) -> None:
        """Receive `Terminated(other)` once when it terminates, or now if it has; may be repeated."""
        watch(self._cell, other)

    def unwatch(self, other: ActorRef) -> None:
        """No longer receive `Terminated(other)`, even if it is waiting already."""
        unwatch(self._cell, other)

    # ---- time and other work

    @property
    def timers(self) -> Timers:
        """Delayed messages to itself."""
        cell = self._cell
        timers = cell.timers
        if timers is None:
            timers = cell.timers = Timers(cell, cell.system.loop, cell.system.async_context)
        return timers

    async def blocking(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a thread and wait for its result; other actors continue meanwhile.

        The function must not touch the actor or the system. If the actor is stopped meanwhile, the
        function runs to its end and its result is dropped.
        """
        call = functools.partial(function, *args, **kwargs)
        return await self._cell.system.run_blocking(call)

    def pipe_to_self(
        self,
        awaitable: Awaitable[T],
        success: Callable[[T], Message],
        failure: Callable[[Exception], Message],
    ) -> None:
        """Run `awaitable` concurrently; its outcome arrives as the message that these functions make of it.

        Unlike `await`, this lets the actor handle other messages meanwhile. It is cancelled when the
        actor stops or restarts.
        """
        cell = self._cell
        if not cell.is_active:
            raise ContextError("an actor that stops or restarts cannot begin work", where=str(cell.path))
        task = asyncio.ensure_future(_outcome(awaitable, success, failure), loop=cell.system.loop)
        if cell.pipes is None:
            cell.pipes = {}
        cell.pipes[task] = None
        task.add_done_callback(functools.partial(_piped, cell, failure))


async def _outcome(
    awaitable: Awaitable[T], success: Callable[[T], Message], failure: Callable[[Exception], Message]
) -> Message:
    try:
        value = await awaitable
    except Exception as error:  # noqa: BLE001 - the actor gets it as a message
        return failure(error)
    return success(value)


def _piped(cell: Cell, failure: Callable[[Exception], Message], task: asyncio.Future[Message]) -> None:
    if cell.pipes is None or task not in cell.pipes:
        return  # the actor has stopped or restarted since
    del cell.pipes[task]
    try:
        if task.cancelled():
            message = failure(ActorCancelledError("what was piped was cancelled", where=str(cell.path)))
        else:
            message = task.result()
        cell.ref.tell(message)
    except Exception as error:  # noqa: BLE001 - the actor fails with it in its next turn
        cell.put_signal(FailureSignal(error))
