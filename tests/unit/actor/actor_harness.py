"""Runs a test of actors on virtual time, in several schedules, and checks every invariant at its end."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message
from drivetrain.simulator import Simulation

SEEDS = 3


def in_system(
    test: Callable[..., Coroutine[Any, Any, None]] | None = None, *, seeds: int = SEEDS, **options: Any
) -> Any:
    """Run `test(system, ...)` once per seed; check the system before and after it terminates."""
    if test is None:
        return functools.partial(in_system, seeds=seeds, **options)
    parameters = list(inspect.signature(test).parameters.values())

    def run(**arguments: Any) -> None:
        for seed in range(seeds):
            simulation = Simulation(seed)

            async def scenario(simulation: Simulation = simulation) -> None:
                system = ActorSystem("test", rng=simulation.random, **options)
                await test(system, **arguments)
                system.check()
                await system.terminate()
                system.check()

            simulation.run(lambda _: scenario())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__signature__ = inspect.Signature(parameters[1:])  # type: ignore[attr-defined]
    run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return run


async def quiet() -> None:
    """Wait until nothing can happen any more without time passing: virtual time moves only then."""
    await asyncio.sleep(1e-6)


class Note(Message):
    text: str


class Boom(Message):
    text: str = "boom"


class Recorder(Actor):
    """Records what happens to it; fails on `Boom`."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.log = log
        self.name = f"{name} " if name else ""

    def write(self, what: str) -> None:
        self.log.append(f"{self.name}{what}")

    def pre_start(self) -> None:
        self.write("pre_start")

    def post_stop(self) -> None:
        self.write("post_stop")

    def pre_restart(self, cause: BaseException) -> None:
        self.write(f"pre_restart {cause}")

    def post_restart(self, cause: BaseException) -> None:
        self.write(f"post_restart {cause}")

    def receive(self, message: Message) -> None:
        match message:
            case Note(text):
                self.write(text)
            case Boom(text):
                raise ValueError(text)
            case _:
                self.write(type(message).__name__)


class Probe(Actor):
    """Keeps every message with its sender."""

    def __init__(self, got: list[Message]) -> None:
        self.got = got
        self.senders: list[ActorRef | None] = []

    def receive(self, message: Message) -> None:
        self.got.append(message)
        self.senders.append(self.context.sender)
