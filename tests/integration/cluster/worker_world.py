"""Helpers for tests of a real worker process: a scripted leader, a worker, programs, a list of processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from drivetrain.actor import Actor, ActorRef, ActorSystem, Failure, Message
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.code import CHUNK_BYTES, CodeChunk, GetCode
from drivetrain.cluster.messages.launching import Launch, ProcessKind
from drivetrain.cluster.messages.leadership import GetLeader, Leader
from drivetrain.cluster.messages.registration import (
    RegisterWorker,
    WorkerRefused,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.code.archive import Archive, pack

M = TypeVar("M", bound=Message)

DEADLINE_S = 180.0
PREAMBLE = """
import os, subprocess, sys, time
from drivetrain.cluster.parent import wait_for_launch_file
launch = wait_for_launch_file()
"""


class ScriptedLeader(Actor):
    """Leads, accepts every worker (or refuses with `refusal`), has one archive, and keeps the messages it
    gets."""

    def __init__(self, address: str, archive: Archive) -> None:
        self.address, self.archive = address, archive
        self.told: list[Message] = []
        self.worker: ActorRef | None = None
        self.refusal: WorkerRefused | None = None

    def receive(self, message: Message) -> None:
        self.told.append(message)
        match message:
            case GetLeader():
                self.context.reply(Leader(1, self.address, self.context.me))
            case RegisterWorker(info, worker) if self.refusal is None:
                self.worker = worker
                self.context.reply(WorkerRegistered(info.worker_id, 1))
            case RegisterWorker():
                self.context.reply(self.refusal)
            case GetCode(sha256, offset) if sha256 == self.archive.sha256:
                data = self.archive.data
                self.context.reply(CodeChunk(sha256, offset, len(data), data[offset : offset + CHUNK_BYTES]))
            case GetCode():
                self.context.reply(Failure("no-code", "there is no such archive"))


class World:
    """A scripted leader in this process, and workers in others."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.processes: list[subprocess.Popen[bytes]] = []
        self.launches = 0

    async def open(self) -> None:
        application = self.tmp_path / "application"
        application.mkdir(exist_ok=True)
        (application / "app.py").write_text("name = 'app'\n")
        self.archive = pack(application / "app.py")
        self.system = ActorSystem("master")
        await attach_remote(self.system, RemoteSettings(heartbeat_interval_ms=200, heartbeat_pause_ms=2_000))
        address = self.system.address
        self.masters = f"{address.host}:{address.port}"
        self.leader = ScriptedLeader(self.masters, self.archive)
        self.me = self.system.spawn(lambda: self.leader, "master")

    async def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        await self.system.terminate()

    def program(self, name: str, text: str) -> str:
        """The path of a program for a launched process: it reads its launch file, and then runs `text`."""
        path = self.tmp_path / f"{name}.py"
        path.write_text(PREAMBLE + text)
        return str(path)

    def start_worker(self, program: str, **sets: object) -> subprocess.Popen[bytes]:
        given = {
            "cluster.masters": self.masters,
            "worker.name": "box",
            "worker.slots": 4,
            "worker.directory": self.tmp_path / "worker",
            "worker.report-interval": "200 ms",
            "worker.drain-timeout": "3 s",
            "worker.spare-executors": 0,
            **{name.replace("__", ".").replace("_", "-"): value for name, value in sets.items()},
        }
        told = {
            "sets": {name: str(value) for name, value in given.items()},
            "commands": {kind.value: [program] for kind in ProcessKind},
        }
        script = str(Path(__file__).with_name("worker_process.py"))
        process = subprocess.Popen(
            [sys.executable, script, json.dumps(told)], stderr=(self.tmp_path / "worker.log").open("ab")
        )
        self.processes.append(process)
        return process

    async def registered(self) -> ActorRef:
        """The worker that registered last."""
        await self.until(lambda: self.leader.worker is not None, "a worker registers")
        assert self.leader.worker is not None
        return self.leader.worker

    def launch(self, kind: ProcessKind = ProcessKind.APP_MASTER, **changes: object) -> Launch:
        self.launches += 1
        values: dict[str, object] = {
            "launch_id": f"launch-{self.launches}",
            "kind": kind,
            "app_id": "app-1",
            "epoch": 1,
            "spec": ApplicationSpec("app", self.archive.sha256, self.archive.file),
            "slots": 1,
            "owner": self.me,
            **changes,
        }
        return Launch(**values)  # type: ignore[arg-type]

    def of(self, kind: type[M]) -> list[M]:
        """The messages of this class that the leader got, oldest first."""
        return [message for message in self.leader.told if isinstance(message, kind)]

    async def told(self, kind: type[M], count: int = 1) -> M:
        """The `count`-th message of this class, once it has arrived."""
        await self.until(lambda: len(self.of(kind)) >= count, f"{count} times {kind.__name__}")
        return self.of(kind)[count - 1]

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end_s:
                log = (self.tmp_path / "worker.log").read_text(errors="replace")[-3000:]
                raise AssertionError(f"not within {DEADLINE_S} s: {what}; the worker's log:\n{log}")
            await asyncio.sleep(0.02)

    def left(self, mark: str | None = None) -> list[psutil.Process]:
        """All processes that mention this test's directory, or `mark`, in their arguments or environment."""
        wanted = mark or str(self.tmp_path)
        found = []
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            try:
                text = " ".join(process.cmdline()) + " ".join(process.environ().values())
                if wanted in text and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    @property
    def held(self) -> tuple[str, ...] | None:
        """The launches that the worker's last report lists."""
        reports = self.of(WorkerReport)
        return tuple(slots.allocation_id for slots in reports[-1].held) if reports else None


def kill(process: subprocess.Popen[bytes] | int) -> None:
    os.kill(process if isinstance(process, int) else process.pid, signal.SIGKILL)
