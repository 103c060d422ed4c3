"""Calls of an asynchronous function for the messages of an Arrow batch, many at a time.

Problem: a request to a service takes milliseconds in which Python only waits. One after the other, a thousand
requests take seconds; all at once, they overwhelm the service.

Design: there is one worker for each call that may run at a time, and each takes one message after another.
They run in an event loop that the process keeps, so the function's sessions and connection pools live as long
as the process. A call that fails or takes too long is repeated after a growing wait. Results are found by the
message's position, so their order is that of the messages, whichever call ends first. A batch is complete
only when all calls have ended, so it would not be faster without the order. Equal messages share a call if
results are cached.

Invariants:

1. Not more than `concurrency` calls run at a time.
2. Every message has one outcome, unless a failure ends the batch: then at least one message has `FailedCall`.

Called by `python_stage` in Spark's workers.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from drivetrain.api.durations import duration_text
from drivetrain.api.operations import AsyncCalls

CACHED: Final = 10_000
"""How many results of a processor a process keeps at most."""
MOST_CACHES: Final = 16
"""For how many processors a process keeps results: the results of processors that have ended make room."""

Function = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True)
class FailedCall:
    """A call that has failed for good, with the error of its last attempt."""

    error: Exception


class ResultCache:
    """Results by the key of a message, each for a limited time; the oldest makes room for a new one."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_s: Final = keep_ms / 1000
        self._results: Final[dict[Any, tuple[float, Any]]] = {}

    def __len__(self) -> int:
        return len(self._results)

    def get(self, key: Any, now_s: float) -> tuple[Any] | None:
        """The result for a key, in a tuple; None if there is no recent enough one."""
        known = self._results.get(key)
        return (known[1],) if known is not None and now_s < known[0] else None

    def put(self, key: Any, result: Any, now_s: float) -> None:
        """Keep a result from now on."""
        self._results.pop(key, None)
        self._results[key] = (now_s + self._keep_s, result)
        if len(self._results) > CACHED:
            del self._results[next(iter(self._results))]


_loops: Final[dict[int, asyncio.AbstractEventLoop]] = {}
"""The event loop of this process: a forked one needs its own."""
_caches: Final[dict[str, ResultCache]] = {}
"""The results of each processor in this process, by `AsyncCalls.cache`; the one used last comes last."""


def call_all(fn: Function, messages: list[Any], calls: AsyncCalls, *, stops: bool) -> dict[int, Any]:
    """The result or `FailedCall` for each message, by its position; with `stops` the first failure ends
    it."""
    return _loop().run_until_complete(_Batch(fn, messages, calls, _cache(calls), stops=stops).outcomes())


def _cache(calls: AsyncCalls) -> ResultCache | None:
    if calls.cache_ms is None:
        return None
    cache = _caches.pop(calls.cache) if calls.cache in _caches else ResultCache(calls.cache_ms)
    _caches[calls.cache] = cache
    if len(_caches) > MOST_CACHES:
        del _caches[next(iter(_caches))]
    return cache


def _loop() -> asyncio.AbstractEventLoop:
    loop = _loops.get(os.getpid())
    if loop is None or loop.is_closed():
        loop = _loops[os.getpid()] = asyncio.new_event_loop()
    return loop


class _StoppedError(Exception):
    """Ends all calls of a batch."""


class _Batch:
    """The calls for the messages of one batch."""

    def __init__(
        self,
        fn: Function,
        messages: list[Any],
        calls: AsyncCalls,
        cache: ResultCache | None,
        *,
        stops: bool,
    ) -> None:
        self._fn: Final = fn
        self._messages: Final = messages
        self._calls: Final = calls
        self._cache: Final = cache
        self._stops: Final = stops
        self._outcomes: Final[dict[int, Any]] = {}

    async def outcomes(self) -> dict[int, Any]:
        """The result or `FailedCall` for each message, by its position."""
        alone = [(None, [at]) for at in range(len(self._messages))]
        groups = alone if self._cache is None else list(self._not_cached(self._cache))
        remaining = iter(groups)
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self._calls.concurrency, len(groups))):
                    workers.create_task(self._work(remaining))
        except* _StoppedError:
            pass  # the failure is among the outcomes
        return self._outcomes

    def _not_cached(self, cache: ResultCache) -> Iterator[tuple[Any, list[int]]]:
        """The positions of equal messages without a cached result, with their key; all others get the
        cached result."""
        places: dict[Any, list[int]] = {}
        for at, message in enumerate(self._messages):
            key = _key(message)
            if key is None:
                yield None, [at]
            else:
                places.setdefault(key, []).append(at)
        for key, equal in places.items():
            known = cache.get(key, time.monotonic())
            if known is None:
                yield key, equal
            else:
                self._outcomes.update(dict.fromkeys(equal, known[0]))

    async def _work(self, remaining: Iterator[tuple[Any, list[int]]]) -> None:
        for key, equal in remaining:
            outcome = await self._outcome(self._messages[equal[0]])
            self._outcomes.update(dict.fromkeys(equal, outcome))
            if isinstance(outcome, FailedCall):
                if self._stops:
                    raise _StoppedError
            elif self._cache is not None and key is not None:
                self._cache.put(key, outcome, time.monotonic())

    async def _outcome(self, message: Any) -> Any:
        """The result of a call, or `FailedCall` after the last attempt."""
        calls, attempt = self._calls, 0
        while True:
            limit = asyncio.timeout(calls.timeout_ms / 1000)
            try:
                async with limit:
                    return await self._fn(message)
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                failure: Exception = RuntimeError("the function was cancelled from within")
            except Exception as error:  # noqa: BLE001 - any error of the user's function is reported as such
                failure = _late(calls) if limit.expired() else error
            if attempt == calls.retries:
                return FailedCall(failure)
            # Half of the wait is random, so that calls which failed together do not come back together.
            wait_s = calls.backoff_ms / 1000 * 2**attempt
            await asyncio.sleep(wait_s * random.uniform(0.5, 1))
            attempt += 1


def _late(calls: AsyncCalls) -> TimeoutError:
    attempts = f" in {calls.retries + 1} attempts" if calls.retries else ""
    return TimeoutError(f"no result within {duration_text(calls.timeout_ms)}{attempts}")


def _key(message: Any) -> Any:
    """A key that only equal messages have in common; None if their results cannot be cached."""
    key = message
    if is_dataclass(message):
        key = (type(message), *(getattr(message, field.name) for field in fields(message)))
    try:
        hash(key)
    except TypeError:
        return None
    return (key,)
