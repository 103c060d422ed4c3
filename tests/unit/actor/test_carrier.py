"""Coroutines in carriers: one current task and context all along, and no task when nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from drivetrain.actor.carrier import MAX_PARKED, Carriers
from drivetrain.simulator import Simulation


class Outcome:
    """What `done` was called with; calling it twice fails."""

    def __init__(self) -> None:
        self.errors: list[BaseException | None] = []

    def __call__(self, error: BaseException | None) -> None:
        self.errors.append(error)
        assert len(self.errors) == 1


def with_carriers(test: Callable[[Carriers], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        for seed in range(5):

            async def scenario() -> None:
                carriers = Carriers(asyncio.get_running_loop(), copy_context())
                await warm(carriers)
                await test(carriers)
                carriers.check()
                tasks = carriers.close()
                if tasks:
                    await asyncio.wait(tasks)
                assert carriers.total == 0

            Simulation(seed).run(lambda _: scenario())

    run.__name__ = test.__name__
    return run


async def warm(carriers: Carriers) -> None:
    """Get one carrier parked, so that the next coroutine is stepped by hand."""
    if not carriers.parked:
        carriers.step(asyncio.sleep(0), Outcome())
        await asyncio.sleep(0.001)
    assert carriers.parked


def step_outside(
    carriers: Carriers, coroutine: Coroutine[Any, Any, None], done: Outcome
) -> asyncio.Future[Any]:
    """Call `step` where the kernel does: in a callback, outside of any task."""
    loop = asyncio.get_running_loop()
    result = loop.create_future()

    def call() -> None:
        try:
            result.set_result(carriers.step(coroutine, done))
        except Exception as error:  # noqa: BLE001 - handed to the test
            result.set_exception(error)

    loop.call_soon(call)
    return result


@with_carriers
async def test_a_coroutine_that_does_not_wait_finishes_without_waking_a_task(carriers: Carriers) -> None:
    ran = []

    async def work() -> None:
        ran.append(asyncio.current_task())

    done = Outcome()
    before = carriers.total
    assert await step_outside(carriers, work(), done) is None
    assert len(ran) == 1
    assert ran[0] is not None
    assert not done.errors
    assert carriers.total == before


@with_carriers
async def test_a_coroutine_keeps_its_task_when_it_waits(carriers: Carriers) -> None:
    tasks = []

    async def work() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0.5)
        tasks.append(asyncio.current_task())

    done = Outcome()
    assert await step_outside(carriers, work(), done) is not None
    await asyncio.sleep(1)
    assert done.errors == [None]
    assert tasks[0] is not None
    assert tasks == [tasks[0]] * 3


@with_carriers
async def test_a_timeout_may_be_the_first_thing_a_coroutine_does(carriers: Carriers) -> None:
    outcomes = []

    async def work(limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await asyncio.sleep(10)
        except TimeoutError:
            outcomes.append(limit)

    for limit in (0, 0.5):
        done = Outcome()
        await warm(carriers)
        await step_outside(carriers, work(limit), done)
        await asyncio.sleep(1)
        assert done.errors == [None]
    assert outcomes == [0, 0.5]


@with_carriers
async def test_a_task_group_works_in_the_first_step(carriers: Carriers) -> None:
    got = []

    async def part(number: int) -> None:
        await asyncio.sleep(0.1)
        got.append(number)

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part(1))
            group.create_task(part(2))

    done = Outcome()
    await step_outside(carriers, work(), done)
    await asyncio.sleep(1)
    assert done.errors == [None]
    assert sorted(got) == [1, 2]


@with_carriers
async def test_context_variables_survive_the_first_wait(carriers: Carriers) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen = []

    async def work() -> None:
        token = variable.set("mine")
        await asyncio.sleep(0.1)
        seen.append(variable.get())
        variable.reset(token)

    done = Outcome()
    await step_outside(carriers, work(), done)
    await asyncio.sleep(1)
    assert done.errors == [None]
    assert seen == ["mine"]
    assert variable.get() == "unset"


@with_carriers
async def test_an_error_in_the_first_step_is_raised_and_a_later_one_is_handed_over(
    carriers: Carriers,
) -> None:
    async def work(waits: bool) -> None:
        if waits:
            await asyncio.sleep(0.1)
        raise ValueError("as planned")

    done = Outcome()
    with pytest.raises(ValueError, match="as planned"):
        await step_outside(carriers, work(False), done)
    assert not done.errors
    await warm(carriers)
    await step_outside(carriers, work(True), done)
    await asyncio.sleep(1)
    assert [str(error) for error in done.errors] == ["as planned"]


@with_carriers
async def test_cancelling_reaches_the_coroutine_and_nobody_else(carriers: Carriers) -> None:
    log = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(10)
            log.append(f"{name} finished")
        except asyncio.CancelledError:
            log.append(f"{name} cancelled")
            await asyncio.sleep(0.1)
            log.append(f"{name} cleaned up")
            raise

    first, second = Outcome(), Outcome()
    carrier = await step_outside(carriers, work("first"), first)
    carrier.cancel()
    await asyncio.sleep(1)
    assert log == ["first cancelled", "first cleaned up"]
    assert isinstance(first.errors[0], asyncio.CancelledError)
    await step_outside(carriers, work("second"), second)
    await asyncio.sleep(20)
    assert log[2:] == ["second finished"]
    assert second.errors == [None]


@with_carriers
async def test_a_cancelled_carrier_carries_nobody_else(carriers: Carriers) -> None:
    """A task remembers that it was cancelled; a task group in it would misunderstand its own failures."""
    tasks = []

    async def work() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(10)

    for _ in range(2):
        await warm(carriers)
        carrier = await step_outside(carriers, work(), Outcome())
        carrier.cancel()
        await asyncio.sleep(1)
    assert len(set(tasks)) == 2


@with_carriers
async def test_a_coroutine_cancelled_before_its_first_step_still_has_an_end(carriers: Carriers) -> None:
    async def never() -> None:
        raise AssertionError("it must not run")

    held = [await step_outside(carriers, asyncio.sleep(5), Outcome()) for _ in range(carriers.parked)]
    assert held
    assert carriers.parked == 0
    done = Outcome()
    carrier = carriers.step(never(), done)
    assert carrier is not None
    carrier.cancel()
    await asyncio.sleep(1)
    assert isinstance(done.errors[0], asyncio.CancelledError)


@with_carriers
async def test_a_coroutine_that_cancels_its_own_task_and_ends_disturbs_nobody(
    carriers: Carriers,
) -> None:
    async def rude() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def polite() -> None:
        await asyncio.sleep(0.1)

    await step_outside(carriers, rude(), Outcome())
    done = Outcome()
    await step_outside(carriers, polite(), done)
    await asyncio.sleep(1)
    assert done.errors == [None]


@with_carriers
async def test_a_burst_leaves_a_bounded_number_of_carriers(carriers: Carriers) -> None:
    outcomes = [Outcome() for _ in range(3 * MAX_PARKED)]
    for done in outcomes:
        await step_outside(carriers, asyncio.sleep(1), done)
    assert carriers.total >= 3 * MAX_PARKED
    await asyncio.sleep(2)
    assert all(done.errors == [None] for done in outcomes)
    assert carriers.total == carriers.parked == MAX_PARKED
