"""Timers: messages at their time, none after a cancellation, a replacement, a restart or a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from actor_harness import Boom, Note, in_system

from drivetrain.actor import Actor, ActorSystem, Message
from drivetrain.actor.timers import Timers


class Timed(Actor):
    """Runs `setup` on its timers at the start, and writes down what comes when, in ms."""

    def __init__(self, log: list[tuple[str, int]], setup: Callable[[Timers], None]) -> None:
        self.log, self.setup = log, setup

    def pre_start(self) -> None:
        self.began = self.context.system.loop.time()
        self.setup(self.context.timers)

    def post_restart(self, cause: BaseException) -> None:
        self.began = self.context.system.loop.time()

    async def receive(self, message: Message) -> None:
        match message:
            case Note(text) if text.startswith("cancel"):
                self.context.timers.cancel("t")
            case Note(text) if text.startswith("busy"):
                await asyncio.sleep(0.35)
            case Note(text):
                self.log.append((text, round((self.context.system.loop.time() - self.began) * 1000)))
            case Boom():
                raise ValueError


def timed(system: ActorSystem, setup: Callable[[Timers], None]) -> tuple[list[tuple[str, int]], object]:
    log: list[tuple[str, int]] = []
    return log, system.spawn(lambda: Timed(log, setup))


@in_system
async def test_a_timer_fires_once(system: ActorSystem) -> None:
    log, _ = timed(system, lambda timers: timers.start_once("t", Note("x"), delay_ms=100))
    await asyncio.sleep(1)
    assert log == [("x", 100)]


@in_system
async def test_a_periodic_timer_beats_until_its_actor_stops(system: ActorSystem) -> None:
    log, actor = timed(
        system, lambda timers: timers.start_periodic("t", Note("x"), interval_ms=100, initial_delay_ms=0)
    )
    await asyncio.sleep(0.45)
    assert log == [("x", 0), ("x", 100), ("x", 200), ("x", 300), ("x", 400)]
    system.check()
    system.stop(actor)  # type: ignore[arg-type]
    await asyncio.sleep(1)
    assert len(log) == 5


@in_system
async def test_the_same_key_replaces_and_cancelling_ends(system: ActorSystem) -> None:
    def setup(timers: Timers) -> None:
        timers.start_once("t", Note("replaced"), delay_ms=50)
        timers.start_once("t", Note("kept"), delay_ms=100)
        timers.start_once("u", Note("cancelled"), delay_ms=50)
        assert timers.is_running("u")
        assert timers.cancel("u")
        assert not timers.cancel("u")
        assert not timers.is_running("u")

    log, _ = timed(system, setup)
    await asyncio.sleep(1)
    assert log == [("kept", 100)]


@in_system
async def test_no_message_comes_after_a_cancellation_even_if_it_waits_already(system: ActorSystem) -> None:
    log, actor = timed(system, lambda timers: timers.start_once("t", Note("x"), delay_ms=100))
    actor.tell(Note("busy"))  # type: ignore[attr-defined]
    actor.tell(Note("cancel"))  # type: ignore[attr-defined]
    await asyncio.sleep(1)
    assert log == []
    assert system.failures == 0


@in_system
async def test_a_stop_leaves_no_timer_running(system: ActorSystem) -> None:
    kept: list[Timers] = []

    def setup(timers: Timers) -> None:
        timers.start_periodic("t", Note("x"), interval_ms=100)
        kept.append(timers)

    log, actor = timed(system, setup)
    await asyncio.sleep(0.15)
    system.stop(actor)  # type: ignore[arg-type]
    assert not kept[0].is_running("t")
    await asyncio.sleep(1)
    assert log == [("x", 100)]


@in_system
async def test_no_message_comes_after_a_restart(system: ActorSystem) -> None:
    log, actor = timed(system, lambda timers: timers.start_periodic("t", Note("x"), interval_ms=100))
    actor.tell(Note("busy"))  # type: ignore[attr-defined]
    actor.tell(Boom())  # type: ignore[attr-defined]
    await asyncio.sleep(1)
    assert log == []


@in_system
async def test_a_periodic_timer_skips_beats_instead_of_piling_up(system: ActorSystem) -> None:
    log, actor = timed(system, lambda timers: timers.start_periodic("t", Note("x"), interval_ms=100))
    await asyncio.sleep(0.001)
    actor.tell(Note("busy"))  # type: ignore[attr-defined]
    await asyncio.sleep(0.61)
    assert [when for _, when in log] == [pytest.approx(351, abs=1), 400, 500, 600]


@in_system
async def test_a_full_mailbox_still_takes_a_timers_message(system: ActorSystem) -> None:
    log: list[tuple[str, int]] = []
    actor = system.spawn(
        lambda: Timed(log, lambda timers: timers.start_once("t", Note("x"), delay_ms=100)), mailbox_capacity=1
    )
    actor.tell(Note("busy"))
    await asyncio.sleep(0.05)
    actor.tell(Note("full"))
    await asyncio.sleep(0.1)
    system.check()
    await asyncio.sleep(1)
    assert [text for text, _ in log] == ["full", "x"]
    assert system.dead_letters.total == 0


@in_system
async def test_times_that_make_no_sense_are_refused(system: ActorSystem) -> None:
    timed(system, lambda timers: timers.start_once("t", Note("x"), delay_ms=-1))
    timed(system, lambda timers: timers.start_periodic("t", Note("x"), interval_ms=0))
    timed(system, lambda timers: timers.start_periodic("t", Note("x"), interval_ms=float("nan")))
    timed(system, lambda timers: timers.start_once("t", "x", delay_ms=1))  # type: ignore[arg-type]
    await asyncio.sleep(1)
    assert system.failures == 4
