"""Masters, workers, application masters and executors take messages of every type, with any fields, from
anybody who reaches them: nobody stops, nobody resigns, and memory stays bounded.

What a process may do by its role it may do here, too: another master, for masters, is left out, as its
messages are to have effects; of a target's own peers (an application's executors and workers, an executor's
application master) only those messages are left out that are to end it."""

from __future__ import annotations

import gc
import itertools
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import worker_sim
from _pytest.logging import LogCaptureHandler
from app_master_world import APP, GRAPH
from app_master_world import World as AppMasterWorld
from fuzzing import Adversary, Generator, decoded, fuzz
from test_app_master_under_faults import check_the_end, tended

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message, Terminated
from drivetrain.actor.path import Address
from drivetrain.actor.remote import RemoteSettings, attach_remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import guard_of
from drivetrain.cluster.access.system_names import Role, app_master_name, executor_name
from drivetrain.cluster.client.open_client import open_client
from drivetrain.cluster.executor.executor import Executor
from drivetrain.cluster.executor.fragment_attempt import Attempt, AttemptChanged
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.master.master_messages import Leadership
from drivetrain.cluster.master.master_process import start_master
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.checkpoints import CheckpointAnswered, CheckpointCommand
from drivetrain.cluster.messages.executing import (
    EndExecutor,
    ExecutorRegistered,
    ExecutorReport,
    FragmentChanged,
    FragmentChangedReply,
    FragmentOutcome,
    Prepared,
    RegisterExecutor,
)
from drivetrain.cluster.messages.flow import RelayedFlowMessage
from drivetrain.cluster.messages.launching import ProcessKind
from drivetrain.config import Config
from drivetrain.core.checkpoint.transaction import Action, Command, Transaction
from drivetrain.core.clock.clock_service import (
    ClockedFragment,
    ClockPersisted,
    Effect,
    FragmentReported,
    PersistClock,
)
from drivetrain.core.flow.flow import FlowMessage
from drivetrain.core.plan.plan import PlannedChannel
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.coordinator_actor import CheckpointActor, CheckpointEvent, CheckpointHost
from drivetrain.runtime.clock_actor import ClockActor, ClockEvent
from drivetrain.simulator import Node, Simulation, simulate
from drivetrain.spark.flow.flow_book import FlowBook

SECRET = worker_sim.SECRET
PORT = worker_sim.PORT
HALF = 400
"""Messages that are sent before, and after, the memory that they take is measured."""
PARTS = 4
"""Of the second half of the messages, after each of which objects are counted."""
MOST_OBJECTS, MOST_OF_A_MESSAGE = 200, 3
"""What a part may add: traces and dead letters fill up to their limits, at about two objects a message."""

LAUNCH = "wc-1.1-0-9-1"
CHANNEL = "a--b"
NAMES = (
    "client",
    "worker",
    app_master_name("wc-1", 1),
    app_master_name("other-7", 3),
    executor_name("wc-1", 1, LAUNCH),
    executor_name("other-7", 3, "other-7.3-0-9-1"),
)
WORDS = (
    "wc",
    "wc-1",
    "other-7",
    LAUNCH,
    "w1",
    "box",
    "m1:7",
    "m0:7",
    "a",
    "b",
    "launch-1",
    "wc-1.1-0",
    "stale",
)


