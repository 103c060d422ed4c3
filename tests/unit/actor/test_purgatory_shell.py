"""The purgatory with threads, and its reaper on an event loop of virtual time."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drivetrain.actor.purgatory import Reaper, ThreadSafePurgatory, loop_clock, monotonic_ms
from drivetrain.core.waiting.waiting_operations import DelayedOperation
from drivetrain.errors import ConfigError, InternalError
from drivetrain.simulator import SimulatedLoop


class Counting(DelayedOperation):
    """Counts its ends; completes when `ready`."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.completions: list[int] = []  # the threads that ran on_complete
        self.expirations: list[int] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions.append(threading.get_ident())

    def on_expiration(self) -> None:
        assert self.completions
        self.expirations.append(threading.get_ident())


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads overtake each other almost anywhere."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def run_threads(*bodies: Callable[[], object]) -> None:
    """Run all bodies at once and wait for all; raise what one of them raised."""
    barrier = threading.Barrier(len(bodies))
    errors: list[BaseException] = []

    def run(body: Callable[[], object]) -> None:
        barrier.wait(timeout=30)
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "a deadlock"
    if errors:
        raise errors[0]


# ---- threads ----------------------------------------------------------------------------------------


ROUNDS, BATCH = 300, 4


class Race:
    """Five threads meet at the same few operations, round after round; `wins` is what each completed."""

    def __init__(self) -> None:
        self.clock_ms = 0
        self.purgatory: ThreadSafePurgatory[Counting] = ThreadSafePurgatory(
            now_ms=lambda: self.clock_ms, purge_limit=20
        )
        self.batches = [[Counting(1) for _ in range(BATCH)] for _ in range(ROUNDS)]
        self.operations = [operation for batch in self.batches for operation in batch]
        self.wins = {"enter": 0, "make_ready": 0, "check": 0, "force": 0, "pass_time": 0}
        self.together = threading.Barrier(len(self.wins))

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        run_threads(*(self.body(name, random.Random(rng.random())) for name in self.wins))
        self.clock_ms += 1_000
        self.purgatory.advance()

    def body(self, name: str, rng: random.Random) -> Callable[[], None]:
        act = getattr(self, name)

        def in_rounds() -> None:
            for number, batch in enumerate(self.batches):
                self.together.wait(timeout=30)
                for _ in range(rng.randrange(200)):
                    pass  # so that everybody is first at some time
                self.wins[name] += sum(act(batch, number))

        return in_rounds

    def enter(self, batch: list[Counting], number: int) -> Iterator[int]:
        for operation in batch:
            keys = [(number, "a"), (number, "b"), "all"]
            yield self.purgatory.try_complete_else_watch(operation, keys)

    def make_ready(self, batch: list[Counting], number: int) -> Iterator[int]:
        for operation in batch:
            operation.ready = True
            yield self.purgatory.check_and_complete((number, "a"))

    def check(self, _: list[Counting], number: int) -> Iterator[int]:
        for _ in range(10):
            yield self.purgatory.check_and_complete((number, "b"))

    def force(self, batch: list[Counting], _: int) -> Iterator[int]:
        for operation in batch[::2]:
            yield operation.force_complete()

    def pass_time(self, batch: list[Counting], _: int) -> Iterator[int]:
        for _ in batch:
            self.clock_ms += 1
            yield self.purgatory.advance()


@pytest.mark.usefixtures("frequent_switches")
@pytest.mark.parametrize("seed", range(3))
def test_completion_happens_exactly_once_whoever_races(seed: int) -> None:
    race = Race()
    race.run(seed)
    assert [len(operation.completions) for operation in race.operations] == [1] * len(race.operations)
    expired = sum(len(operation.expirations) for operation in race.operations)
    assert expired >= race.wins.pop("pass_time"), "more, as some expire when they enter"
    assert sum(race.wins.values()) + expired == len(race.operations)
    assert race.purgatory.delayed == 0
    race.purgatory.check()
    for number in range(ROUNDS):
        for key in ((number, "a"), (number, "b"), "all"):
            assert race.purgatory.check_and_complete(key) == 0
    assert race.purgatory.watched == 0


