"""An actor system in a thread of its own, for a process whose work is in other threads.

Problem: an embedded run polls queries in one thread, Spark calls back in others, and the protocols (clock,
flow) are actors, which need an event loop.

Design: one thread runs an event loop with one `ActorSystem`. Other threads send messages to actors with
`tell`, and wait for answers with `ask`, which blocks.

Invariants:

1. After `close` the system has terminated, the thread has ended, and so has every blocking function that an
   actor had begun: code that then uses the same files has them alone.
2. The caller's thread only waits.

Called by `embedded`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message, SystemStoppedError
from drivetrain.config import Config

T = TypeVar("T")
R = TypeVar("R", bound=Message)

_END_S: Final = 15.0
_WHENEVER_MS: Final = 24 * 3_600_000


class ActorThread:
    """The actor system `name`, running until `close`."""

    def __init__(self, name: str, config: Config) -> None:
        self._loop: Final = asyncio.new_event_loop()
        self._border: Final = threading.Lock()
        self._is_closed = False
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

        async def make() -> ActorSystem:
            return ActorSystem(name, config=config)

        self.system: Final[ActorSystem] = self.call(make())

    def spawn(self, factory: Callable[[], Actor], name: str) -> ActorRef:
        """Start a top-level actor."""

        async def spawn() -> ActorRef:
            return self.system.spawn(factory, name)

        return self.call(spawn())

    def tell(self, actor: ActorRef, message: Message) -> None:
        """Send a message to an actor; returns at once. Nothing happens once the system is being closed."""
        with self._border:
            if not self._is_closed:
                self.system.tell_threadsafe(actor, message)

    def ask(self, actor: ActorRef, message: Message, reply: type[R], *, timeout_ms: int) -> R:
        """Ask an actor and wait for its answer; raises what `ActorRef.ask` raises."""
        return self.call(actor.ask(message, reply, timeout_ms=timeout_ms))

    def begin(self, actor: ActorRef, message: Message, reply: type[R]) -> Future[R]:
        """Ask an actor without waiting; returns a future of the answer.

        Raises SystemStoppedError once the system is being closed.
        """
        return self._submit(actor.ask(message, reply, timeout_ms=_WHENEVER_MS))

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it, from another thread than the loop's.

        Raises SystemStoppedError once the system is being closed.
        """
        future = self._submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._border:
            if self._is_closed:
                coroutine.close()
                raise SystemStoppedError("the actor system has terminated", where=self.system.name)
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Stop all actors, then the thread; may be called again."""
        with self._border:
            if self._is_closed:
                return
            # Calls that other threads began are on the loop by now, and are answered before the system ends.
            self._is_closed = True
            ended = asyncio.run_coroutine_threadsafe(self.system.terminate(), self._loop)
        try:
            ended.result()
        finally:
            self.system.join_blocking()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_S)
            if not self._thread.is_alive():
                self._loop.close()
