"""The store of a source that delivers once, on real files: killed between any two of its changes to them.

The source repeats its rows, like an iterable, or goes on where the connection broke, like a socket: then
what the process had received and not stored is lost with it, and nothing else.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
from shell_disk import Killed, watching

from drivetrain.core.channel.channel_log import SubscriberId
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.simulator.simulate import chosen_seeds, run_seeds
from drivetrain.spark.channel.ingest import Ingest, IngestLimits

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.int64())])
DISORDER_MS = 400
MOST_TURNS = 20_000
READER = SubscriberId("reader")


class World:
    """A source of some rows, their store, and one subscriber that reads it, now and then."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.repeats = self.random.random() < 0.5
        count = self.random.randrange(0, 120)
        self.rows = [(n, 10_000 + n * 100 + self.random.randrange(DISORDER_MS)) for n in range(count)]
        self.limits = IngestLimits(
            rows=self.random.choice((1, 3, 10)),
            wait_ms=self.random.choice((0, 20, 100)),
            unread_bytes=self.random.choice((1, 3_000, 1 << 20)),
        )
        self.risk = self.random.choice((0.0, 0.02, 0.1))
        self.trouble = self.random.choice((0.0, 0.02, 0.1))
        """How likely it is that the connection breaks, or that the process is asked to end, in a turn."""
        self.now_s = 0.0
        self.sent = 0
        """How many rows a source that does not repeat has given away."""
        self.found: list[int] = []
        """The numbers of all rows that were stored, in their order."""
        self.seen = 0
        """How many entries were looked at."""
        self.newest_ms = 0
        self.clock_ms = NO_CLOCK_MS
        self.lives = self.kills = 0
        self.is_up = False

    def before_change(self, path: str) -> None:
        if self.is_up and path.startswith(str(self.directory)) and self.random.random() < self.risk:
            self.kills += 1
            raise Killed

    def store(self, fragment: str | None = None) -> ChannelStore:
        return ChannelStore(str(self.directory), **({} if fragment is None else {"fragment": fragment}))

    def run(self) -> None:
        for _ in range(MOST_TURNS):
            self.lives += 1
            ingest = Ingest(
                self.store("source"),
                SCHEMA,
                event_time_ms=lambda row: row[1],
                disorder_ms=DISORDER_MS,
                limits=self.limits,
            )
            try:
                self.is_up = True
                if not ingest.resume():
                    return
                self.live(ingest)
            except (Killed, UnavailableError):
                pass
            finally:
                self.is_up = False
            self.look()
        raise AssertionError("it does not come to its end")

    def live(self, ingest: Ingest) -> None:
        """One life of the process, to its end or to that of the rows."""
        assert not self.repeats or ingest.stored == len(self.found), "it knows how many rows are stored"
        source = Source(self, ingest)
        while True:
            match self.random.choice(("pull", "pull", "step", "step", "read", "wait", "trouble")):
                case "pull":
                    source.pull()
                case "step":
                    before = self.unread()
                    if ingest.step(self.now_s) is None:
                        assert source.has_ended or source.has_left, "it may still give rows"
                        return
                    with self.unhurt():
                        assert self.look() == 0 or source.is_stopping or before < self.limits.unread_bytes
                case "read":
                    with self.unhurt():
                        self.read()
                case "wait":
                    self.now_s += self.random.random() * 0.05
                case "trouble" if self.random.random() < self.trouble:
                    source.come_to_trouble()

    @contextlib.contextmanager
    def unhurt(self) -> Iterator[None]:
        """What is done here is not done by the process."""
        self.is_up = False
        yield
        self.is_up = True

    def read(self) -> None:
        """The subscriber reads some entries, and what it has read may be deleted."""
        store = self.store()
        position = store.positions().get(READER, 0)
        store.record_position(READER, min(store.length(), position + self.random.randrange(3)))
        if self.random.random() < 0.1 and store.length() > 1:
            store.trim({READER: min(store.positions()[READER], store.length() - 1)})

    def unread(self) -> int:
        store = self.store()
        position = min(store.positions().values(), default=0)
        return sum(entry.bytes for entry in store.entries(max(store.start(), position)))

    def look(self) -> int:
        """Check the entries that are new; returns how many rows they have."""
        store, count = self.store(), 0
        for entry in store.entries(self.seen):
            for segment in entry.segments:
                for batch in read_segment(store.files, segment):
                    for row in batch.to_pylist():
                        self.found.append(row["n"])
                        self.newest_ms = max(self.newest_ms, row["at"])
                        count += 1
            self.seen = entry.number + 1
            assert entry.clock_ms >= self.clock_ms, "the clock moved back"
            self.clock_ms = entry.clock_ms
            if entry.clock_ms < FINAL_CLOCK_MS:
                assert entry.clock_ms == self.newest_ms - DISORDER_MS
        return count

    def check_end(self) -> None:
        assert self.clock_ms == FINAL_CLOCK_MS
        if self.repeats:
            assert self.found == list(range(len(self.rows)))
        else:
            assert self.found == sorted(set(self.found)), "each once, in the order of arrival"
            assert self.kills or len(self.found) == len(self.rows), "only a kill loses what was received"


class Source:
    """Gives rows to one process, until they end, the connection breaks, or the process is asked to end."""

    def __init__(self, world: World, ingest: Ingest) -> None:
        self.world = world
        self.ingest = ingest
        self.at = ingest.stored if world.repeats else world.sent
        self.has_ended = self.is_stopping = self.has_left = False

    def pull(self) -> None:
        if self.has_ended or self.has_left or (self.ingest.is_full and not self.is_stopping):
            return
        if self.at == len(self.world.rows) and not self.is_stopping:
            self.has_ended = True
            self.ingest.end()
        elif self.at == len(self.world.rows) or (self.is_stopping and self.world.random.random() < 0.3):
            self.has_left = True
            self.ingest.leave()
        else:
            self.ingest.take(self.world.rows[self.at])
            self.at += 1
            self.world.sent = max(self.world.sent, self.at)

    def come_to_trouble(self) -> None:
        if self.has_ended or self.is_stopping:
            return
        if self.world.random.random() < 0.5:
            self.has_ended = True
            self.ingest.fail(UnavailableError("the connection broke"))
            return
        self.is_stopping = True
        self.ingest.stop()
        if self.world.repeats:  # it cannot be interrupted, and what it gives is not waited for
            self.has_left = True
            self.ingest.leave()


def run_world(seed: int) -> World:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(seed, Path(place))
        with watching(world.before_change):
            world.run()
        world.look()
        world.check_end()
        return world


def test_every_row_is_stored_once_in_its_order_however_often_the_process_is_killed() -> None:
    worlds: list[World] = []
    run_seeds(lambda seed: worlds.append(run_world(seed)), chosen_seeds(12, at_most=1000))
    if len(worlds) > 1:
        assert sum(world.kills > 2 for world in worlds) > len(worlds) / 10, "hardly any was killed"
        assert sum(world.lives > world.kills + 1 for world in worlds) > len(worlds) / 10
