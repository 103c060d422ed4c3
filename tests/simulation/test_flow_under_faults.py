"""Producer and subscriber of a channel on a bad network, each dying between any two steps, entries lost.

Every process has a clock of its own that begins anywhere: no clock decides which word is newer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from drivetrain.core.flow.flow import (
    Ack,
    AckRequest,
    Life,
    Loss,
    ReceiverEffect,
    ReportLoss,
    SendAck,
    SendAckRequest,
    SenderEffect,
    SentEntry,
    Window,
)
from drivetrain.core.flow.flow_receiver import FlowReceiver
from drivetrain.core.flow.flow_sender import FlowSender
from drivetrain.simulator import Simulation, simulate

BATCHES = 40
LARGEST = 30
WINDOW = Window(rows=100, bytes=0, entries=8)

Word: TypeAlias = AckRequest | Ack


class Died(Exception):  # noqa: N818 - no error: what happens to processes
    """A side of the channel was killed here."""


class World:
    """The log and the checkpoint, which survive; what dies is in `Producer` and `Subscriber`."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.random = simulation.random
        self.log: list[SentEntry] = []
        self.hidden: set[int] = set()  # entries that were deleted or changed behind everybody's back
        self.recorded = 0  # the position on disk, for trimming and for a producer that starts again
        self.committed = 0
        self.reached = 0  # the largest position that was ever committed
        self.processed: list[int] = []  # how many messages of each entry, as of the last commit
        self.deaths = simulation.random.choice([0.0, 0.01, 0.04])
        self.word_loss = simulation.random.choice([0.0, 0.1, 0.4])
        self.injected: set[int] = set()
        self.found: set[int] = set()
        self.producer: Producer | None = None
        self.subscriber: Subscriber | None = None
        self.done = False

    def clock_ms(self) -> Callable[[], int]:
        """The clock of a new process: it does not go back, and begins anywhere."""
        origin_ms = self.random.randint(0, 10**9) - self.simulation.now_ms
        return lambda: origin_ms + self.simulation.now_ms

    def may_die(self) -> None:
        """Between any two steps."""
        if self.random.random() < self.deaths:
            raise Died

    def send(self, word: Word, deliver: Callable[[Word], None]) -> None:
        """Lose it, or deliver it late, perhaps twice, overtaken by others."""
        for _ in range(self.random.choice([1, 1, 1, 2])):
            if self.random.random() >= self.word_loss:
                self.simulation.loop.call_later(self.random.uniform(0.001, 0.8), deliver, word)

    def seen(self, number: int) -> SentEntry | None:
        """The entry as whoever reads the log sees it."""
        if number >= len(self.log):
            return None
        if number in self.hidden:
            return None if number % 2 else SentEntry(number, self.log[number].rows, 0, 999)
        return self.log[number]

    def report(self, loss: Loss) -> None:
        """Repair what is lost, and take the subscriber back to the last good position."""
        self.simulation.record(f"loss {loss}")
        for number in range(loss.start, loss.end):
            if number in self.injected:
                self.found.add(number)
                self.hidden.discard(number)
        self.committed = min(self.committed, loss.start)
        del self.processed[self.committed :]
        self.subscriber = None

    async def live(self, name: str, begin: Callable[[World], Producer | Subscriber]) -> None:
        """One side's lives, until everything is there."""
        while not self.is_done():
            side = begin(self)
            setattr(self, name, side)
            try:
                while not self.is_done() and getattr(self, name) is side:
                    side.step()
                    side.core.check()
                    await self.simulation.sleep(self.random.uniform(0.01, side.slowest_s))
            except Died:
                self.simulation.record(f"{name} died")
            if getattr(self, name) is side:
                setattr(self, name, None)
            await self.simulation.sleep(self.random.uniform(0.0, 0.5))

    def is_done(self) -> bool:
        """Whether all is produced, taken and acknowledged; once true it stays true."""
        if self.producer is not None and len(self.log) == self.committed == BATCHES:
            self.done = self.done or self.producer.core.position == BATCHES
        return self.done


