"""Turns: how a cell does one thing at a time.

Problem: messages, hooks, signals of the kernel and external events come in any order, and a handler may wait
for something; yet the actor must never do two things at once.

Design: a cell takes turns; the dispatcher calls `take_turn`. A turn does what the cell's phase needs
(`lifecycle` states the rules), then handles messages until there are none, the batch is over, the phase
changes, or a handler waits. A `Carrier` continues a waiting handler or hook; until it is done the
cell is not open, and its mailbox fills. Exceptions of handlers and first hooks go to the parent.

Invariants:
1. One thing at a time: between the call of a handler or hook and its end, no other of this cell begins.
2. Messages are handled in the order in which they were added; a failed one is not handled again.
3. An open cell with messages is scheduled or taking its turn.

Called by the dispatcher and, for the cells that it creates, by the system.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from drivetrain.actor.actor import Actor
from drivetrain.actor.actor_errors import ActorCancelledError, ActorStoppedError, AskError, ContextError
from drivetrain.actor.cell import RESTARTING, RUNNING, STARTING, STOPPED, STOPPING, Cell
from drivetrain.actor.context import Context
from drivetrain.actor.dispatch import BATCH
from drivetrain.actor.kernel_messages import Failure
from drivetrain.actor.lifecycle import enter, started
from drivetrain.actor.signals import SIGNALS
from drivetrain.actor.supervising import supervise
from drivetrain.actor.tree import forget_child
from drivetrain.actor.watch import notify_watchers
from drivetrain.errors import DrivetrainError

if TYPE_CHECKING:
    from drivetrain.actor.mailbox import Queue
    from drivetrain.actor.path import ActorPath

_log: Final = logging.getLogger("drivetrain.actor")

# What counts as a failure: also a cancellation that did not come from the kernel.
_FAILURES: Final = (Exception, asyncio.CancelledError)


class ActorCell(Cell):
    """A cell that runs an actor."""

    __slots__ = ()

    # ---- messages

    def take_turn(self) -> int:
        """Do the pending work, up to a batch of messages; return about how much was done."""
        self.scheduled = False
        if self.phase is not RUNNING:
            self._advance()
        if not (self.is_open and self.queue):
            return 1
        self.scheduled = True  # a message to itself needs no second place in the queue
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
                    self._run(result)
            except _FAILURES as error:
                self._fail(error)
        if self.work is None:
            self.message = self.sender = None
        if not queue and self.queue is queue:
            self.queue = None
            self.system.spare_queues.give_back(queue)
        return BATCH - left

    # ---- handlers and hooks that wait, or fail

    def _run(self, result: Awaitable[None] | None) -> bool:
        """Run the awaitable that a handler or hook returned; return False when it waits for something.

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

    def _work_done(self, error: BaseException | None) -> None:
        """Continue after a handler or hook that waited."""
        self.work = None
        if self.in_last_hook:
            if error is not None:
                _log.error("%s failed in its last hook", self.path, exc_info=error)
        elif error is not None:
            self._fail(error)
        elif not self.started:
            started(self)
        self.message = self.sender = None
        self.is_open = self.phase is RUNNING
        self.schedule()

    def _fail(self, error: BaseException) -> None:
        """Let the parent decide about a failure of a handler or first hook; an asker receives it."""
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
            sender.tell(_failure(error, str(self.path)))
        if not stopping:
            self.system.failures += 1
            supervise(self.parent, self, error, message)
        elif not isinstance(error, asyncio.CancelledError):
            _log.error(
                "%s failed while %s, handling %r", self.path, self.phase.value, message, exc_info=error
            )

    # ---- phases

    def _advance(self) -> None:
        """Perform the next steps of the phase, as far as possible now; runs user code."""
        if self.work is not None:
            return
        if self.phase is STARTING:
            self._start()
        elif self.phase is RESTARTING and not self.children:
            self._replace()
        elif self.phase is STOPPING and not self.children:
            self._finish()

    def _start(self) -> None:
        self.in_last_hook = self.wants_interrupt = False
        try:
            actor = self.actor = self.factory()
            if not isinstance(actor, Actor):
                raise ContextError(
                    "the factory did not make an actor",
                    where=str(self.path),
                    expected="an instance of a class derived from drivetrain.actor.Actor",
                    got=repr(actor)[:200],
                )
            actor.context = Context(self)
            cause = self.restart_cause
            if self._run(actor.pre_start() if cause is None else actor.post_restart(cause)):
                started(self)
        except _FAILURES as error:
            self._fail(error)

    def _replace(self) -> None:
        actor, cause = self.actor, self.restart_cause
        if self.started and actor is not None and cause is not None:
            self.started = False
            if not self._run_last_hook(lambda: actor.pre_restart(cause)):
                return
        if self.restart_timer is not None or self.phase is not RESTARTING:
            return
        self.actor = self.behaviour = None
        enter(self, STARTING)
        self._start()

    def _finish(self) -> None:
        actor = self.actor
        if self.started and actor is not None:
            self.started = False
            if not self._run_last_hook(actor.post_stop):
                return
        enter(self, STOPPED)
        self.actor = self.behaviour = self.supervisor = self.restart_cause = None
        notify_watchers(self)
        if self.parent is None:
            self.system.begin_to_close()
        else:
            forget_child(self.parent, self)

    def _run_last_hook(self, hook: Callable[[], Awaitable[None] | None]) -> bool:
        """Run `pre_restart` or `post_stop`; return False when it waits for something."""
        self.in_last_hook = True
        try:
            return self._run(hook())
        except _FAILURES:
            _log.exception("%s failed in its last hook; it continues %s", self.path, self.phase.value)
            return True


def _failure(error: BaseException, where: str) -> Failure:
    """The answer to an asker about `error`."""
    # The code of an `AskError` is not passed on: the asker would take the failure of an inner ask for that of
    # its own.
    if isinstance(error, DrivetrainError) and not isinstance(error, AskError):
        return Failure(error.code, error.what, where, error.remedy)
    if isinstance(error, asyncio.CancelledError):
        return Failure(ActorStoppedError.code, "the actor stopped while it handled the message", where)
    what = error.what if isinstance(error, DrivetrainError) else error
    return Failure("actor-failed", f"{type(error).__qualname__}: {what}", where)


async def _await(result: object, path: ActorPath) -> None:
    if not isinstance(result, Awaitable):
        raise TypeError(f"{path}: a handler must return None or a coroutine, not {type(result).__qualname__}")
    await result
