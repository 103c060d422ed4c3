"""What a worker remembers does not grow with what it has launched."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from drivetrain.cluster.worker.key_locks import KeyLocks
from drivetrain.cluster.worker.launches import Launches


def test_a_lock_is_there_while_it_is_held_or_waited_for_and_one_holds_it_at_a_time() -> None:
    async def run() -> None:
        locks, order = KeyLocks(), []

        async def work(key: str, number: int, cancels: bool = False) -> None:
            async with locks.hold(key):
                order.append((key, number, "begin"))
                await asyncio.sleep(0)
                if cancels:
                    raise ValueError
                order.append((key, number, "end"))

        tasks = [asyncio.ensure_future(work("a", 1)), asyncio.ensure_future(work("a", 2, True))]
        tasks += [asyncio.ensure_future(work("a", 3)), asyncio.ensure_future(work("b", 4))]
        await asyncio.sleep(0)
        assert len(locks) == 2
        tasks[2].cancel()  # while it waits
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [each for each in order if each[0] == "a"] == [
            ("a", 1, "begin"),
            ("a", 1, "end"),
            ("a", 2, "begin"),
        ]
        assert len(locks) == 0

    asyncio.run(run())


def test_epochs_of_applications_that_run_nothing_here_are_forgotten_in_the_end() -> None:
    nothing = cast("Any", None)
    launches = Launches(nothing, nothing, 1, nothing, nothing)
    for number in range(3_000):
        launches._fence(f"app-{number}", 1)
        launches._fence("always-0", number)
    assert len(launches._epochs) <= 1_000
    assert launches._epochs["always-0"] == 2_999
    assert "app-2999" in launches._epochs
