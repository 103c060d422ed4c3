"""The purgatory in a running program: for any thread, with a reaper on an event loop.

Problem. The pure purgatory (`core.waiting.waiting_operations`) knows neither threads nor time. Conditions
become true on the event loop, in Spark's callback threads, in blocking user code; timeouts must take effect
even if no thread calls.

Design. `ThreadSafePurgatory` gives the core a lock, locks for its operations, and the time. Operations' own
code never runs under the purgatory's lock. `Reaper` moves the clock: at the latest every `interval_ms`
while anything is on the timer, and earlier when the timer's next bucket expires earlier, so that timeouts
are as precise as the tick, not as the interval. With an empty timer it sleeps. A thread that adds an
operation due before the reaper's next round wakes it; all others cost the reaper nothing.

Invariants:

1. While a reaper runs and the timer holds anything, its next round is at most `interval_ms` away, and no
   later than the expiration of any operation on the timer (but for the loop's own delays).
2. Exceptions of operations at their expiry reach the loop's exception handler; the reaper continues.

Called by actor systems and by code that waits for a condition with a timeout.
Source: Apache Kafka's DelayedOperationPurgatory and its ExpiredOperationReaper.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextvars import Context
from math import inf
from types import TracebackType
from typing import Any, Final, Generic

from drivetrain.core.waiting.waiting_operations import OperationT, Purgatory
from drivetrain.errors import ConfigError, InternalError

DEFAULT_INTERVAL_MS: Final = 200

_NS_PER_MS: Final = 1_000_000
_ROUNDING_MS: Final = 1e-3  # a loop's time is a float: 1.2 s may be a hair less than 1200 ms


def monotonic_ms() -> int:
    """Return the time of the machine's monotonic clock in ms."""
    return time.monotonic_ns() // _NS_PER_MS


def loop_clock(loop: asyncio.AbstractEventLoop) -> Callable[[], int]:
    """Return a clock that reads the time of `loop` in ms, virtual time included."""
    return lambda: int(loop.time() * 1_000 + _ROUNDING_MS)


class ThreadSafePurgatory(Generic[OperationT]):
    """A purgatory that any number of threads may use at once.

    `now_ms` reads the time in ms and must be safe to call from all of them; the rest is as in
    `core.waiting.waiting_operations.Purgatory`. `advance` must be called regularly: by a `Reaper`, or by a
    thread of the caller's.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] = monotonic_ms,
        tick_ms: int = 1,
        wheel_size: int = 20,
        purge_limit: int = 1000,
    ) -> None:
        self._now_ms = now_ms
        self._core: Purgatory[OperationT] = Purgatory(
            tick_ms=tick_ms,
            wheel_size=wheel_size,
            start_ms=now_ms(),
            purge_limit=purge_limit,
            guard=threading.Lock(),
            # Reentrant: an operation that completes may check a key that it is watched under itself.
            new_lock=threading.RLock,
        )
        # Before this time an expiration requires waking the reaper. A plain attribute: a stale value costs
        # one needless call, because it is lowered only by a thread that also calls, raised only by the
        # reaper.
        self._round_at_ms: float = -inf
        self._wake: Callable[[], None] = _nobody_to_wake

    @property
    def watched(self) -> int:
        """The number of watch entries: an operation counts once per key, stale ones included."""
        return self._core.watched

    @property
    def delayed(self) -> int:
        """The number of operations on the timer."""
        return self._core.delayed

    @property
    def next_expiration_ms(self) -> int | None:
        """The time before which `advance` has nothing to expire, or None if nothing is on the timer."""
        return self._core.next_expiration_ms

    def now_ms(self) -> int:
        """Return the purgatory's time in ms."""
        return self._now_ms()

    def try_complete_else_watch(self, operation: OperationT, keys: Sequence[Hashable]) -> bool:
        """Complete `operation` now if its condition holds, else watch it under `keys` until it expires.

        Returns whether this call's attempts completed it. Raises as the core does.
        """
        if self._core.try_complete_else_watch(operation, keys, self._now_ms()):
            return True
        expiration_ms = operation.expiration_ms
        if expiration_ms < self._round_at_ms and operation.pending:
            self._round_at_ms = expiration_ms
            self._wake()
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Try every operation watched under `key`; return how many this call completed.

        Call it after the change, without holding locks that operations take. Raises an
        `ExceptionGroup` of the operations' exceptions, after all have been tried.
        """
        return self._core.check_and_complete(key)

    def cancel_for_key(self, key: Hashable) -> list[OperationT]:
        """Stop watching `key` and return its incomplete operations, not completed, off the timer."""
        return self._core.cancel_for_key(key)

    def cancel_all(self) -> list[OperationT]:
        """Do `cancel_for_key` for every key: for the end, when the caller completes what is left."""
        return self._core.cancel_all()

    def advance(self) -> int:
        """Expire what is due by now and purge if there is much to purge; return how many expired.

        Raises an `ExceptionGroup` of the operations' exceptions, after all of this was done.
        """
        return self._core.advance(self._now_ms())

    def check(self) -> None:
        """Verify the core's invariants at a quiet moment; raise `InternalError` naming the first broken."""
        self._core.check()


