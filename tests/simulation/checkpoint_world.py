"""An application of fragments, channels and transactional sinks around the cores of a checkpoint.

`Disk`, `Log`, `Sink` and `World.stored` survive a crash; a `Shell` and the coordinator do not. They behave
like the engine's: batches run again as they were planned, a barrier follows the last batch, effects happen
in order. The oracle does not use them: it computes what every fragment and sink must have after a certain
number of messages of each source, and after all messages older than an application time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from drivetrain.core.checkpoint.barriers import (
    Acknowledge,
    CommandArrived,
    Effect,
    Forward,
    Hold,
    Participant,
    Publish,
    Refuse,
    Release,
    ReportStateLost,
    Restore,
    Resume,
    RollBack,
    SnapshotFailed,
    SnapshotTaken,
    TakeSnapshot,
)
from drivetrain.core.checkpoint.coordinator import (
    CheckpointCoordinator,
    CheckpointPolicy,
    CheckpointRequested,
    Completed,
    Emit,
    Persist,
    TimePassed,
)
from drivetrain.core.checkpoint.transaction import (
    COORDINATOR,
    NO_TXID,
    Action,
    ActionFailed,
    CheckpointRecord,
    Command,
    Phase,
    Snapshot,
    StateLost,
    Transaction,
)
from drivetrain.core.state.picture_times import times_between
from drivetrain.simulator import Simulation

POLICY = CheckpointPolicy(interval_ms=200, timeout_ms=3_000)
APART_MS = 50
DISORDER_MS = 300
KEEP_MS = 3_000
END_MS = 20_000
"""The clock of a source that has delivered all its messages: later than every timestamp."""


class Died(Exception):  # noqa: N818 - no error: what happens to processes
    """A process was killed here."""


@dataclass(frozen=True)
class Entry:
    """An entry of a channel: a batch's messages, or a barrier."""

    life: int
    batch: int
    messages: tuple[int, ...] = ()
    barrier: Command | None = None
    clock_ms: int = 0


