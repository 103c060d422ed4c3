"""The simulated loop: virtual time, seeded order, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from drivetrain.simulator import (
    BackgroundFailureError,
    DeadlockError,
    LivelockError,
    OverrunError,
    RealWorldError,
    Simulation,
)
from drivetrain.simulator import loop as loop_module


def test_an_hour_of_sleeping_takes_no_time() -> None:
    async def scenario(simulation: Simulation) -> float:
        start = simulation.loop.time()
        for _ in range(3600):
            await asyncio.sleep(1)
        return simulation.loop.time() - start

    assert Simulation(1, until_s=4000).run(scenario) == pytest.approx(3600)


def test_timers_fire_in_order_of_their_deadlines_at_exactly_these() -> None:
    fired: list[tuple[float, int]] = []

    async def scenario(simulation: Simulation) -> None:
        loop = simulation.loop
        start = loop.time()
        delays = [Random(5).choice([0.5, 1.0, 2.5, 7.0]) for _ in range(50)]
        for at, delay in enumerate(delays):
            loop.call_later(delay, lambda at=at: fired.append((loop.time() - start, at)))
        await asyncio.sleep(10)
        assert [when for when, _ in fired] == sorted(delays)
        assert all(delays[at] == when for when, at in fired)

    Simulation(1).run(scenario)


def test_a_cancelled_timer_does_not_fire() -> None:
    async def scenario(simulation: Simulation) -> None:
        timer = simulation.loop.call_later(1, pytest.fail, "fired")
        timer.cancel()
        await asyncio.sleep(2)

    Simulation(1).run(scenario)


def order_of_tasks(seed: int) -> list[str]:
    seen: list[str] = []

    async def work(name: str) -> None:
        for step in range(3):
            seen.append(f"{name}{step}")
            await asyncio.sleep(0)

    async def scenario(simulation: Simulation) -> None:
        await asyncio.gather(*(work(name) for name in "abcd"))

    Simulation(seed).run(scenario)
    return seen


def test_ready_tasks_interleave_differently_by_seed_and_equally_with_one_seed() -> None:
    orders = [order_of_tasks(seed) for seed in range(20)]
    assert len({tuple(order) for order in orders}) > 10
    assert orders == [order_of_tasks(seed) for seed in range(20)]


def test_the_steps_of_one_task_and_plain_callbacks_keep_their_order() -> None:
    for seed in range(20):
        order = order_of_tasks(seed)
        for name in "abcd":
            assert [entry for entry in order if entry[0] == name] == [f"{name}{step}" for step in range(3)]
        called: list[int] = []

        async def scenario(simulation: Simulation, called: list[int] = called) -> None:
            for number in range(10):
                simulation.loop.call_soon(called.append, number)
            await asyncio.sleep(1)

        Simulation(seed).run(scenario)
        assert called == list(range(10))


def test_timers_of_one_deadline_fire_in_any_order() -> None:
    def order(seed: int) -> tuple[int, ...]:
        called: list[int] = []

        async def scenario(simulation: Simulation) -> None:
            when = simulation.loop.time() + 1
            for number in range(4):
                simulation.loop.call_at(when, called.append, number)
            await asyncio.sleep(2)

        Simulation(seed).run(scenario)
        return tuple(called)

    assert len({order(seed) for seed in range(40)}) > 10


def test_a_wait_that_nothing_can_end_is_a_deadlock_that_says_where() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def scenario(simulation: Simulation) -> None:
        await asyncio.create_task(stuck(), name="the stuck one")

    with pytest.raises(DeadlockError) as caught:
        Simulation(1).run(scenario)
    assert "the stuck one" in str(caught.value)
    assert "stuck" in str(caught.value)
    assert "DRIVETRAIN_SEED=1" in "".join(caught.value.__notes__)


def test_a_callback_that_reschedules_itself_for_ever_is_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "LIVELOCK_STEPS", 1000)

    async def scenario(simulation: Simulation) -> None:
        def again() -> None:
            simulation.loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(LivelockError):
        Simulation(1).run(scenario)


def test_a_scenario_that_goes_on_for_ever_overruns() -> None:
    async def scenario(simulation: Simulation) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(OverrunError):
        Simulation(1, until_s=100).run(scenario)


def test_a_failure_that_nobody_awaits_fails_the_simulation() -> None:
    async def fail() -> None:
        raise ValueError("lost?")

    async def scenario(simulation: Simulation) -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(BackgroundFailureError, match="lost"):
        Simulation(1).run(scenario)


def test_a_callback_that_fails_fails_the_simulation() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(BackgroundFailureError, match="division"):
        Simulation(1).run(scenario)


def test_blocking_functions_run_on_virtual_time() -> None:
    async def scenario(simulation: Simulation) -> None:
        before = simulation.loop.time()
        assert await asyncio.to_thread(lambda: threading.get_ident()) == threading.get_ident()
        assert simulation.loop.time() > before
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)

    Simulation(1).run(scenario)


def test_a_second_thread_is_refused() -> None:
    async def scenario(simulation: Simulation) -> None:
        errors: list[Exception] = []

        def intrude() -> None:
            try:
                simulation.loop.call_soon_threadsafe(print)
            except RealWorldError as error:
                errors.append(error)

        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        assert len(errors) == 1

    Simulation(1).run(scenario)


def test_real_sockets_are_refused() -> None:
    async def scenario(simulation: Simulation) -> None:
        with pytest.raises(RealWorldError, match="create_connection"):
            await asyncio.open_connection("127.0.0.1", 1)

    Simulation(1).run(scenario)


def test_asyncio_timeouts_work_on_virtual_time() -> None:
    async def scenario(simulation: Simulation) -> None:
        before = simulation.loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        assert simulation.loop.time() - before == pytest.approx(30)

    Simulation(1).run(scenario)
