"""A supervised counter: state without locks, a failure that does not spread, an end that one is told of.

python examples/actors_counter.py
"""

from __future__ import annotations

import asyncio

from drivetrain.actor import Actor, ActorFailedError, ActorRef, ActorSystem, Message, Terminated
from drivetrain.core.liveness.supervision import Directive, SupervisionPolicy

# ---- what the actors say to each other


class Add(Message, frozen=True):
    """Add `amount` to the count."""

    amount: int


class GetCount(Message, frozen=True):
    """Ask for the count; answered with `Count`."""


class Count(Message, frozen=True):
    value: int


class GetCounter(Message, frozen=True):
    """Ask the boss for its counter; answered with `Hired`."""


class Hired(Message, frozen=True):
    counter: ActorRef


# ---- the actors


class Counter(Actor):
    """Counts. Nobody else can reach `value`, so nobody needs a lock."""

    def pre_start(self) -> None:
        self.value = 0

    def receive(self, message: Message) -> None:
        match message:
            case Add(amount):
                if amount < 0:
                    raise ValueError(f"cannot add {amount}")
                self.value += amount
            case GetCount():
                self.context.reply(Count(self.value))
            case _:
                self.context.unhandled(message)


class Boss(Actor):
    """Supervises one counter: a bad message makes it start afresh, the third one within a minute ends it."""

    supervision = SupervisionPolicy({ValueError: Directive.RESTART}, max_restarts=2, window_ms=60_000)

    def pre_start(self) -> None:
        self.counter = self.context.spawn(Counter, "counter")
        self.context.watch(self.counter)

    def receive(self, message: Message) -> None:
        match message:
            case GetCounter():
                self.context.reply(Hired(self.counter))
            case Terminated(actor):
                print(f"{actor.path.name} has stopped for good, so its boss stops too")
                self.context.stop()
            case _:
                self.context.unhandled(message)


async def main() -> None:
    system = ActorSystem("example")
    boss = system.spawn(Boss, "boss")
    counter = (await boss.ask(GetCounter(), Hired)).counter

    for amount in (1, 2, 3):
        counter.tell(Add(amount))  # sent, not waited for
    print(f"count: {(await counter.ask(GetCount(), Count)).value}")

    try:
        await counter.ask(Add(-1))
    except ActorFailedError as error:
        print(f"refused: {error.what}")
    # The same reference reaches the new instance, which knows nothing of the old one's count.
    print(f"count after the restart: {(await counter.ask(GetCount(), Count)).value}")

    counter.tell(Add(-1))
    counter.tell(Add(-1))
    await system.wait_stopped(boss, timeout_ms=10_000)
    await system.terminate()
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