@dataclass
class Log:
    """A channel; entries below `start` are deleted."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0


@dataclass
class Sink:
    """A target where batches are prepared, and shown once they are committed."""

    prepared: dict[int, tuple[int, ...]] = field(default_factory=dict)
    seen: Counter[int] = field(default_factory=Counter)
    published: int = -1
    txid: int = NO_TXID

    def commit(self, batch: int) -> None:
        assert batch > self.published, "a batch was published twice"
        self.seen.update(self.prepared.pop(batch))
        self.published = batch


@dataclass(frozen=True)
class State:
    """A fragment between two batches."""

    batch: int = -1
    offset: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)


@dataclass
class Disk:
    """The files that a fragment finds when it starts again."""

    state: State = field(default_factory=State)
    planned: State | None = None
    life: int = 0
    lost: bool = False
    released: int = 0
    saved: dict[int, State] = field(default_factory=dict)


class World:
    """A random graph; `sources` are how many messages each fragment's own source has."""

    def __init__(self, simulation: Simulation) -> None:
        self.random = simulation.random
        self.record = simulation.record
        draw = self.random
        self.names = [f"f{n}" for n in range(draw.randint(1, 5))]
        self.sources: dict[str, int] = {}
        self.upstreams: dict[str, list[str]] = {}
        for n, name in enumerate(self.names):
            few = draw.sample(self.names[:n], min(n, draw.choice([0, 1, 1, 2, 3])))
            self.upstreams[name] = sorted(few)
            if not few or draw.random() < 0.2:
                self.sources[name] = draw.randint(50, 250)
        consumed = {up for ups in self.upstreams.values() for up in ups}
        self.sinks = {n: Sink() for n in self.names if n not in consumed or draw.random() < 0.3}
        self.logs = {f"{up}>{n}": Log() for n in self.names for up in self.upstreams[n]}
        self.disks = {name: Disk() for name in self.names}
        self.steps_ms = {name: draw.choice([None, 100, 200, 300, 500]) for name in self.names}
        self.shells: dict[str, Shell | None] = dict.fromkeys(self.names)
        self.coordinator: CheckpointCoordinator | None = None
        self.stored: Transaction | None = None
        self.post: list[tuple[str, Any]] = []
        self.late: list[tuple[str, Any]] = []
        self.now_ms = 0
        self.deaths = draw.choice([0.0, 0.002, 0.01])
        self.losses = draw.choice([0.0, 0.01, 0.05])
        self.forgets = draw.choice([0.0, 0.2, 0.5])
        self.restores = 0
        self.completed = 0

    def outputs(self, name: str) -> list[str]:
        return [channel for channel in self.logs if channel.startswith(f"{name}>")]

    # -- what happens --------------------------------------------------------------------------------

    def may_die(self) -> None:
        """Perhaps die: called between any two effects."""
        if self.random.random() < self.deaths:
            raise Died

    def send(self, to: str, word: Any) -> None:
        """Lose a message, or deliver it later, perhaps twice."""
        for _ in range(self.random.choice([1, 1, 1, 2]) if self.losses else 1):
            if self.random.random() >= self.losses:
                is_late = self.losses and self.random.random() < 0.1
                (self.late if is_late else self.post).append((to, word))

    def calm(self) -> None:
        """Inject no more faults."""
        self.deaths = self.losses = self.forgets = 0.0

    def step(self) -> None:
        """Let one event happen somewhere."""
        self.now_ms += self.random.randint(0, 25)
        what = self.random.random()
        if self.post and what < 0.5:
            # One of the oldest messages: so they overtake each other, and some arrive very late.
            chosen = min(self.random.randrange(len(self.post)) for _ in range(2))
            self.deliver(*self.post.pop(chosen))
        elif self.late and what < 0.52:
            self.deliver(*self.late.pop(self.random.randrange(len(self.late))))
        elif what < 0.65:
            self.at_coordinator(TimePassed())
        else:
            self.at_fragment(self.random.choice(self.names), None)
        self.check()

    def deliver(self, to: str, word: Any) -> None:
        if to == COORDINATOR:
            self.at_coordinator(word)
        elif self.shells[to] is not None:
            self.at_fragment(to, word)

    def at_coordinator(self, event: Any) -> None:
        if self.coordinator is None:
            self.coordinator = CheckpointCoordinator(self.names, POLICY, self.stored)
        core = self.coordinator
        try:
            for effect in core.step(event, self.now_ms):
                self.may_die()
                match effect:
                    case Persist(transaction):
                        self.stored = transaction
                    case Emit(command):
                        for name in self.sources:
                            self.may_die()
                            self.send(name, CommandArrived(COORDINATOR, command))
                    case Completed(record):
                        self.complete(record)
            self.may_die()
            core.check()
        except Died:
            self.record("the coordinator died")
            self.coordinator = None

    def die(self) -> None:
        """Let all processes die at once; messages on their way arrive in the next run."""
        self.coordinator = None
        self.shells = dict.fromkeys(self.names)

    def at_fragment(self, name: str, event: Any) -> None:
        shell = self.shells[name]
        try:
            if shell is None:
                shell = self.shells[name] = Shell(self, name)
                shell.begin()
            elif event is not None:
                shell.hear(event)
            else:
                shell.go_on()
            shell.core.check()
        except Died:
            self.shells[name] = None
            disk = self.disks[name]
            if disk.life and self.random.random() < self.forgets:
                disk.lost, disk.state, disk.planned = True, State(), None
            self.record(f"{name} died{' and lost its state' if disk.lost else ''}")
            if self.random.random() < 0.5:
                self.send(COORDINATOR, ActionFailed(name, "it died"))

    def complete(self, record: CheckpointRecord) -> None:
        """Check a committed transaction, then delete what only older ones needed."""
        self.completed += 1
        expected = self.oracle({name: record.fragments[name] for name in self.sources})
        self.check_time(record)
        for name in self.names:
            assert self.disks[name].saved[record.round].counts == expected[name], f"{name} was saved wrong"
            if name in self.sinks:
                assert self.sinks[name].seen == expected[name], f"the sink of {name} shows another cut"
            saved = self.disks[name].saved
            for older in [number for number in saved if number < record.round]:
                del saved[older]
        for channel, position in record.channel_positions().items():
            self.logs[channel].start = max(self.logs[channel].start, position)

    # -- what must be true ---------------------------------------------------------------------------

    def check_time(self, record: CheckpointRecord) -> None:
        """Check that, as of the record's application time, every fragment with pictures was saved with all
        older messages."""
        at_ms = record.as_of_ms
        ranges = [s.pictures for s in record.fragments.values() if s.pictures is not None]
        sets = [set(range(r.first_ms, r.last_ms + 1, r.step_ms)) for r in ranges]
        every = set.intersection(*sets) if sets else set()
        assert at_ms == max(every, default=None), "a newer time suits all, or this one does not"
        if at_ms is None:
            return
        for name, whole in self.oracle().items():
            if record.fragments[name].pictures is None:
                continue
            saved = self.disks[name].saved[record.round].counts
            assert older(saved, at_ms) == older(whole, at_ms), f"{name} is not exact as of {at_ms} ms"

    def oracle(self, offsets: dict[str, Snapshot] | None = None) -> dict[str, Counter[int]]:
        """By fragment, the messages that reach it from the first ones of each source (from all, without
        offsets)."""
        made: dict[str, Counter[int]] = {}
        for name in self.names:
            made[name] = Counter()
            for up in self.upstreams[name]:
                made[name].update(made[up])
            if name in self.sources:
                until = self.sources[name] if offsets is None else int(offsets[name].sources[name])
                made[name].update(message(self.names.index(name), n) for n in range(until))
        return made

    def check(self) -> None:
        """Check that no transaction is half committed: no sink shows it before the decision, and all do
        before the next."""
        stored = self.stored or Transaction()
        decided = NO_TXID if stored.record is None else stored.record.txid
        least = decided - 1 if stored.phase is Phase.COMMITTING else decided
        for name, sink in self.sinks.items():
            assert least <= sink.txid <= decided, f"{name} shows transaction {sink.txid}, {stored}"

    def is_done(self) -> bool:
        """Whether everything is published."""
        expected = self.oracle()
        return all(sink.seen == expected[name] for name, sink in self.sinks.items())

    def want_checkpoint(self) -> None:
        """Request a checkpoint, as a savepoint does."""
        self.at_coordinator(CheckpointRequested())