class Attack:
    """Adversaries of all kinds who send to one target; none sends what `is_end` says that ends it by right.

    `by_field` has the values that fields of a name mostly take; `likely` are sent more often than others.
    """

    def __init__(
        self,
        simulation: Simulation,
        names: Sequence[str],
        role: Role,
        main: str,
        *,
        is_end: Callable[[Message], bool] = lambda message: False,
        by_field: Mapping[str, Sequence[Any]] | None = None,
        likely: Sequence[type[Message]] = (),
    ) -> None:
        self.simulation, self.role, self.main, self.is_end = simulation, role, [main], is_end
        self.by_field = by_field or {}
        self.likely = likely
        nodes = simulation.nodes(*(f"evil{number}" for number in range(len(names) + 1)))
        self.adversaries = [
            Adversary(node, name, PORT, SECRET) for node, name in zip(nodes, names, strict=False)
        ]
        self.adversaries.append(Adversary(nodes[-1], "client", PORT, None))

    async def start(self) -> None:
        for adversary in self.adversaries:
            await adversary.start()

    async def run(self, target: Address, paths: Sequence[str], count: int) -> None:
        """Send so many messages, from one adversary after the other."""
        random = self.simulation.random
        all_paths = [f"{target}{path}" for path in paths]
        for number in range(count):
            adversary = random.choice(self.adversaries)
            own = f"{adversary.address}/user/nobody#3"
            words = (*WORDS, *adversary.own_words * 8)
            generator = Generator(
                random,
                words,
                [own] * 30 + all_paths,
                (*adversary.taken_by(self.role), *self.likely),
                self.by_field,
            )
            chosen = self.main if random.random() < 0.7 else paths
            adversary.send(generator, random, target, chosen, self.is_end)
            if number % 20 == 0:
                await self.simulation.sleep(0.05)
        await self.simulation.sleep(1.0)

    async def run_twice(self, target: Address, paths: Sequence[str], count: int = HALF) -> None:
        """As `run`, and look that the messages of the second half leave nothing for good.

        What is kept up to a limit grows now and then; a leak grows in each of `PARTS` parts.
        """
        await self.run(target, paths, count)
        part = count // PARTS
        kept = [_objects()]
        for _ in range(PARTS):
            await self.run(target, paths, part)
            kept.append(_objects())
        grown = [after - before for before, after in itertools.pairwise(kept)]
        most = MOST_OBJECTS + part * MOST_OF_A_MESSAGE
        assert min(grown) < most, f"{grown} objects more after each {part} messages more"


