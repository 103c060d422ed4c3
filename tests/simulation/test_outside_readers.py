"""A producer and another application that reads from it, both of which die between any two effects.

The reader takes batches as Spark does: it plans one, reads it, shows it, and has committed it only later;
after a death it reads the planned batch again. Every message must be shown once, in a batch that is the same
each time it is read, or be counted as dropped once.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.channel.outside_quota import OutsidePolicy, OutsideQuota
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.runtime.channel.outside_reader import OutsideReader
from drivetrain.runtime.channel.store import ChannelStore

READER = "report"


class DeadError(Exception):
    """A process has died here."""


class Producer:
    """One process of the producer after the other; what survives is in files."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = ChannelStore(world.uri, fragment="shop", durable=False)
        self.reader = OutsideReader(self.store)
        self.room = OutsideQuota(world.policy, self.store.start())
        self.reader.count()

    def step(self) -> None:
        world = self.world
        self.learn()
        match world.random.randrange(3):
            case 0 if not self.room.must_wait:
                self.append()
            case 1:
                self.drop()
            case _:
                self.trim()
        self.room.check()

    def learn(self) -> None:
        for number in range(self.room.end, self.store.length()):
            entry = self.store.entry(number)
            self.room.added(entry.rows, entry.bytes, self.world.appended_ms[number])
        position = self.store.positions().get(READER)  # type: ignore[call-overload]
        if position is not None:
            self.room.passed(position)

    def append(self) -> None:
        number = self.store.length()
        rows = self.world.random.randrange(4)
        path = f"segments/{number}-{self.world.random.random()}.arrow"
        self.store.files.write(path, b"x")
        segments = [Segment(path, rows, 10 * rows, 0, 0, 0)] if rows else []
        self.world.appended_ms[number] = self.world.now_ms
        self.world.appended[number] = rows
        self.store.append(number, segments, number)

    def drop(self) -> None:
        numbers = self.room.to_drop(self.reader.planned(), self.world.now_ms)
        for number in self.reader.drop(numbers):
            self.room.dropped(number)

    def trim(self) -> None:
        positions = self.store.held()
        if positions:
            self.store.trim(positions)


class Reader:
    """One process of the reader after the other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = ChannelStore(world.uri)

    def step(self) -> None:
        world = self.world
        if world.planned is None:
            end = min(self.store.length(), world.position + world.random.randint(1, 3))
            if end <= world.position:
                return
            OutsideReader(self.store).plan(end)
            self.store.forget(end)
            world.planned = end  # Spark's offset log
            return
        batch = {n: self.store.entry(n).rows for n in range(world.position, world.planned)}
        assert world.begun in (None, batch), "a batch has other messages when it runs again"
        world.begun = batch  # one of its sinks has it
        if world.random.random() < 0.3:
            return
        assert not world.shown.keys() & batch.keys()
        world.shown |= batch
        world.position, world.planned, world.begun = world.planned, None, None
        self.store.record_position(READER, world.position)


class World:
    """Both applications, and what is durable of the reader."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.uri = str(directory / "channel")
        self.policy = OutsidePolicy(self.random.choice([0, 60, 200]), self.random.choice([None, 20, 100]))
        self.now_ms = 0
        self.appended: dict[int, int] = {}
        self.appended_ms: dict[int, int] = {}
        self.shown: dict[int, int] = {}
        self.position = 0
        self.planned: int | None = None
        self.begun: dict[int, int] | None = None

    def run(self, steps: int) -> None:
        producer, reader = Producer(self), Reader(self)
        with armed(self.die):
            for _ in range(steps):
                self.now_ms += self.random.randrange(10)
                try:
                    if self.random.random() < 0.6:
                        producer.step()
                    elif self.random.random() < 0.9:
                        reader.step()
                    else:
                        reader = Reader(self)
                except DeadError:
                    producer = Producer(self)

    def die(self, point: CrashPoint) -> None:
        if self.random.random() < 0.1:
            raise DeadError(point)

    def finish(self) -> int:
        """Read the rest; how many messages were dropped."""
        store = ChannelStore(self.uri, fragment="shop")
        if self.appended and max(self.appended) >= store.length():
            del self.appended[max(self.appended)]  # it has died before that was in the log
        dropped = OutsideReader(store).count().messages
        reader = Reader(self)
        while self.position < store.length() or self.planned is not None:
            reader.step()
        return dropped


@pytest.mark.parametrize("seed", range(25))
def test_every_message_is_shown_once_or_counted_as_dropped_once(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    world.run(150)
    dropped = world.finish()
    assert sorted(world.shown) == sorted(world.appended), f"seed {seed}: an entry is missing"
    lacking = {n: world.appended[n] - rows for n, rows in world.shown.items()}
    assert all(lack in (0, world.appended[n]) for n, lack in lacking.items()), f"seed {seed}"
    assert sum(lacking.values()) == dropped, f"seed {seed}: messages are lost without a word"
    if world.policy.drop_after_ms is None:
        assert dropped == 0
