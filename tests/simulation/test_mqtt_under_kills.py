"""A broker, its connection, and a process that stores and acknowledges; each of them fails at any time.

The broker is a model of MQTT's QoS 1 that uses an identifier again as soon as it may. The store is on real
files, and the process is killed between any two of its changes to them. Nothing that the broker has is lost,
and only those messages come twice whose acknowledgement the broker did not get.
"""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from pathlib import Path
from random import Random

import pyarrow as pa
from shell_disk import Killed, watching

from drivetrain.connectors.mqtt.deliveries import Deliveries
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.simulator.simulate import chosen_seeds, run_seeds
from drivetrain.spark.channel.ingest import Ingest, IngestLimits

SCHEMA = pa.schema([("n", pa.int64())])
MOST_TURNS = 40_000


class Broker:
    """The session of one client, and the two directions of its connection."""

    def __init__(self, random: Random, count: int) -> None:
        self.random = random
        self.queue = deque(range(count))
        self.most = random.choice((1, 3, 8))
        self.in_flight: dict[int, int] = {}
        self.has_session = False
        self.is_connected = False
        self.to_client: deque[tuple[int, int, bool]] = deque()
        self.to_broker: deque[int] = deque()

    def connect(self) -> bool:
        """A connection begins; returns whether the session was there."""
        was_there, self.has_session, self.is_connected = self.has_session, True, True
        self.to_client.extend((id, n, True) for id, n in self.in_flight.items())
        return was_there

    def disconnect(self) -> list[int]:
        """The connection ends; the messages whose acknowledgements are lost with it."""
        lost = [self.in_flight[id] for id in self.to_broker if id in self.in_flight]
        self.is_connected = False
        self.to_client.clear()
        self.to_broker.clear()
        return lost

    def lose_session(self) -> list[int]:
        """The messages that are lost with the session."""
        lost = list(self.in_flight.values())
        self.has_session = False
        self.in_flight.clear()
        return lost

    def send(self) -> None:
        if self.is_connected and self.queue and len(self.in_flight) < self.most:
            id = next(id for id in range(1, self.most + 1) if id not in self.in_flight)
            self.in_flight[id] = self.queue.popleft()
            self.to_client.append((id, self.in_flight[id], False))


class World:
    """A broker, and one process after the other."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.count = self.random.randrange(1, 80)
        self.broker = Broker(self.random, self.count)
        self.limits = IngestLimits(
            rows=self.random.choice((1, 3, 10)), wait_ms=self.random.choice((0, 20)), unread_bytes=1 << 20
        )
        self.risk = self.random.choice((0.0, 0.02, 0.1))
        self.trouble = self.random.choice((0.0, 0.05, 0.2))
        self.is_up = False
        self.now_s = 0.0
        self.kills = 0
        self.excused: Counter[int] = Counter()
        """How often a message may come again."""
        self.gone: set[int] = set()
        """What was lost with a session before it was acknowledged."""

    def before_change(self, path: str) -> None:
        if self.is_up and path.startswith(str(self.directory)) and self.random.random() < self.risk:
            raise Killed

    def stored(self) -> list[int]:
        store = ChannelStore(str(self.directory))
        return [
            row["n"]
            for entry in store.entries(0)
            for segment in entry.segments
            for batch in read_segment(store.files, segment)
            for row in batch.to_pylist()
        ]

    def run(self) -> None:
        for _ in range(MOST_TURNS):
            try:
                if self.live():
                    return
            except Killed:
                self.is_up = False
                self.kills += 1
                known = set(self.stored())
                self.broker.disconnect()
                self.excused.update(n for n in self.broker.in_flight.values() if n in known)
        raise AssertionError("it does not come to its end")

    def live(self) -> bool:
        """One life of the process; true once the broker has no message any more."""
        ingest = Ingest(ChannelStore(str(self.directory), fragment="ingest"), SCHEMA, limits=self.limits)
        ingest.resume()
        deliveries = Deliveries(ingest.stored)
        while self.broker.queue or self.broker.in_flight:
            self.turn(ingest, deliveries)
            deliveries.check()
        self.broker.disconnect()
        return True

    def turn(self, ingest: Ingest, deliveries: Deliveries) -> None:
        broker = self.broker
        match self.random.choice(("send", "send", "deliver", "deliver", "step", "step", "answer", "trouble")):
            case "send":
                broker.send()
            case "deliver" if broker.to_client:
                id, n, again = broker.to_client.popleft()
                if deliveries.received(id, again=again):
                    ingest.take((n,))
            case "step":
                self.now_s += 0.01
                self.is_up = True
                ingest.step(self.now_s)
                self.is_up = False
                deliveries.stored(ingest.stored)
                if broker.is_connected:
                    for id in deliveries.due:
                        broker.to_broker.append(id)
                        deliveries.acknowledged(id)
            case "answer" if broker.to_broker:
                n = broker.in_flight.pop(broker.to_broker.popleft())
                assert n in self.stored(), "it was acknowledged before it was stored"
            case "trouble":
                self.come_to_trouble(deliveries)

    def come_to_trouble(self, deliveries: Deliveries) -> None:
        broker = self.broker
        if not broker.is_connected:
            deliveries.connected(has_session=broker.connect())
        elif self.random.random() < self.trouble:
            self.excused.update(broker.disconnect())
            if self.random.random() < 0.1:
                self.gone.update(broker.lose_session())

    def check_end(self) -> None:
        found = Counter(self.stored())
        for n in range(self.count):
            assert found[n] or n in self.gone, f"message {n} is lost"
            assert found[n] <= 1 + self.excused[n], f"message {n} came {found[n]} times"


def run_world(seed: int) -> World:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(seed, Path(place))
        with watching(world.before_change):
            world.run()
        world.check_end()
        return world


def test_no_message_is_lost_and_only_what_the_broker_does_not_know_comes_twice() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run_world(seed)), chosen_seeds(12, at_most=1000))
    if len(worlds) > 1:
        assert sum(world.kills > 2 for world in worlds) > len(worlds) / 10, "hardly any was killed"
        assert sum(bool(world.excused) for world in worlds) > len(worlds) / 10
