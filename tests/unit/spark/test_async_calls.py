"""Asynchronous calls: many at a time, in the order of the messages, repeated, in time, cached."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from drivetrain.api.operations import AsyncCalls
from drivetrain.spark.compile import async_calls
from drivetrain.spark.compile.async_calls import CACHED, MOST_CACHES, FailedCall, ResultCache, call_all

CALLS = AsyncCalls(concurrency=5, timeout_ms=5_000, retries=0, backoff_ms=1)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(async_calls, "_caches", {})
    loops: dict[int, asyncio.AbstractEventLoop] = {}
    monkeypatch.setattr(async_calls, "_loops", loops)
    yield
    for loop in loops.values():
        loop.close()


@dataclass
class Order:
    item: str
    count: int


class Service:
    """Answers after a random time; counts calls."""

    def __init__(self, failures: int = 0) -> None:
        self.draw = random.Random(3)
        self.failures = failures
        self.calls: list[Any] = []
        self.running = self.most = 0

    async def __call__(self, message: Any) -> Any:
        self.calls.append(message)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.draw.random() / 500)
        self.running -= 1
        if self.calls.count(message) <= self.failures:
            raise ConnectionError(f"busy with {message}")
        return message, "seen"


def test_results_have_the_order_of_the_messages_and_so_many_calls_run_at_a_time() -> None:
    service = Service()
    outcomes = call_all(service, list(range(60)), CALLS, stops=True)
    assert [outcomes[at] for at in range(60)] == [(n, "seen") for n in range(60)]
    assert service.most == 5
    assert call_all(service, [], CALLS, stops=True) == {}


def test_a_call_is_repeated_and_fails_with_the_last_error() -> None:
    service = Service(failures=2)
    outcomes = call_all(service, [1, 2], replace(CALLS, retries=2), stops=True)
    assert outcomes == {0: (1, "seen"), 1: (2, "seen")}
    assert sorted(service.calls) == [1, 1, 1, 2, 2, 2]
    failing = Service(failures=9)
    outcomes = call_all(failing, [1, 2], replace(CALLS, retries=1), stops=False)
    assert [str(outcomes[at].error) for at in (0, 1)] == ["busy with 1", "busy with 2"]
    assert len(failing.calls) == 4


def test_the_first_failure_ends_the_batch_and_calls_that_are_under_way() -> None:
    ended = []

    async def slow_or_wrong(message: int) -> int:
        if message == 1:
            raise ValueError("one")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(message)
        return message

    outcomes = call_all(slow_or_wrong, list(range(100)), CALLS, stops=True)
    assert [(at, str(o.error)) for at, o in outcomes.items() if isinstance(o, FailedCall)] == [(1, "one")]
    assert sorted(ended) == [0, 2, 3, 4]


def test_a_call_that_takes_too_long_is_repeated_and_named() -> None:
    async def slow(message: int) -> int:
        await asyncio.sleep(60)
        return message

    outcomes = call_all(slow, [1], replace(CALLS, timeout_ms=10, retries=1), stops=True)
    assert str(outcomes[0].error) == "no result within 10 ms in 2 attempts"

    async def own(message: int) -> int:
        raise TimeoutError("of the service")

    assert str(call_all(own, [1], CALLS, stops=True)[0].error) == "of the service"


def test_a_function_that_cancels_itself_fails_for_its_message_only() -> None:
    async def cancels(message: int) -> int:
        if message == 1:
            raise asyncio.CancelledError
        return message

    outcomes = call_all(cancels, [0, 1, 2], CALLS, stops=False)
    assert (outcomes[0], outcomes[2]) == (0, 2)
    assert "cancelled from within" in str(outcomes[1].error)


def test_equal_messages_share_a_call_and_its_result_is_used_again() -> None:
    service, cached = Service(), replace(CALLS, cache_ms=60_000)
    orders = [Order("a", 1), Order("b", 1), Order("a", 1)]
    outcomes = call_all(service, orders, cached, stops=True)
    assert [outcomes[at][0] for at in range(3)] == orders
    assert len(service.calls) == 2
    call_all(service, [Order("b", 1), Order("c", 1)], cached, stops=True)
    assert len(service.calls) == 3
    call_all(service, [Order("b", 1)], replace(cached, cache="another"), stops=True)
    assert len(service.calls) == 4, "each processor has results of its own"
    call_all(service, [["unhashable"], ["unhashable"]], cached, stops=True)
    assert len(service.calls) == 6


def test_failures_are_not_cached() -> None:
    service, cached = Service(failures=1), replace(CALLS, cache_ms=60_000)
    assert isinstance(call_all(service, [1], cached, stops=False)[0], FailedCall)
    assert call_all(service, [1], cached, stops=False)[0] == (1, "seen")


def test_a_cached_result_is_used_until_it_is_too_old_and_the_oldest_makes_room() -> None:
    cache = ResultCache(2_000)
    cache.put("a", None, 10.0)
    assert cache.get("a", 11.9) == (None,)
    assert cache.get("a", 12.0) is None
    for n in range(CACHED):
        cache.put(n, n, 20.0)
    assert len(cache) == CACHED
    assert cache.get("a", 20.0) is None
    assert cache.get(0, 20.0) == (0,)
    cache.put("z", 1, 20.0)
    assert cache.get(0, 20.0) is None


def test_the_event_loop_lives_as_long_as_the_process_so_that_sessions_can() -> None:
    loops = []

    async def remember(message: int) -> int:
        loops.append(asyncio.get_running_loop())
        return message

    for n in range(2):
        call_all(remember, [n], CALLS, stops=True)
    assert loops[0] is loops[1]


def test_a_function_that_was_changed_at_its_line_does_not_get_the_results_of_the_one_before() -> None:
    def declared() -> AsyncCalls:
        return AsyncCalls(concurrency=5, timeout_ms=5_000, retries=0, backoff_ms=1, cache_ms=60_000)

    before, after = declared(), declared()
    assert before == after, "the plan is the same"
    sent = pickle.loads(pickle.dumps(before))
    service = Service()
    for calls in (before, sent, after):
        call_all(service, [1], calls, stops=True)
    assert len(service.calls) == 2


def test_results_of_processors_that_have_ended_make_room() -> None:
    service = Service()
    for n in (*range(MOST_CACHES), 0, "new", 0, 1):
        call_all(service, ["message"], replace(CALLS, cache_ms=60_000, cache=str(n)), stops=True)
    assert len(service.calls) == MOST_CACHES + 2, "0 was used again, 1 had made room"
    assert len(async_calls._caches) == MOST_CACHES
