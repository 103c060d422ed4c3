"""Ask an actor in another process.

    python examples/actors_ask_two_processes.py

The program starts a second copy of itself that serves a `Greeter`, learns its address, and asks it. What the
two share is the classes of their messages; references look the same on both sides.
"""

from __future__ import annotations

import asyncio
import sys

from drivetrain.actor import Actor, ActorSystem, Message
from drivetrain.actor.remote import attach_remote


class Greet(Message, frozen=True):
    name: str


class Greeting(Message, frozen=True):
    text: str
    count: int


class Greeter(Actor):
    """Greets, and counts how often."""

    def pre_start(self) -> None:
        self.count = 0

    def receive(self, message: Message) -> None:
        match message:
            case Greet(name):
                self.count += 1
                self.context.reply(Greeting(f"Hello, {name}!", self.count))
            case _:
                self.context.unhandled(message)


async def serve() -> None:
    """The second process: serve a greeter until the first one closes our standard input."""
    system = ActorSystem("greeters")
    await attach_remote(system)  # listens on a free port of the loopback address
    system.spawn(Greeter, "greeter")
    print(f"{system.address.host}:{system.address.port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await system.terminate()


async def main() -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "serve", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdin is not None
    place = (await other.stdout.readline()).decode().strip()

    system = ActorSystem("visitors")
    await attach_remote(system)
    # The name of the other system and where it listens are enough; the answer is an exact reference.
    greeter = await system.lookup(f"drivetrain://greeters@{place}/user/greeter")
    for name in ("Ada", "Grace", "Barbara"):
        greeting = await greeter.ask(Greet(name), Greeting)
        print(f"{greeting.text} (greeting number {greeting.count})")

    await system.terminate()
    other.stdin.close()
    await other.wait()
    print("done")


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["serve"] else main())