class Producer:
    """Appends batches while the window lets it."""

    slowest_s = 0.1
    incarnation = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.now_ms = world.clock_ms()
        Producer.incarnation += 1
        self.core = FlowSender(
            WINDOW,
            incarnation=Producer.incarnation,
            position=world.recorded,
            entries=world.log[world.recorded :],
            now_ms=self.now_ms(),
        )

    def step(self) -> None:
        world = self.world
        if len(world.log) < BATCHES and not self.core.is_full:
            rows = world.random.randint(0, LARGEST)
            # What ends a log is no barrier, and nobody looks for a barrier that nothing follows.
            is_barrier = len(world.log) < BATCHES - 1 and world.random.random() < 0.1
            rows = 0 if is_barrier else rows
            entry = SentEntry(len(world.log), rows, rows * 100, len(world.log) * 31 + rows, is_barrier)
            world.log.append(entry)
            if world.random.random() < 0.05:
                world.hidden.add(entry.number)
                world.injected.add(entry.number)
            world.may_die()
            self.perform(self.core.appended(entry, self.now_ms()))
        world.may_die()
        self.perform(self.core.ticked(self.now_ms()))
        # What was acknowledged to an earlier incarnation this one does not know: what is committed counts.
        waiting = sum(entry.rows for entry in world.log[max(self.core.position, world.reached) :])
        assert waiting < WINDOW.rows + LARGEST

    def perform(self, effects: list[SenderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendAckRequest):
                self.world.send(effect.request, self.deliver)
            else:
                self.world.report(effect.loss)
            self.world.may_die()

    def deliver(self, word: Word) -> None:
        subscriber = self.world.subscriber
        if subscriber is not None and isinstance(word, AckRequest):
            subscriber.hear(word)

    def hear(self, ack: Ack) -> None:
        before = self.core.position
        try:
            self.perform(self.core.acknowledged(ack, self.now_ms()))
        except Died:
            self.world.producer = None
        assert self.core.position >= before, "the acknowledged position went back"
        for number in range(before, self.core.position):
            entry = self.world.log[number]
            assert self.world.processed[number] == entry.rows, "a loss was acknowledged"


class Subscriber:
    """Takes batches of entries, now and then too few messages, and commits."""

    slowest_s = 0.4
    life: Life = (0, 0, 0)

    def __init__(self, world: World) -> None:
        self.world = world
        self.now_ms = world.clock_ms()
        epoch, attempt, start = Subscriber.life
        later = [(epoch + 1, 0, 0), (epoch, attempt + 1, 0), (epoch, attempt, start + 1)]
        Subscriber.life = world.random.choice(later)
        self.core = FlowReceiver(life=Subscriber.life, position=world.committed, grace_ms=1_000)

    def step(self) -> None:
        world = self.world
        start = end = self.core.position
        while world.seen(end) is not None and end - start < 3:
            if world.seen(end) != world.log[end]:
                # Reading a segment that is not what its entry says fails the batch.
                return world.report(Loss(end, end + 1, "the segment as written", "another"))
            end += 1
        if end > start:
            counts = [world.log[number].rows for number in range(start, end)]
            if not world.deaths and counts[-1] and world.random.random() < 0.03:
                # The engine drops a message. (A side that dies in between forgets its counts: see the core.)
                counts[-1] -= 1
                world.injected.add(end - 1)
            world.processed += counts
            world.committed = end
            world.reached = max(world.reached, end)
            world.may_die()
            self.perform(self.core.taken(start, end, sum(counts), sum(e.rows for e in world.log[start:end])))
        if world.random.random() < 0.3 and not world.injected - world.found:
            world.recorded = max(world.recorded, world.committed)
        return None

    def perform(self, effects: list[ReceiverEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendAck):
                self.world.send(effect.ack, self.deliver)
            else:
                assert isinstance(effect, ReportLoss)
                self.world.report(effect.loss)
            self.world.may_die()

    def deliver(self, word: Word) -> None:
        producer = self.world.producer
        if producer is not None and isinstance(word, Ack):
            producer.hear(word)

    def hear(self, request: AckRequest) -> None:
        seen = [self.world.seen(number) for number in self.core.wanted(request)]
        try:
            self.perform(self.core.requested(request, seen, self.now_ms()))
        except Died:
            self.world.subscriber = None


@simulate(seeds=75)
async def test_nothing_is_lost_or_exceeds_the_window_and_everything_arrives(simulation: Simulation) -> None:
    Producer.incarnation, Subscriber.life = 0, (0, 0, 0)
    world = World(simulation)
    lives = [
        asyncio.ensure_future(world.live("producer", Producer)),
        asyncio.ensure_future(world.live("subscriber", Subscriber)),
    ]
    await asyncio.wait_for(asyncio.gather(*lives), 3_000)
    assert world.processed == [entry.rows for entry in world.log]
    assert world.found == world.injected, "an injected loss was not found"
