"""A whole application without Spark: fragments that die between any two steps, channels with windows, a clock
service that dies, and a network that loses, delays and duplicates messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from drivetrain.core.clock.clock_service import (
    AnnounceClock,
    ClockedFragment,
    ClockPersisted,
    ClockRequested,
    ClockService,
    Event,
    FragmentReported,
    FragmentRestarted,
    FragmentsChanged,
    PersistClock,
    TimePassed,
)
from drivetrain.core.clock.source_clocks import SourceClocks
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.flow.flow import (
    Ack,
    AckRequest,
    ReceiverEffect,
    SendAck,
    SendAckRequest,
    SenderEffect,
    SentEntry,
    Window,
)
from drivetrain.core.flow.flow_receiver import FlowReceiver
from drivetrain.core.flow.flow_sender import FlowSender
from drivetrain.simulator import Simulation

WINDOW = Window(rows=60, bytes=0, entries=6)
DISORDER_MS = 20
PARTITIONS = 3


class Died(Exception):  # noqa: N818 - no error: what happens to processes
    """A process was killed here."""


@dataclass(frozen=True)
class Entry:
    """The entry of a batch: its messages (their timestamps by id), and the producer's clock after it."""

    batch: int
    messages: dict[int, int]
    clock_ms: int | None


@dataclass
class Channel:
    """A log, which survives crashes, and its two ends, which do not."""

    producer: str
    log: list[Entry] = field(default_factory=list)
    committed: int = 0
    sender: FlowSender | None = None
    receiver: FlowReceiver | None = None

    def sent(self, number: int) -> SentEntry:
        rows = len(self.log[number].messages)
        return SentEntry(number, rows, rows * 10, number * 31 + rows)


@dataclass
class Checkpoint:
    """A fragment's committed batches, how much of each partition they took, and the processed messages."""

    batch: int = -1
    taken: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    clock_ms: int | None = None
    processed: set[int] = field(default_factory=set)
    planned: tuple[list[int], dict[str, int]] | None = None
    """The offset log: the extent of the batch that has begun and is not committed."""


class World:
    """`graph` maps each fragment to those whose channels it reads; the first is the source."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = simulation.random
        names = [f"f{n}" for n in range(self.random.randint(2, 5))]
        self.graph: dict[str, list[str]] = {names[0]: []}
        for n, name in enumerate(names[1:], 1):
            self.graph[name] = self.random.sample(names[:n], self.random.randint(1, min(2, n)))
        self.channels = {(up, id): Channel(up) for id, ups in self.graph.items() for up in ups}
        self.checkpoints = {id: Checkpoint() for id in self.graph}
        self.attempts = dict.fromkeys(self.graph, 0)
        self.lives = 0
        self.deaths = self.random.choice([0.0, 0.01, 0.03])
        self.word_loss = self.random.choice([0.0, 0.1, 0.4])
        self.partitions = [self._partition(n) for n in range(PARTITIONS)]
        self.messages = {id: ts for partition in self.partitions for id, ts in partition}
        self.disk_ms: int | None = None
        self.told: list[int] = []
        self.service: ClockService | None = None
        self.waits: dict[int, bool] = {}  # times that waiters wait for, and whether they were reached

    def _partition(self, number: int) -> list[tuple[int, int]]:
        """Messages of one partition as (id, timestamp), out of order by the disorder at most."""
        start_ms = self.random.randint(0, 500) * (number + 1)
        newest, found = start_ms, []
        for n in range(self.random.randint(5, 60)):
            newest += self.random.randint(0, 30)
            found.append((number * 1_000 + n, max(0, newest - self.random.randint(0, DISORDER_MS)) + 1))
        return found

    def may_die(self) -> None:
        """Perhaps die: called between any two steps."""
        if self.random.random() < self.deaths:
            raise Died

    def send(self, deliver: Callable[[], None]) -> None:
        """Lose a message, or deliver it late, perhaps twice, after later ones."""
        for _ in range(self.random.choice([1, 1, 1, 2])):
            if self.random.random() >= self.word_loss:
                self.simulation.loop.call_later(self.random.uniform(0.001, 0.5), deliver)

    @property
    def has_finished(self) -> bool:
        """Whether the clock service has announced the final clock."""
        return bool(self.told) and self.told[-1] >= FINAL_CLOCK_MS

    # ---- the clock service

    async def live_service(self) -> None:
        """The lives of the service: each begins with the clock on the disk."""
        while not self.has_finished:
            self.lives += 1
            service = ClockService(self.simulation.now_ms, self.disk_ms, persist_ms=200, stall_ms=1_000)
            self.service = service
            if service.clock_ms is not None and service.clock_ms not in self.told[-1:]:
                self.tell(service.clock_ms)  # it was persisted, and the service died before it announced it
            try:
                fragments = tuple(ClockedFragment(id, tuple(ups)) for id, ups in self.graph.items())
                self.step(service, FragmentsChanged(fragments))
                for wanted_ms in self.waits:
                    self.step(service, ClockRequested(wanted_ms))
                while self.service is service and not self.has_finished:
                    await self.simulation.sleep(0.1)
                    self.step(service, TimePassed())
            except Died:
                self.simulation.record("the clock service died")
            self.service = None
            await self.simulation.sleep(self.random.uniform(0.0, 1.0))

    def hear(self, event: Event) -> None:
        """Deliver an event to the clock service, if it lives."""
        if self.service is not None:
            try:
                self.step(self.service, event)
            except Died:
                self.service = None

    def step(self, service: ClockService, event: Event) -> None:
        """Perform the effects in order, dying between any two."""
        effects = service.step(event, self.simulation.now_ms)
        service.check()
        for effect in effects:
            self.may_die()
            if isinstance(effect, PersistClock):
                self.disk_ms = effect.clock_ms
                self.may_die()
                self.step(service, ClockPersisted(effect.clock_ms))
            elif isinstance(effect, AnnounceClock):
                self.tell(effect.clock_ms)

    def tell(self, clock_ms: int) -> None:
        """Check an announced clock: it never goes back, and never passes an unprocessed message."""
        assert not self.told or clock_ms > self.told[-1], (
            f"the clock goes back from {self.told[-1]} to {clock_ms}"
        )
        self.told.append(clock_ms)
        for id, ts in self.messages.items():
            if ts < clock_ms:
                behind = [f for f, checkpoint in self.checkpoints.items() if id not in checkpoint.processed]
                assert not behind, (
                    f"the clock is {clock_ms}, and {behind} have not processed message {id} at {ts}"
                )
        for wanted_ms in self.waits:
            self.waits[wanted_ms] = self.waits[wanted_ms] or clock_ms >= wanted_ms

    # ---- fragments

    async def live_fragment(self, id: str) -> None:
        """A fragment's attempts, each from its checkpoint."""
        slowest_s = self.random.choice([0.05, 0.2, 0.6])
        while not self.has_finished:
            self.attempts[id] += 1
            attempt = Attempt(self, id)
            try:
                while not self.has_finished:
                    attempt.poll()
                    self.may_die()
                    attempt.batch()
                    await self.simulation.sleep(self.random.uniform(0.01, slowest_s))
            except Died:
                self.simulation.record(f"{id} died")
            attempt.close()
            await self.simulation.sleep(self.random.uniform(0.0, 0.5))


