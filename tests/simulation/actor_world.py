"""A small world of actor systems for simulations: servers, clients, watchers, and their checkers.

The checkers keep their own records, from the messages that actors received and the frames that arrived on the
(simulated) wire; they do not use the code that they check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from drivetrain.actor import (
    Actor,
    ActorRef,
    ActorSystem,
    AskError,
    Message,
    Terminated,
    TerminationCause,
)
from drivetrain.actor.remote import Connection, ConnectionEvents, Frame, Opener, RemoteSettings, attach_remote
from drivetrain.actor.remote.auth import TAG_BYTES
from drivetrain.actor.remote.remote_errors import ProtocolViolationError
from drivetrain.actor.remote.wire import HeartbeatReply, decode
from drivetrain.errors import UnavailableError
from drivetrain.simulator import Node, ProcessEndedError, SimulatedTransport, Simulation

SECRET = "a secret for simulations only"
PORT = 7
INTERVAL_MS = 200
PAUSE_MS = 1_000
CAPACITY = 20
QUEUE_LIMIT = 50
ASK_TIMEOUT_MS = 1_500


class Request(Message, frozen=True, tag="world.request"):
    client: str
    number: int


class Reply(Message, frozen=True, tag="world.reply"):
    client: str
    number: int


class Note(Message, frozen=True, tag="world.note"):
    client: str
    number: int


class Stop(Message, frozen=True, tag="world.stop"):
    pass


@dataclass
class Watching:
    """One watch, as its watcher sees it."""

    target: ActorRef
    since_s: float
    terminated: list[tuple[float, TerminationCause]] = field(default_factory=list)


@dataclass
class Records:
    """What happened, by process life ("a#1"), for the checks at the end."""

    handled: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    replies: Counter[tuple[str, int]] = field(default_factory=Counter)
    notes: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    outcomes: Counter[str] = field(default_factory=Counter)
    open_asks: dict[str, str] = field(default_factory=dict)
    watches: dict[str, list[Watching]] = field(default_factory=lambda: defaultdict(list))
    heard_s: dict[tuple[str, str], float] = field(default_factory=dict)
    frozen_s: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    violations: list[str] = field(default_factory=list)
    stopped: set[ActorRef] = field(default_factory=set)


class Server(Actor):
    """Answers requests, records messages, and stops on request."""

    def __init__(self, world: World, life: str) -> None:
        self._world = world
        self._life = life

    def receive(self, message: Message) -> None:
        records = self._world.records
        match message:
            case Request(client, number):
                records.handled[self._life, client, number] += 1
                self.context.reply(Reply(client, number))
            case Note(client, number):
                records.notes[str(self.context.me.path), client].append(number)
            case Stop():
                self.context.stop()

    def post_stop(self) -> None:
        self._world.records.stopped.add(self.context.me)


class Watcher(Actor):
    """Watches one actor and records the messages that it gets."""

    def __init__(self, world: World, watching: Watching) -> None:
        self._world = world
        self._watching = watching

    def pre_start(self) -> None:
        self.context.watch(self._watching.target)

    def receive(self, message: Message) -> None:
        if isinstance(message, Terminated):
            now_s = self._world.simulation.loop.time()
            self._watching.terminated.append((now_s, message.cause))
            self._world.judge(self.context.system, self._watching, now_s, message.cause)


class World:
    """The nodes of one simulation, their systems, and the records."""

    def __init__(self, simulation: Simulation, names: str) -> None:
        self.simulation = simulation
        self.nodes = simulation.nodes(*names)
        self.systems: dict[str, ActorSystem] = {}
        self.records = Records()
        self._numbers = 0

    # ---- processes

    async def start(self, node: Node) -> None:
        """Start a process with a system, a server, and a client that keeps asking and watching."""
        with suppress(ProcessEndedError):
            await node.start(self._main)

    async def _main(self, node: Node) -> None:
        life = f"{node.name}#{node.life_number}"
        system = ActorSystem(node.name, rng=node.random)
        remote = await attach_remote(
            system,
            RemoteSettings(
                host=node.name,
                port=PORT,
                secret=SECRET,
                heartbeat_interval_ms=INTERVAL_MS,
                heartbeat_pause_ms=PAUSE_MS,
                connect_timeout_ms=1_000,
                queue_limit=QUEUE_LIMIT,
            ),
            transport=Spy(node.transport, self, node.name),
            entropy=node.entropy,
        )
        self.systems[node.name] = system
        self._spawn_server(system, life)
        for peer in self.nodes:
            if peer is not node:
                loop = self.simulation.loop
                loop.create_task(self._client(system, life, peer.name), name=f"client {life} of {peer.name}")
                loop.create_task(self._watch(system, life, peer.name), name=f"watch {life} on {peer.name}")
        loop.create_task(self._inspect(system, remote), name=f"inspect {life}")

    def _spawn_server(self, system: ActorSystem, life: str) -> None:
        system.spawn(lambda: Server(self, life), "server", mailbox_capacity=CAPACITY)

    def server_of(self, node: Node) -> ActorRef | None:
        """The node's server, None when it has stopped."""
        servers = [cell.ref for cell in self.systems[node.name].cells() if cell.path.name == "server"]
        return servers[0] if servers else None

    async def serve_again(self, node: Node) -> None:
        """Start a new server on the node, if its last one has stopped."""

        async def spawn() -> None:
            if self.server_of(node) is None:
                self._spawn_server(self.systems[node.name], f"{node.name}#{node.life_number}")

        await node.run(spawn)

    async def _client(self, system: ActorSystem, life: str, peer: str) -> None:
        """Look up the peer's server, send it requests until that fails, and begin again."""
        random, me = self.simulation.random, f"{life}>{peer}"
        while not system.is_terminated:
            try:
                server = await system.lookup(f"drivetrain://{peer}@{peer}:{PORT}/user/server", timeout_ms=800)
                while True:
                    await self._talk(server, me)
                    await self.simulation.sleep(random.uniform(0.05, 0.8))
            except (AskError, UnavailableError) as error:
                self.records.outcomes[type(error).__name__] += 1
                await self.simulation.sleep(random.uniform(0.05, 0.5))

    async def _talk(self, server: ActorRef, me: str) -> None:
        for _ in range(self.simulation.random.choice([0, 0, 1, 1, 2, 3, 30, 120])):
            self._numbers += 1
            server.tell(Note(me, self._numbers))
        self._numbers += 1
        number = self._numbers
        key = f"{me} {number}"
        self.records.open_asks[key] = me
        try:
            reply = await server.ask(Request(me, number), Reply, timeout_ms=ASK_TIMEOUT_MS)
            assert (reply.client, reply.number) == (me, number), f"{me} got the answer to another request"
            self.records.replies[me, number] += 1
            self.records.outcomes["Reply"] += 1
        finally:
            del self.records.open_asks[key]

    async def _watch(self, system: ActorSystem, life: str, peer: str) -> None:
        """Watch the peer's server; after it has terminated, look it up and watch it again."""
        while not system.is_terminated:
            try:
                server = await system.lookup(f"drivetrain://{peer}@{peer}:{PORT}/user/server", timeout_ms=800)
            except UnavailableError:
                await self.simulation.sleep(0.3)
                continue
            watching = Watching(server, self.simulation.loop.time())
            self.records.watches[life].append(watching)
            watcher = system.spawn(lambda watching=watching: Watcher(self, watching))  # type: ignore[misc]
            while not watching.terminated:
                await self.simulation.sleep(0.1)
            await self.simulation.sleep(0.3)
            system.stop(watcher)

    async def _inspect(self, system: ActorSystem, remote: object) -> None:
        while not system.is_terminated:
            system.check()
            for association in remote._places:  # type: ignore[attr-defined]
                assert len(association.session.outbox) <= QUEUE_LIMIT + 20, "an outbox grows without bound"
            await self.simulation.sleep(0.2)

    async def freeze(self, node: Node, duration_s: float) -> None:
        """Stop the node's process for a while."""
        node.freeze()
        now_s = self.simulation.loop.time()
        self.records.frozen_s[node.name].append((now_s, now_s + duration_s))
        await self.simulation.sleep(duration_s)
        node.thaw()

    # ---- checks

    def judge(self, system: ActorSystem, watching: Watching, now_s: float, cause: TerminationCause) -> None:
        """A watcher got a notice that its target has terminated: is that true, and the first such notice?"""
        # An exception here would only restart the watcher, so violations are recorded for `check`.
        wrong, target = self.records.violations, watching.target
        if len(watching.terminated) > 1:
            wrong.append(f"{target.path} terminated twice for one watch")
        name = target.path.address.system
        is_alive = self.simulation.node(name).is_alive and self.systems[name].address == target.path.address
        if not is_alive or target in self.records.stopped:
            return
        if cause is not TerminationCause.UNREACHABLE:
            wrong.append(f"{target.path} lives, but is said to be {cause}")
        # A system without any message has been silent since it was watched; another may be silent for longer.
        heard_s = self.records.heard_s.get((str(system.address), str(target.path.address)), watching.since_s)
        # While the watcher itself was frozen it received nothing, so that time does not count as silence.
        frozen_s = sum(
            max(0.0, to_s - max(from_s, heard_s)) for from_s, to_s in self.records.frozen_s[system.name]
        )
        silent_ms = (now_s - heard_s - frozen_s) * 1000
        if silent_ms <= PAUSE_MS:
            wrong.append(f"{target.path} answered {silent_ms:.0f} ms ago, but was declared dead")

    def check(self) -> None:
        """Check all records at the end."""
        records = self.records
        assert not records.violations, "; ".join(records.violations)
        assert max(records.handled.values(), default=0) <= 1, "a request was handled twice"
        assert max(records.replies.values(), default=0) <= 1, "a reply was delivered twice"
        for (server, client), numbers in records.notes.items():
            assert numbers == sorted(set(numbers)), f"{client}'s notes to {server} came twice or out of order"

    def living(self) -> Iterator[tuple[Node, ActorSystem]]:
        """The nodes whose process runs, with their systems."""
        return (
            (node, self.systems[node.name]) for node in self.nodes if node.is_alive and not node.is_frozen
        )