class Reaper:
    """Expires a purgatory's operations on an event loop.

    `interval_ms` (at least 1) is the longest time between two rounds while anything waits. Rounds run in
    `context`, None meaning that of `start`. Operations' code runs on the loop: it must not block.
    Start and stop it on the loop, or use it with `async with`.
    """

    def __init__(
        self,
        purgatory: ThreadSafePurgatory[Any],
        *,
        interval_ms: int = DEFAULT_INTERVAL_MS,
        loop: asyncio.AbstractEventLoop | None = None,
        context: Context | None = None,
    ) -> None:
        if interval_ms < 1:
            raise ConfigError(
                "the reaper cannot be built", where="interval_ms", expected="at least 1", got=str(interval_ms)
            )
        self._purgatory = purgatory
        self._interval_ms = interval_ms
        self._loop = loop
        self._context = context
        self._handle: asyncio.TimerHandle | None = None
        self._thread: int | None = None

    async def __aenter__(self) -> Reaper:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._thread is not None

    def start(self) -> None:
        """Start; call it on the loop. Raises `InternalError` if the purgatory has a reaper already."""
        if self._purgatory._wake is not _nobody_to_wake:
            raise InternalError("a purgatory can have only one reaper")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._purgatory._wake = self._wake
        self._arm()

    def stop(self) -> None:
        """Stop; call it on the loop. Waiting operations stay and no longer expire."""
        if self._thread is None:
            return
        self._thread = None
        self._purgatory._wake = _nobody_to_wake
        self._purgatory._round_at_ms = -inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wake(self) -> None:
        """Reschedule the next round, from any thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        if threading.get_ident() == thread:
            self._arm()
        else:
            loop.call_soon_threadsafe(self._arm, context=self._context)

    def _arm(self) -> None:
        """Schedule the next round."""
        loop, purgatory = self._loop, self._purgatory
        if loop is None or self._thread is None:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        # First, so that an operation added from now on wakes us; only then look at the existing ones.
        purgatory._round_at_ms = inf
        next_ms = purgatory.next_expiration_ms
        if next_ms is None:
            return
        now_ms = purgatory.now_ms()
        wait_ms = max(0, min(next_ms - now_ms, self._interval_ms))
        purgatory._round_at_ms = now_ms + wait_ms
        self._handle = loop.call_later(wait_ms / 1_000, self._round, context=self._context)

    def _round(self) -> None:
        self._handle = None
        try:
            self._purgatory.advance()
        except ExceptionGroup as errors:
            loop = self._loop or asyncio.get_running_loop()
            loop.call_exception_handler(
                {"message": "delayed operations raised when they expired", "exception": errors}
            )
        finally:
            self._arm()


def _nobody_to_wake() -> None:
    return
