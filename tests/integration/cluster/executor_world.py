"""Executor processes, started as a worker would, and an application master that follows a script."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil

from drivetrain.actor import Actor, ActorRef, ActorSystem, Failure, Message
from drivetrain.actor.remote import attach_remote
from drivetrain.cluster.access.system_names import app_master_name
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.executing import (
    Deploy,
    ExecutorRegistered,
    ExecutorReport,
    FragmentChanged,
    FragmentChangedReply,
    FragmentOutcome,
    FragmentProgress,
    RegisterExecutor,
)
from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.cluster.parent import PARENT_VARIABLE

WITHIN_S = 150.0
EPOCH = 3


class ScriptedAppMaster(Actor):
    """Records the messages of executors; refuses epochs below `EPOCH`, answers everything else."""

    def __init__(self, world: World) -> None:
        self.world = world

    def receive(self, message: Message) -> None:
        match message:
            case RegisterExecutor() if message.epoch < EPOCH:
                self.context.reply(Failure("stale-epoch", f"this is epoch {EPOCH}"))
            case RegisterExecutor():
                self.world.executors[message.executor_id] = message
                self.context.reply(ExecutorRegistered(self.world.spec, 100))
            case FragmentChanged():
                key = (message.fragment, message.attempt, message.outcome)
                if key not in self.world.heard:
                    # Every outcome is refused the first time, as may happen: the executor must ask again.
                    self.world.heard[key] = message
                    self.context.reply(Failure("not-now", "ask again"))
                    return
                self.world.order.append(key)
                self.context.reply(FragmentChangedReply(message.fragment not in self.world.forgotten))
            case ExecutorReport():
                self.world.reports.append(message)
            case _:
                self.context.unhandled(message)


class World:
    """One application's executors and their application master."""

    def __init__(self, directory: Path, app: Path, settings: dict[str, str], **config: str) -> None:
        self.directory = directory
        self.spec = ApplicationSpec(
            name="app", code="", file=app.name, settings=settings, directory=str(directory)
        )
        self.code = app.parent
        self.config = {
            "spark.driver-memory": "1 GiB",
            "state.dir": str(directory / "state"),
            **{k.replace("__", ".").replace("_", "-"): v for k, v in config.items()},
        }
        self.executors: dict[str, RegisterExecutor] = {}
        self.heard: dict[tuple[str, int, FragmentOutcome], FragmentChanged] = {}
        self.order: list[tuple[str, int, FragmentOutcome]] = []
        self.reports: list[ExecutorReport] = []
        self.forgotten: set[str] = set()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.system: ActorSystem
        self.app_master: ActorRef

    async def open(self) -> None:
        self.system = ActorSystem(app_master_name("app-1", EPOCH))
        await attach_remote(self.system)
        self.app_master = self.system.spawn(lambda: ScriptedAppMaster(self), "app-master")

    async def close(self) -> None:
        for process in self.processes.values():
            kill_all(process)
        await self.system.terminate()

    # -- processes -------------------------------------------------------------------------------------

    def launch(self, name: str, epoch: int = EPOCH) -> subprocess.Popen[bytes]:
        work = self.directory / name
        work.mkdir()
        launch = LaunchFile(
            kind=ProcessKind.EXECUTOR,
            launch_id=name,
            app_id="app-1",
            epoch=epoch,
            spec=self.spec,
            slots=1,
            owner=str(self.app_master.path),
            app_master=str(self.app_master.path),
            code_directory=str(self.code),
            work_directory=str(work),
            worker_id="w",
            worker_name="w",
            worker=str(self.app_master.path),
            masters=[],
            host="127.0.0.1",
            config=self.config,
        )
        launch.save(work / "launch.json")
        with open(work / "log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "drivetrain.cluster.executor", str(work / "launch.json")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=work,
                start_new_session=True,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
            )
        self.processes[name] = process
        return process

    def log(self, name: str) -> str:
        return (self.directory / name / "log").read_text()

    async def started(self, name: str) -> ActorRef:
        process = self.launch(name)
        await self.until(lambda: name in self.executors or process.poll() is not None)
        assert name in self.executors, self.log(name)
        return self.executors[name].executor

    async def ended(self, name: str) -> int:
        process = self.processes[name]
        await self.until(lambda: process.poll() is not None)
        return process.returncode

    async def until(self, condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            logs = {name: self.log(name)[-2000:] for name in self.processes}
            assert time.monotonic() < deadline, (self.order, logs)
            await asyncio.sleep(0.05)

    # -- the application ---------------------------------------------------------------------------------

    async def ask(self, executor: ActorRef, message: Message) -> Message:
        return await executor.ask(message, timeout_ms=int(WITHIN_S * 1000))

    def deploy(self, executor: ActorRef, fragment: str, attempt: int = 0) -> None:
        executor.tell(Deploy(fragment, attempt, EPOCH), self.app_master)

    async def outcome(self, fragment: str, attempt: int, *outcomes: FragmentOutcome) -> FragmentChanged:
        """Wait until an attempt has one of these outcomes (or has failed)."""
        wanted = [(fragment, attempt, o) for o in (*outcomes, FragmentOutcome.FAILED)]
        await self.until(lambda: any(key in self.order for key in wanted))
        return next(self.heard[key] for key in wanted if key in self.order)

    def progress(self, fragment: str, attempt: int = 0) -> FragmentProgress | None:
        """The newest progress of an attempt."""
        found = [
            p for r in self.reports for p in r.fragments if (p.fragment, p.attempt) == (fragment, attempt)
        ]
        return found[-1] if found else None

    def accumulators(self, fragment: str) -> dict[str, Any]:
        found = [r.accumulators[fragment] for r in self.reports if fragment in r.accumulators]
        return dict(found[-1]) if found else {}


def drive(world: World, script: Callable[[World], Awaitable[None]]) -> None:
    """Run a script while the application master runs, and end everything that it started."""

    async def run() -> None:
        await world.open()
        try:
            await script(world)
        finally:
            await world.close()

    asyncio.run(run())


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """A process and everything that it started, including Spark's Java."""
    try:
        top = psutil.Process(process.pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_all(process: subprocess.Popen[bytes]) -> None:
    for member in family(process):
        try:
            member.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    process.wait(30)
    if process.stdin is not None:
        process.stdin.close()
