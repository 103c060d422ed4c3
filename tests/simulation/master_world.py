"""A small cluster for simulations: real masters; simulated workers, application masters and clients.

The checkers keep their own records: of the answers that clients got, of the masters that claim to lead and
when, and of the application masters that were accepted. They do not use the code under test.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from drivetrain import __version__
from drivetrain.actor import Actor, ActorFailedError, ActorRef, ActorSystem, Message
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.actor.remote.remote_settings import DEFAULT_FRAME_LIMIT_BYTES
from drivetrain.cluster.master.master_messages import Leadership, StepDown
from drivetrain.cluster.master.master_process import start_master
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import (
    Accepted,
    Applications,
    ApplicationSpec,
    ApplicationState,
    FoundApplication,
    GetApplications,
    Kill,
    Submit,
)
from drivetrain.cluster.messages.following import StopApplication
from drivetrain.cluster.messages.launching import (
    EndEpoch,
    Launch,
    Launched,
    LaunchFailed,
    ProcessExited,
    StopProcess,
)
from drivetrain.cluster.messages.leadership import GetLeader, Leader, NotLeader
from drivetrain.cluster.messages.registration import (
    AppMasterRegistered,
    AppMasterReport,
    HeldSlots,
    RegisterAppMaster,
    RegisterWorker,
    ReportAccepted,
    WorkerInfo,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.simulator import Node, ProcessEndedError, Simulation

SECRET = "a secret for simulations only"
PORT = 7
LEASE_MS = 600
INTERVAL_MS = 250
PAUSE_MS = 1_000


class Beat(Message, frozen=True, tag="master-world.beat"):
    pass


class Die(Message, frozen=True, tag="master-world.die"):
    pass


@dataclass
class Records:
    """What happened, for the checks."""

    leaders: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    violations: list[str] = field(default_factory=list)
    accepted: dict[str, str] = field(default_factory=dict)  # app_id by submission
    killed: set[str] = field(default_factory=set)
    maybe_killed: set[str] = field(default_factory=set)  # kills requested; an answer may have been lost
    clocks: dict[str, int] = field(default_factory=dict)  # the highest start clock whose report was taken
    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    registered: dict[tuple[str, int], set[ActorRef]] = field(default_factory=lambda: defaultdict(set))
    newest_epoch: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    app_masters: dict[ActorRef, AppMaster] = field(default_factory=dict)
    ended_epochs: list[tuple[str, str, int]] = field(default_factory=list)  # with the worker that was told


class Seeker:
    """Finds the leader as workers and application masters do, in short."""

    def __init__(self, world: World, system: ActorSystem) -> None:
        self._world = world
        self._system = system

    async def find(self) -> ActorRef | None:
        """Ask the masters in turn; returns the one that reports itself as the leader."""
        for address in self._world.addresses:
            try:
                master = await self._system.lookup(
                    f"drivetrain://master@{address}/user/master", timeout_ms=300
                )
                leader = await master.ask(GetLeader(), Leader, timeout_ms=300)
            except UnavailableError:
                continue
            if leader.address == address and leader.master is not None:
                return leader.master
        return None


class AppMaster(Actor):
    """Registers, reports, and ends when it is stopped or refused."""

    def __init__(self, world: World, launch: Launch) -> None:
        self._world = world
        self.launch = launch
        self.is_active = False
        self.leader: ActorRef | None = None

    def pre_start(self) -> None:
        self._world.records.app_masters[self.context.me] = self
        self.context.timers.start_periodic("beat", Beat(), interval_ms=500, initial_delay_ms=0)

    def post_stop(self) -> None:
        self.is_active = False
        self._world.records.app_masters.pop(self.context.me, None)

    async def receive(self, message: Message) -> None:
        match message:
            case Beat():
                await self._beat()
            case StopApplication(epoch, _) if epoch >= self.launch.epoch:
                self.context.stop()
            case Die():
                self.context.stop()

    async def _beat(self) -> None:
        records, app_id, epoch = self._world.records, self.launch.app_id, self.launch.epoch
        try:
            if self.leader is None:
                self.leader = await Seeker(self._world, self.context.system).find()
                self.is_active = False
            if self.leader is None:
                return
            if not self.is_active:
                request = RegisterAppMaster(app_id, epoch, self.context.me)
                answer = await self.leader.ask(request, timeout_ms=600)
                if not isinstance(answer, AppMasterRegistered):
                    self.leader = None
                    return
                self.is_active = True
                records.registered[app_id, epoch].add(self.context.me)
                if len(records.registered[app_id, epoch]) > 1:
                    records.violations.append(f"two application masters of {app_id} in epoch {epoch}")
                records.newest_epoch[app_id] = max(records.newest_epoch[app_id], epoch)
            newest = records.newest_epoch[app_id]
            clock_ms = self._world.simulation.now_ms
            report = AppMasterReport(app_id, epoch, ApplicationState.ACTIVE, clock_ms)
            answer = await self.leader.ask(report, timeout_ms=600)
            if not isinstance(answer, ReportAccepted):
                self.leader = None
                return
            records.clocks[app_id] = max(records.clocks.get(app_id, 0), clock_ms)
            if newest > epoch:
                records.violations.append(f"epoch {epoch} of {app_id} counts, though {newest} was accepted")
        except ActorFailedError as error:
            if error.failure_code == "stale-epoch":
                self.context.stop()
            self.leader = None
        except UnavailableError:
            self.leader = None


class Worker(Actor):
    """Registers, launches application masters as actors, and reports which launches it holds."""

    def __init__(self, world: World, name: str, slots: int = 4) -> None:
        self._world = world
        self._name = name
        self._slots = slots
        self.held: dict[str, HeldSlots] = {}
        self._leader: ActorRef | None = None
        self._is_registered = False
        self._was_registered = False
        self._processes: dict[str, tuple[ActorRef, Launch]] = {}

    def pre_start(self) -> None:
        self._id = f"{self._name}.{self.context.system.address.incarnation}"
        interval_ms = self._world.worker_beat_ms
        first_ms = self.context.system.rng.uniform(0, interval_ms)
        self.context.timers.start_periodic("beat", Beat(), interval_ms=interval_ms, initial_delay_ms=first_ms)

    async def receive(self, message: Message) -> None:
        match message:
            case Beat():
                await self._beat()
            case NotLeader():
                self._leader, self._is_registered = None, False
            case Launch():
                self._launch(message)
            case EndEpoch(app_id, epoch):
                self._world.records.ended_epochs.append((self._name, app_id, epoch))
            case StopProcess(launch_id, _):
                if launch_id in self._processes:
                    self.context.stop(self._processes[launch_id][0])
            case _:
                for launch_id, (process, launch) in list(self._processes.items()):
                    if getattr(message, "actor", None) == process:
                        del self._processes[launch_id]
                        self.held.pop(launch_id, None)
                        launch.owner.tell(ProcessExited(launch_id, launch.kind, launch.app_id, 1, "it died"))
                        self._report()

    def _launch(self, message: Launch) -> None:
        if message.launch_id not in self._processes:
            if sum(held.slots for held in self.held.values()) + message.slots > self._slots:
                message.owner.tell(LaunchFailed(message.launch_id, "no-slots", "no slots are free"))
                return
            process = self.context.spawn(lambda: AppMaster(self._world, message))
            self.context.watch(process)
            self._processes[message.launch_id] = (process, message)
            self.held[message.launch_id] = HeldSlots(
                message.launch_id, message.app_id, message.slots, message.kind.value
            )
            self._report()
        message.owner.tell(Launched(message.launch_id, self._id, 1))

    def _report(self) -> None:
        if self._leader is not None and self._is_registered:
            report = WorkerReport(self._id, tuple(self.held.values()), 0.5, 10**9)
            self._leader.tell(report, self.context.me)

    async def _beat(self) -> None:
        try:
            if self._leader is None:
                self._leader = await Seeker(self._world, self.context.system).find()
            if self._leader is None:
                return
            if not self._is_registered:
                clock_ms = self._world.simulation.node(str(self.context.me.path.address.host)).clock_ms()
                info = WorkerInfo(self._id, self._name, self._name, self._slots, __version__, clock_ms)
                held = tuple(self.held.values())
                request = RegisterWorker(info, self.context.me, held, self._was_registered)
                answer = await self._leader.ask(request, timeout_ms=600)
                self._is_registered = isinstance(answer, WorkerRegistered)
                self._was_registered |= self._is_registered
                if isinstance(answer, NotLeader):
                    self._leader = None
            else:
                # An ask rather than a `tell`, only to notice a leader that is gone.
                leader = await self._leader.ask(GetLeader(), Leader, timeout_ms=600)
                if leader.master != self._leader:
                    self._leader, self._is_registered = None, False
                self._report()
        except UnavailableError:
            self._leader, self._is_registered = None, False


class World:
    """Masters m0…, worker processes w0…, and clients."""

    def __init__(
        self, simulation: Simulation, masters: int, *, workers_each: int = 1, worker_beat_ms: int = 400
    ) -> None:
        self.simulation = simulation
        self.records = Records()
        self.worker_beat_ms = worker_beat_ms
        self.workers_each = workers_each
        self.frame_limit_bytes = DEFAULT_FRAME_LIMIT_BYTES
        self.masters = [simulation.node(f"m{n}") for n in range(masters)]
        self.addresses = [f"{node.name}:{PORT}" for node in self.masters]
        self.standings: dict[str, Leadership] = {}
        self.master_refs: dict[str, ActorRef] = {}
        self.systems: dict[str, ActorSystem] = {}  # of the current lives
        self._submissions = 0

    def clock_ms(self) -> int:
        return self.masters[0].clock_ms()

    def settings(self, node: Node) -> MasterSettings:
        return MasterSettings(
            me=f"{node.name}:{PORT}",
            masters=tuple(self.addresses),
            lease_ms=LEASE_MS,
            quorum_timeout_ms=1_500,
            gossip_interval_ms=400,
            app_master_restarts=1_000,
            app_master_timeout_ms=3_000,
            app_master_slots=0,
            worker_grace_ms=300,
            frame_limit_bytes=self.frame_limit_bytes,
        )

    async def connect(self, node: Node, name: str, port: int) -> ActorSystem:
        system = ActorSystem(name, rng=node.random)
        settings = RemoteSettings(
            host=node.name,
            port=port,
            secret=SECRET,
            heartbeat_interval_ms=INTERVAL_MS,
            heartbeat_pause_ms=PAUSE_MS,
            connect_timeout_ms=500,
            frame_limit_bytes=self.frame_limit_bytes,
            max_backoff_ms=200,
        )
        await attach_remote(system, settings, transport=node.transport, entropy=node.entropy)
        self.systems[node.name] = system
        return system

    # ---- processes

    async def start_master(self, node: Node) -> None:
        async def main(node: Node) -> None:
            system = await self.connect(node, "master", PORT)
            self.master_refs[node.name], leadership = await start_master(
                system, self.settings(node), node.disk, node.clock_ms
            )
            self.standings[node.name] = leadership
            self._spy(node, leadership)

        with suppress(ProcessEndedError):
            await node.start(main)

    async def start_worker(self, node: Node) -> None:
        async def main(node: Node) -> None:
            system = await self.connect(node, "worker", PORT)
            for number in range(self.workers_each):
                self._spawn(system, f"{node.name}-{number}")

        with suppress(ProcessEndedError):
            await node.start(main)

    def _spawn(self, system: ActorSystem, name: str) -> None:
        system.spawn(lambda: Worker(self, name), name)

    def _spy(self, node: Node, leadership: Leadership) -> None:
        """Check, at every event of its election, whether this master may lead, and which others may."""
        election, step = leadership.election, leadership.election.step
        life = node.life_number

        def spying(event: object, now_ms: int) -> object:
            effects = step(event, now_ms)  # type: ignore[arg-type]
            election.check()
            if election.leads(now_ms):
                self.records.leaders[election.term].add(node.name)
                for other in self.masters:
                    theirs = self.standings.get(other.name)
                    # A frozen master cannot act, and asks for its lease before it acts again.
                    runs = other.is_alive and not other.is_frozen and node.life_number == life
                    if other is not node and runs and theirs is not None and theirs.election.leads(now_ms):
                        self.records.violations.append(f"{node.name} and {other.name} lead at {now_ms} ms")
            return effects

        election.step = spying  # type: ignore[method-assign, assignment]

    # ---- clients

    async def ask_leader(
        self, system: ActorSystem, message: Message, *, timeout_ms: int = 2_500
    ) -> Message | None:
        """Ask the leader; None without a leader, and when it does not answer or answers with a failure."""
        leader = await Seeker(self, system).find()
        if leader is None:
            return None
        try:
            answer = await leader.ask(message, timeout_ms=timeout_ms)
        except ActorFailedError as error:
            self.records.outcomes[error.failure_code] += 1
            return None
        except UnavailableError as error:
            self.records.outcomes[error.code] += 1
            return None
        return None if isinstance(answer, NotLeader) else answer

    async def client(self, node: Node) -> None:
        """Submit, kill and list, for ever; record what was acknowledged, and check that listings contain
        it."""
        system = await self.connect(node, "client", PORT)
        random, records = self.simulation.random, self.records
        while True:
            await asyncio.sleep(random.uniform(0.05, 0.4))
            if len(records.accepted) < 6 or random.random() < 0.1:
                await self._submit(system)
            elif random.random() < 0.2:
                app_id = random.choice(sorted(set(records.accepted.values())))
                records.maybe_killed.add(app_id)
                if isinstance(await self.ask_leader(system, Kill(app_id)), FoundApplication):
                    records.killed.add(app_id)
            await self._list(system)

    async def _list(self, system: ActorSystem) -> bool:
        """List all applications, and judge the answer; False when there was no answer."""
        records = self.records
        known, killed, clocks = dict(records.accepted), set(records.killed), dict(records.clocks)
        answer = await self.ask_leader(system, GetApplications())
        if not isinstance(answer, Applications):
            return False
        records.outcomes["list"] += 1
        self.judge(answer, known, killed, clocks)
        return True

    async def last_listing(self, node: Node) -> None:
        """When all faults are healed and no client writes any more: check that everything ever acknowledged
        is there."""
        system = await self.connect(node, "client", PORT)
        for _ in range(50):
            if await self._list(system):
                return
            await asyncio.sleep(0.2)
        self.records.violations.append("nobody answered the last listing")

    async def _submit(self, system: ActorSystem) -> None:
        self._submissions += 1
        name = f"a{self._submissions}"
        message = Submit(f"s{self._submissions}", ApplicationSpec(name, "", "app.py"))
        for _ in range(4):
            answer = await self.ask_leader(system, message)
            if isinstance(answer, Accepted):
                known = self.records.accepted.setdefault(message.submission_id, answer.app_id)
                if known != answer.app_id:
                    self.records.violations.append(f"{message.submission_id} is {known} and {answer.app_id}")
                return

    def judge(
        self, answer: Applications, accepted: dict[str, str], killed: set[str], clocks: dict[str, int]
    ) -> None:
        """Check that everything acknowledged before the request is in the answer."""
        found = {view.app_id: view for view in answer.applications}
        wrong = self.records.violations
        wrong += [f"{app_id} was accepted and is lost" for app_id in accepted.values() if app_id not in found]
        wrong += [
            f"{app_id} was killed and is {found[app_id].state.value}"
            for app_id in killed
            if app_id in found and found[app_id].state is not ApplicationState.KILLED
        ]
        wrong += [
            f"the clock {clock_ms} of {app_id} was taken and is {found[app_id].clock_ms}"
            for app_id, clock_ms in clocks.items()
            if app_id in found and (found[app_id].clock_ms or 0) < clock_ms
        ]
        names = [view.name for view in found.values()]
        wrong += [f"the name {name} is there twice" for name in set(names) if names.count(name) > 1]

    # ---- checks

    def check(self) -> None:
        for term, leaders in self.records.leaders.items():
            assert len(leaders) == 1, f"{sorted(leaders)} led in term {term}"
        assert not self.records.violations, "; ".join(self.records.violations[:5])

    def leader(self) -> Node | None:
        """The master that may lead now."""
        for node in self.masters:
            leadership = self.standings.get(node.name)
            is_here = node.is_alive and not node.is_frozen and leadership is not None
            if is_here and leadership is not None and leadership.election.leads(leadership.now_ms()):
                return node
        return None

    async def resign(self, node: Node) -> None:
        """Ask a master to let others lead, as a process that was asked to end does."""

        async def ask() -> None:
            self.master_refs[node.name].tell(StepDown("asked to end"))

        with suppress(ProcessEndedError):
            await node.run(ask)

    def active(self, app_id: str) -> list[AppMaster]:
        """The accepted application masters of an application that run in a living process."""
        alive = [each for ref, each in self.records.app_masters.items() if self.lives(ref)]
        return [each for each in alive if each.launch.app_id == app_id and each.is_active]

    def lives(self, ref: ActorRef) -> bool:
        """Whether the process in which an actor was started still runs; actors do not notice a crash."""
        host = str(ref.path.address.host)
        return self.simulation.node(host).is_alive and self.systems[host].address == ref.path.address

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        await self.simulation.wait_until(condition, what, timeout_s=timeout_s, poll_s=0.1)


__all__ = ["LEASE_MS", "Die", "DrivetrainError", "World"]
