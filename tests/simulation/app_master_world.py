"""A small cluster around the real `StreamAppMaster`: simulated masters, workers and executors.

The world keeps everything that would be on disks (registry, state directory with its locks) and, for the
checks, its own record of the executors' actions. Fragments run `BATCHES` batches each; a consumer's batch
needs its producer's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from drivetrain.actor import (
    Actor,
    ActorFailedError,
    ActorPath,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskError,
    Failure,
    Message,
    Terminated,
)
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.access.system_names import app_master_name, executor_name
from drivetrain.cluster.app_master.app_master_messages import Setup
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.app_master.stream.stream_app_master import StreamAppMaster
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationState
from drivetrain.cluster.messages.executing import (
    CancelFragment,
    Conclude,
    Concluded,
    Deploy,
    EndExecutor,
    ExecutorRegistered,
    ExecutorReport,
    FragmentChanged,
    FragmentChangedReply,
    FragmentOutcome,
    FragmentProgress,
    Prepare,
    Prepared,
    RegisterExecutor,
)
from drivetrain.cluster.messages.following import ErrorView, JobStatus
from drivetrain.cluster.messages.launching import Launch, Launched, ProcessExited, StopProcess
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.cluster.messages.registration import (
    AppMasterRegistered,
    AppMasterReport,
    RegisterAppMaster,
    ReportAccepted,
)
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots, SlotsAllocated, SlotsRefused
from drivetrain.config import Config
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.fragment_execution import FragmentId
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, Phases
from drivetrain.core.job.job_events import Vertex
from drivetrain.simulator import Node, ProcessEndedError, Simulation

SECRET = "a secret for simulations only"
PORT = 7
APP = "wc-1"
BATCHES = 4
GRAPH = {"read": (), "count": ("read",), "other": (), "join": ("count", "other")}
SETTINGS = {
    "app.executors": "2",
    "restart.attempts": "40",
    "restart.job-attempts": "30",
    "restart.delay": "200 ms",
    "restart.maximum-delay": "2 s",
    "app.start-timeout": "10 s",
    "app.prepare-timeout": "20 s",
    "app.cancel-timeout": "5 s",
    "app.slots-timeout": "3 s",
}


@dataclass
class Records:
    """The actions of executors, recorded when they happen."""

    prepared: int = 0
    cleared: int = 0
    concluded: int = 0
    committed: Counter[str] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)
    counted: Counter[int] = field(default_factory=Counter)  # batches by epoch
    final: dict[tuple[int, str, int], int] = field(default_factory=dict)  # acknowledged last reports
    deployed: set[tuple[int, str, int]] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)
    crashes: int = 0


class World:
    """All nodes, the registry and the state directory."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        failures: int,
        refusals: int,
        fresh: bool = False,
        replay_from_ms: int | None = None,
    ) -> None:
        self.simulation = simulation
        self.random = simulation.random
        self.records = Records()
        self.term, self.leader = 1, "m1"
        self.epoch = 0
        self.registry: AppMasterReport | None = None
        self.restarts: bytes | None = None
        self.failures, self.refusals = failures, refusals  # that are still to come
        # As the registry has it.
        self.spec = ApplicationSpec("wc", "0" * 64, "wc.py", fresh=fresh, replay_from_ms=replay_from_ms)
        self.begins_anew = self.spec.begins_anew
        self.masters = simulation.nodes("m1", "m2")
        self.workers = simulation.nodes("w1", "w2")
        self.app_master: Node = simulation.node("am1")
        self.executors: dict[str, Node] = {}  # by launch id
        self.owner_worker: dict[str, Node] = {}
        self.ending: set[str] = set()
        self.locks: dict[str, tuple[Node, int]] = {}
        self.running: dict[tuple[str, str], tuple[int, int]] = {}  # (launch, fragment): epoch, attempt
        self.paths: dict[str, str] = {}
        self.actor: StreamAppMaster | None = None
        self.disturbed: set[str] = set()
        self.is_calm = True
        self.refuse = "no-slots"
        self.settings: dict[str, str] = {}
        self.clock_ms: int | None = replay_from_ms  # as in the registry
        self.start_ms = replay_from_ms or 0
        self.told_ms = 0  # the highest clock that an application master has announced

    # ---- the clock

    def take_clock(self, clock_ms: int | None) -> None:
        """Take a report's clock, which must not be ahead of what every fragment has committed."""
        if clock_ms is None:
            return
        behind = [f for f in GRAPH if self.records.committed[f] < min(clock_ms, BATCHES)]
        if behind and clock_ms > self.start_ms:
            self.records.violations.append(f"the clock is {clock_ms}, and {behind} are not there")
        self.clock_ms = max(clock_ms, self.clock_ms or 0)

    def hear_clock(self, clock_ms: int | None) -> None:
        """Take the clock that an application master announces."""
        if clock_ms is None:
            return
        if clock_ms < self.told_ms:
            self.records.violations.append(f"the clock goes back from {self.told_ms} to {clock_ms}")
        is_end = clock_ms == FINAL_CLOCK_MS and all(self.records.committed[f] == BATCHES for f in GRAPH)
        if is_end:
            return  # persisted with the report: the next application master begins with the registry's clock
        if self.clock_ms is None or clock_ms > self.clock_ms:
            self.records.violations.append(
                f"the clock {clock_ms} is told, and the registry has {self.clock_ms}"
            )
        self.told_ms = clock_ms

    # ---- processes

    async def system(self, node: Node, name: str) -> ActorSystem:
        """A system that listens on `node`."""
        config = Config.load(None, None, SETTINGS | self.settings)
        system = ActorSystem(name, rng=node.random, config=config)
        settings = RemoteSettings(
            host=node.name,
            port=PORT,
            keys=Keyring(name, lambda: (SECRET,)),
            guard=guard_of(name),
            heartbeat_interval_ms=500,
            heartbeat_pause_ms=2_000,
            connect_timeout_ms=1_000,
        )
        await attach_remote(system, settings, transport=node.transport, entropy=node.entropy)
        return system

    async def start(self) -> None:
        """Start masters, workers and the first application master."""
        for node in self.masters:
            await node.start(self._master)
        for node in self.workers:
            await node.start(self._worker)
        await self.start_app_master()

    async def _master(self, node: Node) -> None:
        system = await self.system(node, "master")
        ref = system.spawn(lambda: SimulatedMaster(self, node), "master")
        self.paths[node.name] = str(ref.path)

    async def _worker(self, node: Node) -> None:
        system = await self.system(node, "worker")
        ref = system.spawn(lambda: SimulatedWorker(self, node), "worker")
        self.paths[node.name] = str(ref.path)

    async def start_app_master(self) -> None:
        """Start the next application master, on a machine of its own."""
        self.epoch += 1
        self.app_master = self.simulation.node(f"am{self.epoch}")
        with suppress(ProcessEndedError):
            await self.app_master.start(self._app_master)

    async def _app_master(self, node: Node) -> None:
        system = await self.system(node, app_master_name(APP, self.epoch))
        setup = Setup(
            APP,
            self.epoch,
            self.spec,
            [f"m1:{PORT}", f"m2:{PORT}"],
            system.config,
            "",
            node.clock_ms,
            self.simulation.record,
        )
        vertices = tuple(
            Vertex(FragmentId(f), tuple(FragmentId(p) for p in producers)) for f, producers in GRAPH.items()
        )

        def make() -> StreamAppMaster:
            self.actor = StreamAppMaster(setup, lambda: PlannedApplication(vertices))
            return self.actor

        self.paths["am"] = str(system.spawn(make, "app-master").path)
        self.app_system = system

    def launch(self, message: Launch, worker: Node) -> bool:
        """Start the executor's process on a machine of its own; False when it was started before."""
        if message.launch_id in self.executors:
            return False
        node = self.simulation.node(f"x{len(self.executors)}")
        self.executors[message.launch_id] = node
        self.owner_worker[message.launch_id] = worker
        node.start(lambda node: self._executor(node, message))
        return True

    async def _executor(self, node: Node, launch: Launch) -> None:
        system = await self.system(node, executor_name(launch.app_id, launch.epoch, launch.launch_id))
        system.spawn(lambda: SimulatedExecutor(self, node, launch), "executor")

    def kill(self, launch_id: str) -> None:
        """End an executor's process."""
        node = self.executors[launch_id]
        if node.is_alive:
            node.crash()
        for key in [key for key in self.running if key[0] == launch_id]:
            del self.running[key]

    def living(self) -> list[str]:
        """Launch ids of executors that live, frozen ones included."""
        return [launch_id for launch_id, node in self.executors.items() if node.is_alive]

    def reap(self) -> None:
        """Do what the kernel does: end processes that called exit, and those whose worker has died."""
        for launch_id in self.living():
            is_orphan = not self.owner_worker[launch_id].is_alive
            exits = launch_id in self.ending and not self.executors[launch_id].is_frozen
            if is_orphan or exits:
                self.kill(launch_id)

    def is_over(self) -> bool:
        """Whether the registry has the end, and the application master has stopped."""
        return self.registry is not None and self.registry.state.is_over

    @property
    def result(self) -> JobStatus:
        """The result in the registry."""
        assert self.registry is not None
        assert self.registry.result is not None
        return msgspec.msgpack.decode(self.registry.result, type=JobStatus)

    # ---- the state directory

    def take_lock(self, fragment: str, node: Node) -> bool:
        """Lock the fragment's directory for this life of the node; a dead holder holds nothing."""
        holder = self.locks.get(fragment)
        if holder is not None:
            other, life = holder
            if other is not node and other.is_alive and other.life_number == life:
                return False
        self.locks[fragment] = (node, node.life_number)
        return True

    def deploying(self, launch_id: str, fragment: str, attempt: int, epoch: int) -> None:
        """Judge a deployment: no other executor may be running the fragment, as far as can be known."""
        if (epoch, fragment, attempt) in self.records.deployed:
            self.records.violations.append(f"{fragment} attempt {attempt} was deployed in two places")
        self.records.deployed.add((epoch, fragment, attempt))
        # Executors of an earlier epoch end on their own, and until then the lock keeps them from the state.
        same = {key: older for key, (of, older) in self.running.items() if of == epoch}
        for (other, f), older in same.items():
            is_sound = other not in self.disturbed and other in self.living() and other not in self.ending
            if f == fragment and other != launch_id and is_sound and self.is_calm:
                self.records.violations.append(f"{fragment}: {older} runs, {attempt} is deployed")