class Spy:
    """A transport that records when answers to heartbeats arrive."""

    def __init__(self, transport: SimulatedTransport, world: World, host: str) -> None:
        self._transport = transport
        self._world = world
        self._host = host

    async def wait_listening(self, host: str, port: int, accept: Opener) -> object:
        return await self._transport.wait_listening(host, port, self._spying(accept))

    async def wait_connected(self, host: str, port: int, opened: Opener) -> Connection:
        return await self._transport.wait_connected(host, port, self._spying(opened))

    def _spying(self, opener: Opener) -> Opener:
        return lambda connection: SpyEvents(opener(connection), self._world, self._host)


class SpyEvents:
    """Passes events on, and records handshakes and answers to heartbeats, with their receiver and sender."""

    def __init__(self, events: ConnectionEvents, world: World, host: str) -> None:
        self._events = events
        self._world = world
        self._host = host
        self._last_count = 0
        self.connection_lost = events.connection_lost
        self.writing_paused = events.writing_paused
        self.writing_resumed = events.writing_resumed

    def frame_received(self, frame: Frame) -> None:
        link = self._events
        had_session = link._agreement is not None  # type: ignore[attr-defined]
        with suppress(ProtocolViolationError):
            decoded = decode(memoryview(frame)[TAG_BYTES:])
            if isinstance(decoded, HeartbeatReply) and decoded.count > self._last_count and had_session:
                self._last_count = decoded.count
                self._note()
        link.frame_received(frame)
        if not had_session and link._agreement is not None:  # type: ignore[attr-defined]
            self._note()

    def _note(self) -> None:
        peer = self._events._agreement.peer  # type: ignore[attr-defined]
        me = str(self._world.systems[self._host].address)
        self._world.records.heard_s[me, str(peer)] = self._world.simulation.loop.time()
