"""Blocking functions, off the event loop.

Problem: a function that waits for a disk or a driver on the loop would stop every actor of the process.

Design: a pool of threads per system, created on first use. The loop's own `run_in_executor` does the work, so
that the simulator can run the functions on virtual time.

Called by `Context.blocking` and `ActorSystem.run_blocking`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from drivetrain.actor.actor_errors import SystemStoppedError

T = TypeVar("T")


class BlockingPool:
    """At most `threads` threads; further calls wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop: Final = loop
        self._threads: Final = threads
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run `function` in a thread; raises `SystemStoppedError` after `close`."""
        if self._is_closed:
            raise SystemStoppedError("the threads for blocking functions have ended")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="actor-blocking")
        return self._loop.run_in_executor(self._pool, function)

    def close(self) -> None:
        """Start no further calls; calls that wait for a thread are cancelled, running ones may finish."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """After `close`, in a thread other than the loop's: wait until the running calls have finished."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
