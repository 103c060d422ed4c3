"""Watch an actor whose process is killed.

    python examples/actors_watch_killed_process.py

The program starts a second process with a worker, watches the worker, and kills the process with SIGKILL,
so that it cannot say goodbye. Its silence is all there is to notice: the watcher gets `Terminated`, once,
when no heartbeat has been answered for longer than the pause. Then a new worker is started in its place.
"""

from __future__ import annotations

import asyncio
import sys
import time

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message, Terminated
from drivetrain.actor.remote import RemoteSettings, attach_remote

# Short, so that the example is: in production a second and several seconds are usual.
SETTINGS = RemoteSettings(heartbeat_interval_ms=100, heartbeat_pause_ms=500)


class Work(Message, frozen=True):
    number: int


class Done(Message, frozen=True):
    square: int


class Lost(Message, frozen=True):
    """The boss's answer: the worker is gone, and why."""

    cause: str


class AwaitLoss(Message, frozen=True):
    """Ask the boss to answer with `Lost` when its worker has gone."""


class Worker(Actor):
    def receive(self, message: Message) -> None:
        match message:
            case Work(number):
                self.context.reply(Done(number * number))
            case _:
                self.context.unhandled(message)


class Boss(Actor):
    """Watches one worker."""

    def __init__(self, worker: ActorRef) -> None:
        self.worker = worker
        self.asker: ActorRef | None = None

    def pre_start(self) -> None:
        self.context.watch(self.worker)

    def receive(self, message: Message) -> None:
        match message:
            case AwaitLoss():
                self.asker = self.context.sender
            case Terminated(_, cause):
                assert self.asker is not None
                self.asker.tell(Lost(cause.value))
            case _:
                self.context.unhandled(message)


async def serve() -> None:
    """The second process."""
    system = ActorSystem("workers")
    await attach_remote(system, SETTINGS)
    system.spawn(Worker, "worker")
    print(f"{system.address.host}:{system.address.port}", flush=True)
    await system.wait_terminated()


async def start_worker(system: ActorSystem) -> tuple[asyncio.subprocess.Process, ActorRef]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "serve", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    place = (await process.stdout.readline()).decode().strip()
    return process, await system.lookup(f"drivetrain://workers@{place}/user/worker")


async def main() -> None:
    system = ActorSystem("bosses")
    await attach_remote(system, SETTINGS)

    process, worker = await start_worker(system)
    boss = system.spawn(lambda: Boss(worker), "boss")
    print(f"the worker squares 7: {(await worker.ask(Work(7), Done)).square}")
    loss = asyncio.create_task(boss.ask(AwaitLoss(), Lost, timeout_ms=20_000))
    await asyncio.sleep(0.3)

    process.kill()
    killed = time.monotonic()
    lost = await loss
    print(f"the worker was lost: {lost.cause}")
    print(f"noticed after {time.monotonic() - killed:.1f} s", file=sys.stderr)
    await process.wait()

    process, worker = await start_worker(system)
    print(f"a new worker squares 8: {(await worker.ask(Work(8), Done)).square}")
    process.kill()
    await process.wait()
    await system.terminate()
    print("done")


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["serve"] else main())