class Shell:
    """A process of one fragment."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = world.disks[name]
        inputs = [f"{up}>{name}" for up in world.upstreams[name]]
        self.channels = list(inputs)
        if name in world.sources:
            inputs.append(COORDINATOR)
        self.core = Participant(name, inputs, self.disk.life, self.disk.lost, max(self.disk.saved, default=0))
        self.saving: Command | None = None

    def begin(self) -> None:
        """Report the barriers at which inputs stand to the core again."""
        self.tell_barriers()

    def hear(self, event: CommandArrived) -> None:
        self.perform(self.core.step(event))

    def go_on(self) -> None:
        """Take a pending snapshot, or run a batch."""
        if self.saving is not None and self.disk.planned is None:
            return self.save(self.saving)
        if not self.core.may_run:
            return None
        planned = self.disk.planned or self.plan()
        if planned is None:
            return self.tell_barriers()  # a barrier may have arrived since
        self.disk.planned = planned
        self.world.may_die()
        messages = self.read(planned)
        self.write(planned, messages)
        self.world.may_die()
        self.disk.state = self.after(planned, messages)
        self.disk.planned = None
        self.world.may_die()
        self.tell_barriers()
        return None

    # -- a batch -------------------------------------------------------------------------------------

    def plan(self) -> State | None:
        """The state after the next batch; None: there are no new messages."""
        state, world = self.disk.state, self.world
        offset = state.offset
        if self.name in world.sources:
            offset = min(offset + world.random.randint(0, 4), world.sources[self.name])
        positions = {c: self.end_of(c, state.positions.get(c, 0)) for c in self.channels}
        if offset == state.offset and positions == {c: state.positions.get(c, 0) for c in self.channels}:
            return None
        return State(state.batch + 1, offset, positions)

    def end_of(self, channel: str, position: int) -> int:
        entries = self.world.logs[channel].entries
        reached, most = position, self.world.random.randint(0, 3)
        for number in range(position, len(entries)):
            barrier = entries[number].barrier
            if most == 0 or entries[number].life > self.disk.life:
                break
            if barrier is not None and barrier.round > self.disk.released:
                break
            if barrier is None:
                reached, most = number + 1, most - 1
        return reached

    def barrier_at(self, channel: str, position: int) -> Command | None:
        """The newest barrier directly after a position, if it is not released."""
        found = None
        for entry in self.world.logs[channel].entries[position:]:
            if entry.barrier is None:
                break
            found = entry.barrier
        return found if found is not None and found.round > self.disk.released else None

    def read(self, planned: State) -> list[int]:
        state, world = self.disk.state, self.world
        found = [message(world.names.index(self.name), n) for n in range(state.offset, planned.offset)]
        for channel in self.channels:
            log, position = world.logs[channel], state.positions.get(channel, 0)
            assert position >= log.start or position == planned.positions[channel], "it was deleted too early"
            for entry in log.entries[position : planned.positions[channel]]:
                found.extend(entry.messages)
        return found

    def clock_ms(self, state: State) -> int:
        """The clock of its inputs up to there: no older message follows."""
        clocks = []
        if self.name in self.world.sources:
            is_over = state.offset == self.world.sources[self.name]
            clocks.append(END_MS if is_over else state.offset * APART_MS)
        for channel in self.channels:
            taken = self.world.logs[channel].entries[: state.positions.get(channel, 0)]
            clocks.append(max((entry.clock_ms for entry in taken), default=0))
        return min(clocks)

    def write(self, planned: State, messages: list[int]) -> None:
        world, batch = self.world, planned.batch
        if self.name in world.sinks:
            world.sinks[self.name].prepared[batch] = tuple(messages)
        for channel in world.outputs(self.name):
            world.may_die()
            entries = world.logs[channel].entries
            if batch > newest_batch(entries):
                clock_ms = self.clock_ms(planned)
                entries.append(Entry(self.disk.life, batch, tuple(messages), clock_ms=clock_ms))

    def after(self, planned: State, messages: list[int]) -> State:
        counts = self.disk.state.counts.copy()
        counts.update(messages)
        return State(planned.batch, planned.offset, planned.positions, counts)

    # -- checkpoints ---------------------------------------------------------------------------------

    def tell_barriers(self) -> None:
        if self.disk.lost:
            return
        for channel in self.channels:
            barrier = self.barrier_at(channel, self.disk.state.positions.get(channel, 0))
            if barrier is not None:
                self.perform(self.core.step(CommandArrived(channel, barrier)))

    def save(self, command: Command) -> None:
        self.saving = None
        if self.world.deaths and self.world.random.random() < 0.05:
            return self.perform(self.core.step(SnapshotFailed(command.round, "no room")))
        state = self.disk.state
        self.disk.saved[command.round] = state
        self.world.may_die()
        sources = {self.name: str(state.offset)} if self.name in self.world.sources else {}
        positions = {c: state.positions.get(c, 0) for c in self.channels}
        sinks = {self.name: state.batch} if self.name in self.world.sinks else {}
        clock_ms, step_ms = self.clock_ms(state), self.world.steps_ms[self.name]
        pictures = None if step_ms is None else times_between(max(1, clock_ms - KEEP_MS), clock_ms, step_ms)
        snapshot = Snapshot(state.batch, sources, positions, sinks, len(state.counts), pictures)
        return self.perform(self.core.step(SnapshotTaken(command.round, snapshot)))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.world.may_die()
            self.do(effect)

    def do(self, effect: Effect) -> None:
        world, disk = self.world, self.disk
        match effect:
            case Hold(channel):
                assert self.barrier_at(channel, disk.state.positions.get(channel, 0)) is not None
            case Release(round):
                disk.released = max(disk.released, round)
            case TakeSnapshot(command):
                self.saving = command
            case Publish(command, snapshot):
                self.publish(command.txid, snapshot)
            case RollBack(_, round):
                self.saving = None
                disk.saved.pop(round, None)
            case Restore(command, snapshot):
                self.restore(command, snapshot)
            case Resume():
                assert not disk.lost
            case Forward(command):
                self.forward(command)
            case Acknowledge(ack):
                world.send(COORDINATOR, ack)
            case Refuse(_, reason):
                world.send(COORDINATOR, ActionFailed(self.name, reason))
            case ReportStateLost(life):
                world.send(COORDINATOR, StateLost(self.name, life, "it was deleted"))

    def publish(self, txid: int, snapshot: Snapshot | None) -> None:
        if self.name not in self.world.sinks:
            return
        sink = self.world.sinks[self.name]
        assert snapshot is not None
        for batch in sorted(b for b in sink.prepared if b <= snapshot.sinks[self.name]):
            self.world.may_die()
            sink.commit(batch)
        sink.txid = max(sink.txid, txid)  # a COMMIT that arrives late finds everything published

    def restore(self, command: Command, snapshot: Snapshot | None) -> None:
        world, disk = self.world, self.disk
        world.restores += 1
        self.saving = None
        positions = {} if command.record is None else command.record.channel_positions()
        for channel in world.outputs(self.name):
            world.may_die()
            end = positions.get(channel, 0)
            assert end >= world.logs[channel].start
            del world.logs[channel].entries[end:]
        sink = world.sinks.get(self.name)
        if sink is not None:
            published = -1 if snapshot is None else snapshot.sinks[self.name]
            assert sink.published <= published, "what is published is to be taken back"
            for batch in [b for b in sink.prepared if b > published]:
                world.may_die()
                del sink.prepared[batch]
        assert command.record is None or snapshot is not None
        record = command.record
        disk.state = State() if record is None else disk.saved[record.round]
        disk.planned = None
        world.may_die()
        disk.life, disk.lost = command.life, False

    def forward(self, command: Command) -> None:
        world = self.world
        for channel in world.outputs(self.name):
            world.may_die()
            if command.action is Action.PREPARE:
                entries = world.logs[channel].entries
                entries.append(Entry(self.disk.life, newest_batch(entries), (), command))
            else:
                world.send(channel.split(">")[1], CommandArrived(channel, command))


def newest_batch(entries: list[Entry]) -> int:
    """The last batch of a channel, according to its last entry."""
    return entries[-1].batch if entries else -1


def message(source: int, number: int) -> int:
    """The number-th message of a source."""
    return source * 1_000 + number


def older(messages: Counter[int], at_ms: int) -> Counter[int]:
    """The messages with a timestamp before a time; they are out of order by less than `DISORDER_MS`."""

    def ts_ms(message: int) -> int:
        return message % 1_000 * APART_MS + message * 7_919 % DISORDER_MS

    return Counter({m: count for m, count in messages.items() if ts_ms(m) < at_ms})
