"""A worker under simulation: masters that follow a script, and a launcher without processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.launching import (
    Launch,
    Launched,
    LaunchFailed,
    LogChunk,
    ProcessExited,
    ProcessKind,
)
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.cluster.messages.registration import (
    HeldSlots,
    RegisterWorker,
    WorkerRefused,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.cluster.worker import LaunchEnvironment, LaunchError, Worker, WorkerSettings
from drivetrain.cluster.worker.launch_requests import OnEnd
from drivetrain.cluster.worker.machine_load import Load
from drivetrain.config import Config
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Node, Simulation

SECRET = "a secret for simulations only"
PORT = 7
SLOTS = 4
SPEC = ApplicationSpec("app", "0" * 64, "app.py")


async def connect(node: Node, system: str) -> ActorSystem:
    made = ActorSystem(system, rng=node.random)
    settings = RemoteSettings(
        host=node.name,
        port=PORT,
        keys=Keyring(system, lambda: (SECRET,)),
        guard=guard_of(system),
        heartbeat_interval_ms=500,
        heartbeat_pause_ms=2_000,
        connect_timeout_ms=1_000,
    )
    await attach_remote(made, settings, transport=node.transport, entropy=node.entropy)
    return made


class ScriptedMaster(Actor):
    """Believes in the leader that the scenario gives it; leads when that is itself."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.has: dict[str, tuple[HeldSlots, ...]] = {}

    def pre_start(self) -> None:
        self.world.references[self.name] = self.context.me
        self.world.actors[self.name] = self

    def receive(self, message: Message) -> None:
        term, leads = self.world.belief[self.name]
        leader = Leader(term, f"{leads}:{PORT}" if leads else None, self.world.references.get(leads))
        match message:
            case GetLeader():
                self.context.reply(leader)
            case Launched() | LaunchFailed() | ProcessExited():
                self.world.told.append(message)
            case _ if leads != self.name:
                if self.context.sender is not None:
                    self.context.reply(NotLeader(leader))
            case RegisterWorker(info) if self.world.refuses:
                self.world.refused_ms.append(self.world.simulation.now_ms)
                self.context.reply(WorkerRefused("version", "another version", "use the same"))
            case RegisterWorker(info, worker, held):
                self.world.workers[info.worker_id] = worker
                self.has[info.worker_id] = held
                self.context.reply(WorkerRegistered(info.worker_id, term))
            case WorkerReport(worker_id, held):
                if worker_id in self.has:
                    self.has[worker_id] = held


class FakeLauncher:
    """Launches nothing: a process begins after a while, and ends when it is stopped or at random."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node = world, node
        self.running: dict[str, bool] = {}
        self.stopped: set[str] = set()
        self.is_closed = False

    async def open(self, worker_id: str, on_end: OnEnd) -> list[str]:
        self.on_end = on_end
        return []

    async def launch(self, launch: Launch, surroundings: LaunchEnvironment) -> int:
        assert launch.launch_id not in self.world.launched, "invariant 2: launched twice"
        self.world.launched.append(launch.launch_id)
        await asyncio.sleep(self.node.random.uniform(0.0, 2.0))
        if launch.launch_id in self.stopped or self.node.random.random() < 0.1:
            raise LaunchError("it cannot be", failure_code="no-process")
        self.running[launch.launch_id] = True
        asyncio.get_running_loop().call_later(
            self.node.random.uniform(0.0, 20.0), self._end, launch.launch_id, 0
        )
        return 100 + len(self.world.launched)

    async def stop(self, launch_id: str, grace_ms: int) -> None:
        self.stopped.add(launch_id)
        self._end(launch_id, -9)

    def _end(self, launch_id: str, status: int) -> None:
        if self.running.pop(launch_id, False) and not self.is_closed:
            self.on_end(launch_id, status, "its last words")

    async def read_log(
        self, app_id: str, process: str | None, offset: int | None, max_bytes: int
    ) -> LogChunk | None:
        return None

    async def tidy(self) -> None:
        return

    async def close(self) -> None:
        self.is_closed = True
        self.running.clear()


class IdleMachine:
    def read(self) -> Load:
        return Load(0.0, 2**30)


@dataclass
class World:
    """Three masters and one worker; `belief` is (term, who leads) by master."""

    simulation: Simulation
    leader_timeout_ms: int = 600_000
    belief: dict[str, tuple[int, str]] = field(default_factory=dict)
    references: dict[str, ActorRef] = field(default_factory=dict)
    actors: dict[str, ScriptedMaster] = field(default_factory=dict)
    workers: dict[str, ActorRef] = field(default_factory=dict)
    told: list[Message] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    ends: list[UnavailableError] = field(default_factory=list)
    refused_ms: list[int] = field(default_factory=list)
    refuses: bool = False
    term: int = 0

    def __post_init__(self) -> None:
        self.masters = self.simulation.nodes("m1", "m2", "m3")
        self.box = self.simulation.node("box")
        self.worker: Worker | None = None
        self.launcher: FakeLauncher | None = None

    async def start(self, leader: str = "m1") -> None:
        for master in self.masters:
            self.belief[master.name] = (0, "")
        for master in self.masters:
            await master.start(self.serve_master)
        self.elect(leader)
        await self.box.start(self._serve_worker)

    def elect(self, leader: str, told: tuple[str, ...] = ("m1", "m2", "m3")) -> None:
        """Begin a new term; masters that are not in `told` keep believing in the former leader."""
        self.term += 1
        for name in {leader, *told}:
            self.belief[name] = (self.term, leader)

    async def serve_master(self, node: Node) -> None:
        system = await connect(node, "master")
        system.spawn(lambda: ScriptedMaster(self, node.name), "master")

    async def _serve_worker(self, node: Node) -> None:
        system = await connect(node, "worker")
        settings = WorkerSettings(
            name="box",
            slots=SLOTS,
            host="box",
            directory=Path("/nowhere"),
            spare_executors=0,
            leader_timeout_ms=self.leader_timeout_ms,
            drain_timeout_ms=3_000,
            report_interval_ms=1_000,
            code_timeout_ms=1_000,
            code_retention_ms=1_000,
            state_retention_ms=1_000,
            log_size_bytes=1_000,
            log_count=2,
            log_retention_ms=1_000,
            config=Config(),
        )
        places = tuple(f"{master.name}:{PORT}" for master in self.masters)

        def make() -> Worker:
            self.launcher = FakeLauncher(self, node)
            self.worker = Worker(
                settings, places, self.launcher, IdleMachine(), node.clock_ms, self.ends.append
            )
            return self.worker

        system.spawn(make, "worker")

    def launch(self, number: int, owner: str, epoch: int = 1) -> Launch:
        return Launch(
            f"launch-{number}", ProcessKind.APP_MASTER, "app-1", epoch, SPEC, 1, self.references[owner]
        )

    def is_known_to(self, leader: str) -> bool:
        """Whether this master has registered the current worker with the launches that it holds now, and
        the worker knows it."""
        worker = self.worker
        if worker is None or not worker.is_registered or self.launcher is None:
            return False
        has = self.actors[leader].has.get(worker.worker_id)
        return has is not None and {held.allocation_id for held in has} == set(self.launcher.running)