@pytest.mark.usefixtures("frequent_switches")
def test_a_condition_that_comes_true_while_an_operation_enters_is_never_missed() -> None:
    """Without any timeout, so that a missed completion is seen."""
    purgatory: ThreadSafePurgatory[Counting] = ThreadSafePurgatory(now_ms=lambda: 0)
    operations = [Counting(10**9) for _ in range(2_000)]
    here = threading.Semaphore(0)

    def enter() -> None:
        for number, operation in enumerate(operations):
            here.release()
            purgatory.try_complete_else_watch(operation, [number])

    def make_ready() -> None:
        for number, operation in enumerate(operations):
            assert here.acquire(timeout=30)
            operation.ready = True
            purgatory.check_and_complete(number)

    run_threads(enter, make_ready)
    assert [len(operation.completions) for operation in operations] == [1] * len(operations)
    assert purgatory.delayed == 0
    purgatory.check()


@pytest.mark.usefixtures("frequent_switches")
def test_an_operation_that_is_cancelled_while_it_enters_never_expires_behind_its_takers_back() -> None:
    clock_ms = 0
    purgatory: ThreadSafePurgatory[Counting] = ThreadSafePurgatory(now_ms=lambda: clock_ms)
    operations = [Counting(1) for _ in range(1_000)]
    here = threading.Semaphore(0)
    taken: list[Counting] = []

    def enter() -> None:
        for operation in operations:
            here.release()
            purgatory.try_complete_else_watch(operation, ["k"])

    def cancel() -> None:
        for _ in operations:
            assert here.acquire(timeout=30)
            taken.extend(purgatory.cancel_for_key("k"))

    run_threads(enter, cancel)
    clock_ms = 100
    purgatory.advance()
    assert len({id(operation) for operation in taken}) == len(taken)
    assert not any(operation.completed for operation in taken)
    assert all(operation.expirations for operation in operations if operation not in taken)


@pytest.mark.usefixtures("frequent_switches")
def test_forced_completions_while_a_full_bucket_expires_lose_no_operation() -> None:
    clock_ms = 0
    purgatory: ThreadSafePurgatory[Counting] = ThreadSafePurgatory(now_ms=lambda: clock_ms)
    for _ in range(10):
        operations = [Counting(5) for _ in range(500)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["k"])
        clock_ms += 5
        run_threads(
            purgatory.advance,
            lambda some=operations[::2]: [operation.force_complete() for operation in some],
            lambda some=operations[::-3]: [operation.force_complete() for operation in some],
        )
        assert [len(operation.completions) for operation in operations] == [1] * len(operations)
        assert purgatory.delayed == 0
        purgatory.check()


@pytest.mark.usefixtures("frequent_switches")
def test_an_operation_is_tried_by_one_thread_at_a_time() -> None:
    purgatory: ThreadSafePurgatory[DelayedOperation] = ThreadSafePurgatory(now_ms=lambda: 0)
    inside: list[int] = []
    most = 0

    class Overlapping(Counting):
        def try_complete(self) -> bool:
            nonlocal most
            inside.append(1)
            most = max(most, len(inside))
            time.sleep(0)
            inside.pop()
            return False

    purgatory.try_complete_else_watch(Overlapping(1_000), ["k"])

    def check() -> None:
        for _ in range(200):
            purgatory.check_and_complete("k")

    run_threads(check, check, check)
    assert most == 1


def test_operations_that_check_each_others_keys_as_they_complete_do_not_deadlock() -> None:
    purgatory: ThreadSafePurgatory[DelayedOperation] = ThreadSafePurgatory(now_ms=lambda: 0)

    class Chained(Counting):
        def __init__(self, other: str) -> None:
            super().__init__(1_000)
            self.other = other

        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check_and_complete(self.other)

    for _ in range(200):
        left, right = Chained("right"), Chained("left")
        purgatory.try_complete_else_watch(left, ["left"])
        purgatory.try_complete_else_watch(right, ["right"])
        left.ready = right.ready = True
        run_threads(
            lambda: purgatory.check_and_complete("left"), lambda: purgatory.check_and_complete("right")
        )
        assert len(left.completions) == len(right.completions) == 1
    assert purgatory.watched == 0


# ---- the reaper -------------------------------------------------------------------------------------


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop(random.Random(0))
    yield loop
    loop.close()