class Attempt:
    """One attempt of a fragment."""

    def __init__(self, world: World, id: str) -> None:
        self.world = world
        self.id = id
        self.number = world.attempts[id]
        self.checkpoint = world.checkpoints[id]
        self.inputs = {up: world.channels[up, id] for up in world.graph[id]}
        self.outputs = [channel for (up, _), channel in world.channels.items() if up == id]
        self.settled_ms = self.checkpoint.clock_ms
        told = [c.log[-1].clock_ms for c in self.outputs if c.log]
        self.clock_ms = max([c for c in (*told, self.settled_ms) if c is not None], default=None)
        self.source: SourceClocks[int] | None = None
        if not self.inputs:
            self.source = SourceClocks(
                range(PARTITIONS), disorder_ms=DISORDER_MS, idle_ms=None, now_ms=world.simulation.now_ms
            )
        for channel in self.inputs.values():
            channel.receiver = FlowReceiver(
                life=(0, self.number, 0), position=channel.committed, grace_ms=5_000
            )
        for channel in self.outputs:
            unread = [channel.sent(n) for n in range(channel.committed, len(channel.log))]
            channel.sender = FlowSender(
                WINDOW,
                incarnation=self.number,
                position=channel.committed,
                entries=unread,
                now_ms=world.simulation.now_ms,
            )
        world.send(lambda: world.hear(FragmentRestarted(id, self.number)))

    def close(self) -> None:
        for channel in self.inputs.values():
            channel.receiver = None
        for channel in self.outputs:
            channel.sender = None

    def poll(self) -> None:
        """Report its progress, again and again: messages are lost."""
        report = FragmentReported(self.id, self.number, self.settled_ms)
        self.world.send(lambda: self.world.hear(report))
        for channel in self.outputs:
            if channel.sender is not None:
                self._sent(channel, channel.sender.ticked(self.world.simulation.now_ms))

    def batch(self) -> None:
        """Run one batch: taken, appended, committed. The process may die in between; the batch is then
        repeated."""
        if any(c.sender is not None and c.sender.is_full for c in self.outputs):
            return
        taken, ends, messages = self._take()
        clock_ms = self._clock_after(ends, taken, messages)
        is_repeated = any(c.log and c.log[-1].batch > self.checkpoint.batch for c in self.outputs)
        has_input = bool(messages) or any(ends[up] > c.committed for up, c in self.inputs.items())
        if not has_input and clock_ms == self.clock_ms and not is_repeated:
            self.checkpoint.planned = None  # there are no new messages: Spark plans no batch
            return
        if clock_ms is not None and (self.clock_ms is None or clock_ms > self.clock_ms):
            self.clock_ms = clock_ms
        number = self.checkpoint.batch + 1
        for channel in self.outputs:
            self.world.may_die()
            if not channel.log or channel.log[-1].batch < number:
                self._append(channel, Entry(number, messages, self.clock_ms))
        self.world.may_die()
        self._commit(number, taken, ends, messages)

    def _commit(self, number: int, taken: list[int], ends: dict[str, int], messages: dict[int, int]) -> None:
        self.checkpoint.batch, self.checkpoint.taken, self.checkpoint.planned = number, taken, None
        self.checkpoint.processed |= set(messages)
        self.checkpoint.clock_ms = self.settled_ms = self.clock_ms
        starts = {up: channel.committed for up, channel in self.inputs.items()}
        for up, channel in self.inputs.items():
            channel.committed = ends[up]
        for up, channel in self.inputs.items():
            self.world.may_die()
            rows = sum(len(entry.messages) for entry in channel.log[starts[up] : ends[up]])
            if channel.receiver is not None and ends[up] > starts[up]:
                self._received(channel, channel.receiver.taken(starts[up], ends[up], rows, rows))

    def _take(self) -> tuple[list[int], dict[str, int], dict[int, int]]:
        """The positions after a batch, and its messages; the same if the batch is repeated."""
        world, before = self.world, self.checkpoint
        if before.planned is None:
            taken = [min(len(p), t + world.random.randint(0, 4)) for p, t in self._partitions()]
            ends = {
                up: min(len(c.log), c.committed + world.random.randint(1, 3)) for up, c in self.inputs.items()
            }
            before.planned = taken, ends
        taken, ends = before.planned
        messages: dict[int, int] = {}
        for (partition, start), end in zip(self._partitions(), taken, strict=True):
            messages |= dict(partition[start:end])
        for up, channel in self.inputs.items():
            for entry in channel.log[channel.committed : ends[up]]:
                messages |= entry.messages
        return taken, ends, messages

    def _partitions(self) -> list[tuple[list[tuple[int, int]], int]]:
        """The partitions of the source, with how much of each is taken; none for a fragment that reads
        channels."""
        return (
            []
            if self.source is None
            else list(zip(self.world.partitions, self.checkpoint.taken, strict=True))
        )

    def _clock_after(self, ends: dict[str, int], taken: list[int], messages: dict[int, int]) -> int | None:
        world = self.world
        if self.source is None:
            clocks = [c.log[ends[up] - 1].clock_ms if ends[up] else None for up, c in self.inputs.items()]
            known = [clock for clock in clocks if clock is not None]
            return min(known) if len(known) == len(clocks) else None
        newest = {
            n: max(ts for id, ts in partition if id in messages)
            for n, partition in enumerate(world.partitions)
            if any(id in messages for id, _ in partition)
        }
        self.source.observe(newest, world.simulation.now_ms, world.simulation.now_ms)
        self.source.check()
        is_end = all(t == len(p) for t, p in zip(taken, world.partitions, strict=True))
        return FINAL_CLOCK_MS if is_end else self.source.clock_ms

    # ---- words of flow control

    def _append(self, channel: Channel, entry: Entry) -> None:
        channel.log.append(entry)
        unread = sum(len(e.messages) for e in channel.log[channel.committed :])
        assert unread < WINDOW.rows + 4 * PARTITIONS * 8, f"{unread} messages wait behind {channel.producer}"
        if channel.sender is not None:
            number = len(channel.log) - 1
            self._sent(channel, channel.sender.appended(channel.sent(number), self.world.simulation.now_ms))

    def _sent(self, channel: Channel, effects: list[SenderEffect]) -> None:
        for effect in effects:
            assert isinstance(effect, SendAckRequest), f"nothing was lost: {effect}"
            request = effect.request
            self.world.send(lambda request=request: self._request(channel, request))

    def _request(self, channel: Channel, request: AckRequest) -> None:
        receiver = channel.receiver
        if receiver is not None:
            seen = [channel.sent(n) if n < len(channel.log) else None for n in receiver.wanted(request)]
            self._received(channel, receiver.requested(request, seen, self.world.simulation.now_ms))

    def _received(self, channel: Channel, effects: list[ReceiverEffect]) -> None:
        for effect in effects:
            assert isinstance(effect, SendAck), f"nothing was lost: {effect}"
            ack = effect.ack
            self.world.send(lambda ack=ack: self._acknowledge(channel, ack))

    def _acknowledge(self, channel: Channel, ack: Ack) -> None:
        if channel.sender is not None:
            self._sent(channel, channel.sender.acknowledged(ack, self.world.simulation.now_ms))
