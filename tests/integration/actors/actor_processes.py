"""Real processes for tests of the remote layer: a child that serves, and functions that start and signal it.

The child serves an echo until its standard input closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message, Terminated
from drivetrain.actor.remote import RemoteSettings, TlsSettings, attach_remote

FAST = {
    "heartbeat_interval_ms": 50,
    "heartbeat_pause_ms": 400,
    "connect_timeout_ms": 700,
    "max_backoff_ms": 200,
}
SECRET = "a secret for tests only"

# Imported, not run as a script: the message classes must be those of this module, not of `__main__`.
_PROGRAM = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import actor_processes
asyncio.run(actor_processes.serve(json.loads(sys.argv[2])))
"""


class Ping(Message, frozen=True, tag="processes.ping"):
    number: int
    load: bytes = b""


class Pong(Message, frozen=True, tag="processes.pong"):
    number: int
    received: int


class Count(Message, frozen=True, tag="processes.count"):
    number: int


class GetCounted(Message, frozen=True, tag="processes.get-counted"):
    pass


class Counted(Message, frozen=True, tag="processes.counted"):
    total: int
    in_order: bool


class Echo(Actor):
    """Answers `Ping`, and counts the `Count` messages that it gets."""

    def pre_start(self) -> None:
        self.received = 0
        self.total = 0
        self.last = -1
        self.in_order = True

    def receive(self, message: Message) -> None:
        match message:
            case Ping(number):
                self.received += 1
                self.context.reply(Pong(number, self.received))
            case Count(number):
                self.total += 1
                self.in_order = self.in_order and number > self.last
                self.last = number
            case GetCounted():
                self.context.reply(Counted(self.total, self.in_order))


class Watcher(Actor):
    """Watches one actor and keeps the messages that it gets."""

    def __init__(self, target: ActorRef) -> None:
        self.target = target
        self.told: list[Terminated] = []

    def pre_start(self) -> None:
        self.context.watch(self.target)

    def receive(self, message: Message) -> None:
        if isinstance(message, Terminated):
            self.told.append(message)


def settings_of(options: dict[str, Any]) -> RemoteSettings:
    """Fast settings, changed by these options."""
    tls = options.pop("tls", None)
    return RemoteSettings(**{**FAST, **options}, tls=None if tls is None else TlsSettings(*map(Path, tls)))


class Child:
    """A child process that serves an echo."""

    def __init__(self, process: asyncio.subprocess.Process, place: str, log: Path) -> None:
        self.process = process
        self.place = place
        self._log = log

    @property
    def echo(self) -> str:
        """The path of its echo, whatever its incarnation."""
        return f"drivetrain://child@{self.place}/user/echo"

    @property
    def port(self) -> int:
        return int(self.place.rpartition(":")[2])

    @property
    def log_lines(self) -> list[str]:
        """Its log lines of level WARNING or above."""
        return self._log.read_text().splitlines()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def wait_killed(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def child(tmp_path: Path, **options: Any) -> AsyncIterator[Child]:
    """Start a child; it is gone at the end, whatever state it is in."""
    log = tmp_path / f"child-{time.monotonic_ns()}.log"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROGRAM,
        str(Path(__file__).parent),
        json.dumps({"options": options, "log": str(log)}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        place = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()
        assert place, "the child did not start"
        yield Child(process, place, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def system(name: str = "parent", **options: Any) -> AsyncIterator[ActorSystem]:
    """An actor system of this process, connected."""
    made = ActorSystem(name)
    await attach_remote(made, settings_of(options))
    try:
        yield made
    finally:
        await made.terminate()


async def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Wait for a condition, in real time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {timeout_s:g} s in vain: {what}")
        await asyncio.sleep(0.01)


def watcher_of(system: ActorSystem, target: ActorRef) -> Watcher:
    """Start a watcher; returns the actor itself, whose messages a test can read."""
    watcher = Watcher(target)
    system.spawn(lambda: watcher)
    return watcher


async def serve(arguments: dict[str, Any]) -> None:
    logging.basicConfig(filename=arguments["log"], level=logging.WARNING, format="%(levelname)s %(message)s")
    made = ActorSystem("child")
    await attach_remote(made, settings_of(arguments["options"]))
    made.spawn(Echo, "echo", mailbox_capacity=1_000_000)
    print(f"{made.address.host}:{made.address.port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await made.terminate()