class Timed(Counting):
    """Knows when it expired."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.expired: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def on_expiration(self) -> None:
        super().on_expiration()
        self.expired.set_result(asyncio.get_running_loop().time())


class CountingRounds(ThreadSafePurgatory[Counting]):
    """Counts how often the reaper looks."""

    rounds = 0

    def advance(self) -> int:
        self.rounds += 1
        return super().advance()


def on_loop() -> CountingRounds:
    return CountingRounds(now_ms=loop_clock(asyncio.get_running_loop()))


@pytest.mark.parametrize("delay_ms", [0, 1, 7, 20, 150, 200, 399, 400, 12_345])
def test_the_reaper_expires_an_operation_on_time(loop: SimulatedLoop, delay_ms: int) -> None:
    async def main() -> None:
        purgatory = on_loop()
        async with Reaper(purgatory):
            start_s = asyncio.get_running_loop().time()
            operation = Timed(delay_ms)
            purgatory.try_complete_else_watch(operation, ["k"])
            waited_ms = (await operation.expired - start_s) * 1_000
            assert delay_ms - 0.01 <= waited_ms <= delay_ms + 1.01

    loop.run_until_complete(main())


def test_the_reaper_looks_every_interval_while_something_waits_and_never_otherwise(
    loop: SimulatedLoop,
) -> None:
    async def main() -> None:
        purgatory = on_loop()
        async with Reaper(purgatory, interval_ms=200):
            await asyncio.sleep(100)
            assert purgatory.rounds == 0
            operation = Timed(2_000)
            purgatory.try_complete_else_watch(operation, ["k"])
            await operation.expired
            assert 10 <= purgatory.rounds <= 14
            rounds = purgatory.rounds
            await asyncio.sleep(100)
            assert purgatory.rounds == rounds

    loop.run_until_complete(main())


def test_an_earlier_operation_brings_the_reapers_round_forward(loop: SimulatedLoop) -> None:
    async def main() -> None:
        purgatory = on_loop()
        async with Reaper(purgatory, interval_ms=100_000):
            late, early = Timed(50_000), Timed(5)
            purgatory.try_complete_else_watch(late, ["k"])
            purgatory.try_complete_else_watch(early, ["k"])
            start_s = asyncio.get_running_loop().time()
            assert await early.expired - start_s < 0.01
            assert not late.completed

    loop.run_until_complete(main())


def test_what_an_operation_raises_reaches_the_loop_and_the_reaper_goes_on(loop: SimulatedLoop) -> None:
    class Failing(Counting):
        def on_expiration(self) -> None:
            raise OSError("no disk")

    async def main() -> None:
        reports: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: reports.append(context))
        purgatory = on_loop()
        async with Reaper(purgatory):
            purgatory.try_complete_else_watch(Failing(5), ["k"])
            good = Timed(10)
            purgatory.try_complete_else_watch(good, ["k"])
            await good.expired
        (report,) = reports
        assert isinstance(report["exception"], ExceptionGroup)
        assert str(report["exception"].exceptions[0]) == "no disk"

    loop.run_until_complete(main())


def test_a_stopped_reaper_expires_nothing_and_leaves_no_timer(loop: SimulatedLoop) -> None:
    async def main() -> None:
        purgatory = on_loop()
        reaper = Reaper(purgatory)
        reaper.start()
        assert reaper.is_running
        operation = Counting(10)
        purgatory.try_complete_else_watch(operation, ["k"])
        reaper.stop()
        reaper.stop()
        assert not reaper.is_running
        purgatory.try_complete_else_watch(Counting(1), ["k"])
        await asyncio.sleep(10)
        assert not operation.completed
        assert purgatory.delayed == 2
        async with Reaper(purgatory):
            await asyncio.sleep(1)
        assert operation.expirations

    loop.run_until_complete(main())


def test_a_purgatory_has_one_reaper_at_a_time(loop: SimulatedLoop) -> None:
    async def main() -> None:
        purgatory = on_loop()
        async with Reaper(purgatory):
            with pytest.raises(InternalError, match="only one reaper"):
                Reaper(purgatory).start()

    loop.run_until_complete(main())


def test_an_interval_below_one_millisecond_is_refused() -> None:
    with pytest.raises(ConfigError, match="interval_ms"):
        Reaper(ThreadSafePurgatory(), interval_ms=0)


def test_another_thread_wakes_the_reaper_of_a_real_loop() -> None:
    """In real time: the reaper sleeps for an hour unless it is woken."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        purgatory: ThreadSafePurgatory[Counting] = ThreadSafePurgatory(now_ms=monotonic_ms)
        expired = asyncio.Event()

        class Signalling(Counting):
            def on_expiration(self) -> None:
                super().on_expiration()
                expired.set()

        operations = [Signalling(delay_ms) for delay_ms in (3_600_000, 20)]
        async with Reaper(purgatory, interval_ms=3_600_000):
            for operation in operations:
                await loop.run_in_executor(None, purgatory.try_complete_else_watch, operation, ["k"])
            await asyncio.wait_for(expired.wait(), timeout=30)
        assert operations[1].expirations == [threading.get_ident()], "on the loop's thread"
        assert not operations[0].completed

    asyncio.run(main())
