"""Waiting for an actor's end from outside of any actor.

Design: a kernel actor that watches on behalf of a future, and ends with it.

Called by `ActorSystem.wait_stopped`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from drivetrain.actor.actor import Actor
from drivetrain.actor.actor_errors import StillRunningError, SystemStoppedError
from drivetrain.actor.kernel_messages import Terminated
from drivetrain.actor.message import Message
from drivetrain.actor.reference import ActorRef

if TYPE_CHECKING:
    from drivetrain.actor.system_views import KernelView


class TerminationWatcher(Actor):
    """Sets `future` to the `Terminated` of `actor`."""

    __slots__ = ("_actor", "_future")

    def __init__(self, actor: ActorRef, future: asyncio.Future[Terminated]) -> None:
        self._actor = actor
        self._future = future

    def pre_start(self) -> None:
        """Start watching."""
        self.context.watch(self._actor)

    def receive(self, message: Message) -> None:
        """Set the future."""
        if isinstance(message, Terminated):
            if not self._future.done():
                self._future.set_result(message)
            self.context.stop()
        else:
            self.context.unhandled(message)

    def post_stop(self) -> None:
        """Fail the future if it is still open."""
        if not self._future.done():
            self._future.set_exception(
                SystemStoppedError("the actor system ended first", where=str(self._actor.path))
            )


async def wait_stopped(system: KernelView, actor: ActorRef, timeout_ms: int | None) -> Terminated:
    """Wait, outside of any actor, until `actor` has terminated; see `ActorSystem.wait_stopped`."""
    future: asyncio.Future[Terminated] = system.loop.create_future()
    witness = system.spawn_kernel(lambda: TerminationWatcher(actor, future))
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await future
    except TimeoutError:
        raise StillRunningError(
            f"the actor has not stopped within {timeout_ms} ms", where=str(actor.path)
        ) from None
    finally:
        future.cancel()
        system.stop(witness)