def _objects() -> int:
    """How many objects there are, without what pytest keeps of the log."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogCaptureHandler):
            handler.reset()
    gc.collect()
    return len(gc.get_objects())


def paths_of(system: ActorSystem) -> list[str]:
    """Every actor of a system, and some that are none."""
    found = [f"{cell.path.local}#{cell.path.uid}" for cell in system.cells()]
    return [*found, "/user/nobody", "/asks/$1#1", "/asks/$20#20", "/user/master", "/user/worker", "/"]


def settings(node: Node, name: str) -> RemoteSettings:
    return RemoteSettings(
        host=node.name, port=PORT, keys=Keyring(name, lambda: (SECRET,)), guard=guard_of(name)
    )


# ---- masters


class Masters:
    """Three masters, and what they are."""

    def __init__(self, simulation: Simulation) -> None:
        self.nodes = simulation.nodes("m0", "m1", "m2")
        self.places = tuple(f"{node.name}:{PORT}" for node in self.nodes)
        self.systems: dict[str, ActorSystem] = {}
        self.standings: dict[str, Leadership] = {}

    async def start(self) -> None:
        for node in self.nodes:
            await node.start(self._serve)

    async def _serve(self, node: Node) -> None:
        system = ActorSystem("master", rng=node.random)
        await attach_remote(system, settings(node, "master"), transport=node.transport, entropy=node.entropy)
        mine = MasterSettings(
            me=f"{node.name}:{PORT}", masters=self.places, lease_ms=1_000, quorum_timeout_ms=2_000
        )
        self.systems[node.name] = system
        _, self.standings[node.name] = await start_master(system, mine, node.disk, node.clock_ms)

    def leader(self) -> str | None:
        """Who leads; None while nobody does."""
        leading = [
            name
            for name, one in self.standings.items()
            if one.election.leads(one.now_ms())
            and any("applications" in p for p in paths_of(self.systems[name]))
        ]
        return leading[0] if len(leading) == 1 else None


@fuzz(messages=3 * HALF)
async def test_masters_go_on_and_none_resigns(simulation: Simulation) -> None:
    masters = Masters(simulation)
    await masters.start()
    await simulation.wait_until(lambda: masters.leader() is not None, "a leader")
    leader = masters.leader()
    assert leader is not None
    term = masters.standings[leader].election.term
    attack = Attack(simulation, NAMES, Role.MASTER, "/user/master")
    await attack.start()
    for name in (leader, *sorted(set(masters.systems) - {leader})):
        system = masters.systems[name]
        await attack.run_twice(system.address, paths_of(system), HALF if name == leader else HALF // 4)
    assert masters.leader() == leader, "the leader still leads"
    assert {one.election.term for one in masters.standings.values()} == {term}, "nobody resigned"
    for system in masters.systems.values():
        system.check()
        assert not system.is_terminated
    assert await _lists(simulation, masters.places)


async def _lists(simulation: Simulation, places: Sequence[str]) -> bool:
    """Whether an honest client is answered."""

    async def main(node: Node) -> bool:
        config = Config.load(
            None,
            {},
            {"cluster.masters": ",".join(places), "cluster.host": node.name, "client.timeout": "10 s"},
        )
        client = await open_client(
            config,
            environ={"DRIVETRAIN_SECRET": SECRET},
            rng=node.random,
            transport=node.transport,
            entropy=node.entropy,
        )
        try:
            await client.applications()
            await client.workers()
        finally:
            await client.close()
        return True

    return await simulation.node("honest").start(main)


# ---- workers


@fuzz(messages=4 * HALF)
async def test_a_worker_goes_on(simulation: Simulation) -> None:
    world = worker_sim.World(simulation)
    await world.start()
    await simulation.wait_until(lambda: world.is_known_to("m1"), "the registration")
    worker, address = world.worker, next(iter(world.workers.values())).path.address
    assert worker is not None
    attack = Attack(simulation, (*NAMES, "master"), Role.WORKER, "/user/worker")
    await attack.start()
    system: Any = worker.context.system
    await attack.run_twice(address, paths_of(system), 2 * HALF)
    await simulation.wait_until(
        lambda: not world.launcher.running and world.is_known_to("m1"),
        "what it held has ended",  # type: ignore[union-attr]
    )
    worker.check()
    system.check()
    assert world.worker is worker
    assert world.ends == []
    assert not system.is_terminated


# ---- application masters


@fuzz(messages=2 * HALF)
async def test_an_application_master_goes_on_and_its_application_finishes(simulation: Simulation) -> None:
    world = AppMasterWorld(simulation, failures=0, refusals=0)
    await world.start()
    assert world.app_system is not None
    names = ("client", "worker", app_master_name("other-7", 3), executor_name("wc-1", 1, LAUNCH))
    attack = Attack(simulation, names, Role.APP_MASTER, "/user/app-master")
    await attack.start()
    await attack.run_twice(world.app_system.address, paths_of(world.app_system))
    await simulation.wait_until(lambda: tended(world, world.is_over), "the end", timeout_s=600)
    check_the_end(world)


def ends_by_right(message: Message) -> bool:
    """Whether an executor or a worker may end the application with this, or an executor by doing its work."""
    match message:
        case FragmentChanged(outcome=FragmentOutcome.FINISHED):
            return True
        case FragmentChanged(outcome=FragmentOutcome.FAILED | FragmentOutcome.CANCELED, retryable=False):
            return True
    return False


@fuzz(messages=2 * HALF)
async def test_an_application_master_goes_on_whatever_its_own_executors_and_workers_send(
    simulation: Simulation,
) -> None:
    world = AppMasterWorld(simulation, failures=0, refusals=0)
    world.settings = {"restart.attempts": "1000000", "restart.job-attempts": "1000000"}
    with patch("app_master_world.BATCHES", 2**40):  # it does not finish meanwhile
        await world.start()
        await simulation.wait_until(lambda: len(world.running) == len(GRAPH), "every fragment runs")
        launches = list(world.executors)
        assert world.actor is not None
        epoch, actor, system = world.epoch, world.actor, world.app_system
        names = ("worker", *(executor_name(APP, epoch, launch) for launch in launches * 2))
        attack = Attack(
            simulation,
            names,
            Role.APP_MASTER,
            "/user/app-master",
            is_end=ends_by_right,
            by_field={
                "executor_id": launches,
                "launch_id": launches,
                "app_id": [APP],
                "epoch": [epoch],
                "fragment": list(GRAPH),
                "attempt": range(1, 4),
            },
        )
        await attack.start()
        await attack.run_twice(system.address, paths_of(system))
        assert world.app_master.is_alive
        assert not system.is_terminated
        assert system.failures == 0
        assert (world.actor, actor.end_state) == (actor, None), actor.errors
        assert actor.boundary.mishaps.defects == 0, actor.errors
        system.check()
        all_ready = lambda: len(actor.pool.ready) == 2  # noqa: E731
        await simulation.wait_until(lambda: tended(world, all_ready), "its executors")


@fuzz(messages=2 * HALF)
async def test_the_clock_and_the_checkpoints_take_what_executors_say(simulation: Simulation) -> None:
    """The children of an application master, which it hands the words of its executors."""
    random, node = simulation.random, simulation.node("am")
    fields = {name: range(4) for name in ("txid", "round", "life", "attempt")} | {"fragment": ("a", "b")}
    made = Generator(
        random, WORDS, ["drivetrain://x@y:7~5/user/z#3"], [CheckpointAnswered, ExecutorReport], fields
    )
    saved: list[Transaction] = []
    shown: list[bytes] = []
    children: list[ActorRef] = []
    systems: list[ActorSystem] = []

    async def serve(node: Node) -> None:
        system = ActorSystem("am", rng=node.random)
        systems.append(system)
        host = CheckpointHost(
            lambda: saved[-1] if saved else None,
            saved.append,
            lambda effect: None,
            lambda figures: shown.append(msgspec.msgpack.encode(figures)),
            lambda error: None,
        )
        clocked = (ClockedFragment("a", ()), ClockedFragment("b", ("a",)))
        clock_ms: list[int] = []

        def tell(effect: Effect) -> None:
            if isinstance(effect, PersistClock):
                clock_ms.append(effect.clock_ms)
                children[0].tell(ClockEvent(ClockPersisted(effect.clock_ms)))

        children.append(system.spawn(lambda: ClockActor(clocked, lambda: None, tell, Config()), "clock"))
        children.append(
            system.spawn(lambda: CheckpointActor("ab", host, Config(), periodic=True), "checkpoints")
        )

    await node.start(serve)
    taken = 0
    for number in range(2 * HALF):
        message = decoded(*made.message())
        if isinstance(message, CheckpointAnswered):
            answers = (message.acked, message.failed, message.lost)
            for answer in (a for a in answers if a is not None):
                children[1].tell(CheckpointEvent(answer))
                taken += 1
        elif isinstance(message, ExecutorReport):
            for told in message.fragments:
                event = FragmentReported(told.fragment, told.attempt, told.settled_clock_ms, told.waiting_for)
                children[0].tell(ClockEvent(event))
                taken += 1
        if number % 20 == 0:
            await simulation.sleep(random.choice([0.05, 1.0]))
    assert taken > HALF // 4
    assert systems[0].failures == 0
    systems[0].check()


# ---- executors


class _Owner(Actor):
    """An application master that registers the executor, notes it in `asked`, and knows what it says."""

    def __init__(self, asked: list[Message]) -> None:
        self.asked = asked

    def receive(self, message: Message) -> None:
        if isinstance(message, RegisterExecutor):
            self.asked.append(message)
            self.context.reply(ExecutorRegistered(ApplicationSpec("wc", "", "wc.py"), 500))
        elif isinstance(message, FragmentChanged):
            self.context.reply(FragmentChangedReply(True))


class _NoAttempt(Attempt):
    """An attempt without steps, which runs until it is cancelled."""

    def cancel(self, *, drain: bool) -> None:
        self._tell(AttemptChanged(self.fragment, self.number, FragmentOutcome.CANCELED))


def _say_it_runs(attempt: Attempt) -> None:
    attempt._tell(AttemptChanged(attempt.fragment, attempt.number, FragmentOutcome.RUNNING))


async def _registered_executor(
    simulation: Simulation, exits: list[int], hear: Callable[..., None], flow: FlowBook | None = None
) -> dict[str, Any]:
    name = executor_name("wc-1", 1, "wc-1.1-1-9-2")
    made: dict[str, Any] = {"asked": []}

    async def main(node: Node) -> None:
        system = ActorSystem(name, rng=node.random)
        await attach_remote(system, settings(node, name), transport=node.transport, entropy=node.entropy)
        launch = LaunchFile(
            kind=ProcessKind.EXECUTOR,
            launch_id="wc-1.1-1-9-2",
            app_id="wc-1",
            epoch=1,
            spec=ApplicationSpec("wc", "", "wc.py"),
            slots=1,
            owner="",
            app_master="",
            code_directory="",
            work_directory="",
            worker_id="w",
            worker_name="w",
            worker="",
            masters=[],
            host=node.name,
        )
        quiet = SimpleNamespace(send=None, tick=lambda: None, is_here=lambda message: False)
        work: Any = SimpleNamespace(
            flow=quiet if flow is None else flow,
            checkpoint_ways=None,
            copies=SimpleNamespace(),
            take_command=hear,
            prepare=lambda **told: Prepared(False, False, "local"),
            conclude=lambda message: "done",
            versions=None,
        )
        app_master = system.reference(made["app_master"])
        made["system"] = system

        def make() -> Executor:
            made["executor"] = Executor(launch, work, app_master, exits.append, _say_it_runs)
            return made["executor"]

        system.spawn(make, "executor")

    async def serve_app_master(node: Node) -> None:
        system = ActorSystem(app_master_name("wc-1", 1), rng=node.random)
        await attach_remote(
            system, settings(node, system.name), transport=node.transport, entropy=node.entropy
        )
        made["am system"] = system
        made["app_master"] = system.spawn(lambda: _Owner(made["asked"]), "app-master").path

    await simulation.node("am").start(serve_app_master)
    await simulation.node("x").start(main)
    return made


@fuzz(messages=2 * HALF)
async def test_an_executor_goes_on(simulation: Simulation) -> None:
    exits: list[int] = []
    made = await _registered_executor(simulation, exits, lambda *told: None)
    attack = Attack(simulation, (*NAMES[:2], *NAMES[3:], "master"), Role.EXECUTOR, "/user/executor")
    await attack.start()
    await attack.run_twice(made["system"].address, paths_of(made["system"]))
    made["system"].check()
    assert exits == []
    assert not made["system"].is_terminated


@fuzz(messages=2 * HALF)
async def test_an_executor_goes_on_whatever_its_own_application_master_sends(simulation: Simulation) -> None:
    exits: list[int] = []
    commands: list[object] = []
    with tempfile.TemporaryDirectory() as place:
        flow = CountingBook(simulation, Path(place))
        made = await _registered_executor(simulation, exits, lambda *told: commands.append(told), flow)
        await _attack_as_its_master(simulation, made)
    assert (exits, made["system"].is_terminated, made["system"].failures) == ([], False, 0)
    assert made["executor"].mishaps.defects == 0
    assert flow.taken > HALF // 80, "hardly a message reached the ends of the channel"
    assert commands, "no command reached a checkpoint"


class CountingBook(FlowBook):
    """Both ends of a channel with two entries, and how many words have reached them."""

    def __init__(self, simulation: Simulation, place: Path) -> None:
        clock = simulation.loop.time
        super().__init__(Config(), epoch=1, monotonic_s=clock, wall_s=clock)
        self.taken = 0
        channel = PlannedChannel(CHANNEL, "a", "a", "b", "asked")
        store = ChannelStore(str(place), fragment="a")
        schema = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])
        for number in range(2):
            batch = pa.record_batch([pa.array([number]), pa.array([0], schema.field(1).type)], schema=schema)
            store.append(number, [write_segment(store.files, f"s{number}", [batch])], number)
        reader = ChannelStore(str(place))
        self.produces(channel, store)
        self.subscribes(channel, reader, reader.position_of("b"), trusts=False)

    def receive(self, message: FlowMessage) -> None:
        self.taken += 1
        super().receive(message)


async def _attack_as_its_master(simulation: Simulation, made: dict[str, Any]) -> None:
    system = made["system"]
    attack = Attack(
        simulation,
        [app_master_name("wc-1", 1)] * 3,
        Role.EXECUTOR,
        "/user/executor",
        is_end=lambda message: isinstance(message, EndExecutor | Terminated),
        by_field={
            "app_id": ["wc-1"],
            "epoch": [1],
            "fragment": ["a", "b"],
            "attempt": range(1, 99),
            "channel": [CHANNEL],
            "to": ["a", "b"],
            "start": range(4),
            "position": range(4),
            "seq": range(20),
        },
        likely=[RelayedFlowMessage, CheckpointCommand] * 8,
    )
    await attack.start()
    with patch("drivetrain.cluster.executor.executor.Attempt", _NoAttempt):
        await attack.run_twice(system.address, paths_of(system))
    system.check()


@simulate(seeds=1)
async def test_an_executor_goes_on_though_handling_its_application_masters_word_raises(
    simulation: Simulation,
) -> None:
    exits: list[int] = []
    heard: list[object] = []

    def hear(*told: object) -> None:
        heard.append(told)
        raise KeyError("something that nobody thought of")

    made = await _registered_executor(simulation, exits, hear)

    async def tell() -> None:
        executor = await made["am system"].lookup(f"{made['system'].address}/user/executor", timeout_ms=2_000)
        for _ in range(3):
            executor.tell(CheckpointCommand(1, "f", "i", Command(Action.PREPARE, 1, 0, 1)))

    await simulation.node("am").run(tell)
    await simulation.sleep(2)
    made["system"].check()
    assert len(heard) == 3
    assert len(made["asked"]) == 1, "an executor that failed would have begun anew, without its fragments"
    assert (exits, made["system"].is_terminated) == ([], False)