class SimulatedMaster(Actor):
    """Leads if the world makes it lead; its registry is the world's."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node = world, node

    def receive(self, message: Message) -> None:
        world = self.world
        leader_path = ActorPath.parse(world.paths[world.leader])
        leader = Leader(world.term, f"{world.leader}:{PORT}", self.context.system.reference(leader_path))
        if isinstance(message, GetLeader):
            self.context.reply(leader)
        elif world.leader != self.node.name:
            if self.context.sender is not None:
                self.context.reply(NotLeader(leader))
        else:
            self._lead(message)

    def _lead(self, message: Message) -> None:
        world = self.world
        match message:
            case RegisterAppMaster(epoch=epoch) | AppMasterReport(epoch=epoch) if epoch < world.epoch:
                self.context.reply(Failure("stale-epoch", "another one was started"))
            case RegisterAppMaster():
                told = world.clock_ms
                answer = AppMasterRegistered(APP, world.epoch, world.spec, told, 0, world.restarts)
                self.context.reply(answer)
            case AppMasterReport():
                if message.state.is_over and world.is_calm and not world.disturbed:
                    left = [i for i in world.living() if i.startswith(f"{APP}.{message.epoch}-")]
                    if left:
                        world.records.violations.append(f"the end was reported while {left} lived")
                world.take_clock(message.clock_ms)
                if world.registry is None or not world.registry.state.is_over:
                    world.registry, world.restarts = message, message.restarts
                    if message.prepared:
                        world.spec = msgspec.structs.replace(
                            world.spec, fresh=False, replay_from_ms=None, savepoint=None
                        )
                self.context.reply(ReportAccepted())
            case RequestSlots():
                self._allocate(message)
            case CancelRequest():
                pass

    def _allocate(self, request: RequestSlots) -> None:
        world = self.world
        workers = [node for node in world.workers if node.is_alive]
        if not workers or (world.refusals and world.random.random() < 0.3):
            world.refusals = max(0, world.refusals - 1)
            request.requester.tell(SlotsRefused(request.request_id, world.refuse, "none are free"))
            return
        node = workers[sum(map(ord, request.request_id)) % len(workers)]
        if request.worker is not None:
            node = world.simulation.node(request.worker)
            if not node.is_alive:
                return  # the request waits, until the leader replaces the application master
        worker = self.context.system.reference(ActorPath.parse(world.paths[node.name]))
        allocation = f"{request.request_id}-{node.name}-{node.life_number}"
        request.requester.tell(
            SlotsAllocated(request.request_id, allocation, node.name, node.name, node.name, worker, 1)
        )


class SimulatedWorker(Actor):
    """Starts and stops executors, and notifies their owners when they have ended."""

    def __init__(self, world: World, node: Node) -> None:
        self.world, self.node = world, node
        self.owners: dict[str, ActorRef] = {}
        self.told: set[str] = set()

    def pre_start(self) -> None:
        self.context.timers.start_periodic("look", Look(), interval_ms=200)

    def receive(self, message: Message) -> None:
        world = self.world
        match message:
            case Launch(launch_id):
                if world.launch(message, self.node):
                    self.owners[launch_id] = message.owner
                message.owner.tell(Launched(launch_id, self.node.name, 1))
            case StopProcess(launch_id):
                if launch_id in self.owners and world.executors[launch_id].is_alive:
                    world.kill(launch_id)
                self.told.discard(launch_id)
            case Look():
                world.reap()
                for launch_id, owner in self.owners.items():
                    if not world.executors[launch_id].is_alive and launch_id not in self.told:
                        self.told.add(launch_id)
                        owner.tell(ProcessExited(launch_id, _executor_kind(), APP, -9, ""))


class Look(Message, frozen=True, tag="dt.local.simulated.look"):
    pass


class Done(Message, frozen=True, tag="dt.local.simulated.done"):
    pass


class SimulatedExecutor(Actor):
    """Runs the batches of fragments, under the locks of the state directory."""

    def __init__(self, world: World, node: Node, launch: Launch) -> None:
        self.world, self.node, self.launch = world, node, launch
        self.seen: set[tuple[str, int]] = set()
        self.canceled: set[tuple[str, int]] = set()
        self.batches: dict[tuple[str, int], int] = {}
        self.going: dict[str, int] = {}

    def pre_start(self) -> None:
        assert self.launch.app_master is not None
        self.app_master = self.context.system.reference(ActorPath.parse(self.launch.app_master))
        self.context.watch(self.app_master)
        self.context.timers.start_periodic("report", Look(), interval_ms=500)
        self._beside(self._register())

    def receive(self, message: Message) -> None:
        launch, world = self.launch, self.world
        match message:
            case Prepare(fresh=fresh, replay_from_ms=replay_from_ms):
                self._prepare(begins=fresh or replay_from_ms is not None)
            case Deploy(fragment, attempt, epoch) if epoch == launch.epoch:
                if (fragment, attempt) not in self.seen:
                    self.seen.add((fragment, attempt))
                    world.deploying(launch.launch_id, fragment, attempt, epoch)
                    self._beside(self._run(fragment, attempt))
            case CancelFragment(fragment, attempt):
                self.canceled.add((fragment, attempt))
            case Conclude():
                world.records.concluded += 1
                if any(world.records.committed[f] != BATCHES for f in GRAPH):
                    world.records.violations.append("concluded before every fragment has finished")
                self.context.reply(Concluded("done"))
            case EndExecutor():
                world.ending.add(launch.launch_id)
            case Terminated():
                world.ending.add(launch.launch_id)
            case Look():
                self._tell_report()

    def _prepare(self, *, begins: bool) -> None:
        records = self.world.records
        records.prepared += 1
        if begins:
            records.cleared += 1
            if records.committed:
                records.violations.append("the state was forgotten while there was some")
        resumed = bool(records.committed)
        self.context.reply(Prepared(False, resumed, "local"))

    async def _register(self) -> None:
        launch = self.launch
        hello = RegisterExecutor(launch.launch_id, APP, launch.epoch, self.context.me, 1, self.node.name)
        while True:
            try:
                await self.app_master.ask(hello, ExecutorRegistered, timeout_ms=1_000)
            except (ActorFailedError, ActorStoppedError):
                self.world.ending.add(launch.launch_id)
                return
            except AskError:
                await asyncio.sleep(0.3)
            else:
                return

    def _beside(self, work: Any) -> None:
        self.context.pipe_to_self(work, lambda _: Done(), lambda error: Failure("x", str(error)))

    async def _run(self, fragment: str, attempt: int) -> None:
        world, key = self.world, (fragment, attempt)
        where = (self.launch.launch_id, fragment)
        world.running[where] = self.launch.epoch, attempt
        self.going[fragment] = attempt
        self.batches[key] = 0
        await asyncio.sleep(self.node.random.uniform(0.05, 0.4))
        outcome = await self._batches(fragment, attempt)
        if world.locks.get(fragment, (None, 0))[0] is self.node:
            del world.locks[fragment]
        if world.running.get(where) == (self.launch.epoch, attempt):
            del world.running[where]
        await self._say(fragment, attempt, outcome)

    async def _batches(self, fragment: str, attempt: int) -> FragmentOutcome:
        world, records, key = self.world, self.world.records, (fragment, attempt)
        while not world.take_lock(fragment, self.node):
            if key in self.canceled:
                return FragmentOutcome.CANCELED
            await asyncio.sleep(0.2)
        self._beside(self._say(fragment, attempt, FragmentOutcome.RUNNING))
        while records.committed[fragment] < BATCHES:
            if key in self.canceled:
                return FragmentOutcome.CANCELED
            await asyncio.sleep(self.node.random.uniform(0.05, 0.5))
            if world.failures and self.node.random.random() < 0.15:
                world.failures -= 1
                return FragmentOutcome.FAILED
            if all(records.committed[p] > records.committed[fragment] for p in GRAPH[fragment]):
                records.committed[fragment] += 1
                records.counted[self.launch.epoch] += 1
                self.batches[key] += 1
                if records.committed[fragment] == BATCHES:
                    records.finished[fragment] += 1
        return FragmentOutcome.FINISHED

    def _report(self, fragments: dict[str, int]) -> ExecutorReport:
        progress = tuple(
            FragmentProgress(
                f,
                a,
                self.batches[f, a] - 1,
                self.batches[f, a],
                0.0,
                1,
                None,
                self.world.records.committed[f],
                {f: self.batches[f, a]},
                settled_clock_ms=self.world.records.committed[f],
                figures=FragmentFigures(
                    Counters(n := self.batches[f, a], Phases(sink_ms=n), blocked_ms={f: n})
                ),
            )
            for f, a in fragments.items()
        )
        counters: dict[str, dict[str, int | float]] = {
            f: {"batches": self.batches[f, a]} for f, a in fragments.items()
        }
        return ExecutorReport(self.launch.launch_id, self.launch.epoch, progress, counters)

    def _tell_report(self) -> None:
        self.app_master.tell(self._report(dict(self.going)), self.context.me)

    async def _say(self, fragment: str, attempt: int, outcome: FragmentOutcome) -> None:
        report = self._report({fragment: attempt})
        error = ErrorView("operator", "it raised") if outcome is FragmentOutcome.FAILED else None
        change = FragmentChanged(self.launch.launch_id, fragment, attempt, outcome, error, report=report)
        while True:
            try:
                answer = await self.app_master.ask(change, FragmentChangedReply, timeout_ms=1_000)
            except ActorStoppedError:
                return
            except AskError:  # like `report_outbox`: a refused report is sent again
                await asyncio.sleep(0.3)
                continue
            if answer.known and outcome is not FragmentOutcome.RUNNING:
                key = (self.launch.epoch, fragment, attempt)
                self.world.records.final[key] = self.batches[fragment, attempt]
            if not answer.known:
                self.canceled.add((fragment, attempt))
            return


def _executor_kind() -> Any:
    from drivetrain.cluster.messages.launching import ProcessKind

    return ProcessKind.EXECUTOR


def succeeded(world: World) -> bool:
    """Whether the registry records success."""
    return world.registry is not None and world.registry.state is ApplicationState.SUCCEEDED
