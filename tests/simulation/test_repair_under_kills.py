"""Channels are damaged at random, and repairs killed between any two writes: each message is there once."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from drivetrain.api import Application, agg, sinks, sources, windows
from drivetrain.core.channel.channel_log import Entry, Segment
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.loss_record import loss_record
from drivetrain.runtime.channel.segments import (
    REMADE,
    SEGMENTS,
    MessageLossError,
    read_segment,
    write_segment,
)
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.simulator import Simulation, simulate
from drivetrain.spark.repair import repair as repair_module
from drivetrain.spark.repair.repair import Repair
from drivetrain.spark.repair.rerun_batch import LostForGoodError
from drivetrain.spark.repair.steps import Steps

SCHEMA = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])


class Killed(BaseException):
    """The process ends here: nobody catches it."""


def rows_of(batch: int) -> list[int]:
    """The messages of a batch: some have none."""
    return [] if batch % 4 == 3 else [10 * batch + i for i in range(1 + batch % 3)]


def segments_of(files: ChannelFiles, batch: int, folder: str) -> list[Segment]:
    """A segment for each message of a batch."""
    made = []
    for value in rows_of(batch):
        columns = [pa.array([value]), pa.array([value * 1000], SCHEMA.field(1).type)]
        made.append(write_segment(files, f"b{batch}", [pa.record_batch(columns, schema=SCHEMA)], folder))
    return made


class FakeBatchRerun:
    """Gives what the producer gave; a kill may come in the middle."""

    kill: Callable[[], None]

    def __init__(
        self, _context: object, _engine: object, _fragment: object, batch_id: int, _aside: Path
    ) -> None:
        self._batch_id = batch_id

    def inputs(self) -> dict[str, tuple[int, int]]:
        """A source cannot be damaged here."""
        return {}

    def segments(self, _channel: object, store: ChannelStore, _clock: object) -> Steps[list[Segment]]:
        """As the producer made them."""
        type(self).kill()
        yield
        return segments_of(store.files, self._batch_id, REMADE)


class World:
    """One channel between two fragments, its log and its producer's checkpoint."""

    def __init__(self, simulation: Simulation, directory: Path) -> None:
        self.random = simulation.random
        self.directory = directory
        app = Application("world")
        cut = app.read(sources.generate(rows=1)).filter("id >= 0", name="all").cut()
        counted = cut.group_by("id").window(windows.tumbling("1 s")).aggregate(step="count", n=agg.count())
        counted.sink(sinks.none())
        self.plan = plan(app.graph())
        (self.channel,) = self.plan.channels
        self.store = self.opened()
        self.batches = self.random.randrange(1, 12)
        batch = -1
        while batch < self.batches - 1 or self.random.random() < 0.3:
            if self.random.random() < 0.7 and batch < self.batches - 1:
                batch += 1
                segments = segments_of(self.store.files, batch, SEGMENTS)
                self.store.append(batch, segments, clock_ms=100 * self.store.length())
            else:
                self.store.append_clock(100 * self.store.length())
        checkpoint = self.fragment(self.channel.producer_fragment) / "checkpoint"
        for log in ("commits", "offsets"):
            (checkpoint / log).mkdir(parents=True)
            for number in range(self.batches):
                (checkpoint / log / str(number)).touch()
        self.before = self.store.entries(0)
        self.position = self.random.randrange(len(self.before) + 1)

    def opened(self) -> ChannelStore:
        """The channel as its producer, or anybody else, finds it."""
        uri = str(self.directory / "channel")
        return ChannelStore(uri, fragment=self.channel.producer_fragment, durable=False)

    def fragment(self, id: str) -> Path:
        """Its directory."""
        return self.directory / id

    def damage(self) -> set[int]:
        """Damages some of what the subscriber has not read; says which entries."""
        damaged = set()
        for entry in self.before[self.position :]:
            if self.random.random() > 0.4:
                continue
            log = self.directory / "channel" / "log" / f"{entry.number:020d}.json"
            paths = [log, *(self.directory / "channel" / segment.path for segment in entry.segments)]
            for path in self.random.sample(paths, self.random.randrange(1, len(paths) + 1)):
                if self.random.random() < 0.5:
                    path.unlink()
                else:
                    path.write_bytes(path.read_bytes()[:-5])
            damaged.add(entry.number)
        return damaged

    def repair(self, skip: bool) -> int:
        """One try of the subscriber's process."""
        rundir = SimpleNamespace(channel=lambda _: str(self.directory / "channel"), fragment=self.fragment)
        context: Any = SimpleNamespace(plan=self.plan, rundir=rundir)
        engine: Any = None  # the batch that runs again needs none here
        steps = Repair(
            context,
            engine,
            self.directory / "again",
            compiling=contextlib.nullcontext(),
            tell=lambda _: None,
            skip=skip,
        ).mend(self.channel.consumer_fragment, {self.channel.id: self.position})
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return int(done.value)


@contextlib.contextmanager
def killing(simulation: Simulation, monkeypatch: pytest.MonkeyPatch, chance: float) -> Iterator[None]:
    """Kill before or behind writes, until `chance` runs out."""
    replace = ChannelFiles.replace

    def kill() -> None:
        if simulation.random.random() < chance:
            raise Killed

    def replaced(self: ChannelFiles, path: str, content: Any, *, kept: bool = False) -> None:
        kill()
        replace(self, path, content, kept=kept)
        kill()

    with monkeypatch.context() as patched:
        patched.setattr(ChannelFiles, "replace", replaced)
        patched.setattr(FakeBatchRerun, "kill", staticmethod(kill), raising=False)
        patched.setattr(repair_module, "BatchRerun", FakeBatchRerun)
        yield


def readable(store: ChannelStore, entry: Entry) -> list[int]:
    """The messages of an entry, verified."""
    batches = [batch for segment in entry.segments for batch in read_segment(store.files, segment)]
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def mended(simulation: Simulation, world: World, *, skip: bool) -> int:
    """Repair until a repair is not killed; says how often it was."""
    kills = 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        while True:
            with killing(simulation, monkeypatch, 0.15 if kills < 6 else 0.0):
                try:
                    world.repair(skip)
                except Killed:
                    kills += 1
                    continue
            return kills


@simulate(seeds=30, at_most=3000)
async def test_what_was_lost_is_there_once_again_however_often_the_repair_is_killed(
    simulation: Simulation,
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(simulation, Path(directory))
        damaged = world.damage()
        mended(simulation, world, skip=False)
        after = world.opened()
        entries = [after.read_entry(number) for number in after.numbers()]
        unread = entries[world.position :]
        wanted = [v for entry in world.before[world.position :] for v in readable_before(entry)]
        assert [entry.number for entry in entries] == list(range(len(entries)))
        assert [value for entry in unread for value in readable(after, entry)] == wanted
        assert all(a.clock_ms <= b.clock_ms for a, b in itertools.pairwise(entries))
        # A move of the clock that is lost at the end of the log leaves no trace, and nobody needs it.
        assert all(new.clock_ms <= old.clock_ms for new, old in zip(entries, world.before, strict=False))
        damaged = {number for number in damaged if number < len(entries)}
        for entry in unread:
            if entry.number not in damaged:
                assert entry == world.before[entry.number], "what is readable is never changed"
        record = loss_record(after)
        assert (record.replays, record.open) == (len(damaged), ())
        assert record.losses >= len(damaged)
        assert after.last_batch() == world.batches - 1
        named = {segment.path for entry in entries for segment in entry.segments}
        mended(simulation, world, skip=False)
        assert {f"{REMADE}/{name}" for name in after.files.names(REMADE)} <= named, "no segment is left over"


@simulate(seeds=15, at_most=1000)
async def test_what_is_left_out_leaves_a_log_that_can_be_read_on(simulation: Simulation) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(simulation, Path(directory))
        damaged = world.damage()
        mended(simulation, world, skip=True)
        after = world.opened()
        found = [v for e in after.entries(world.position) for v in readable(after, e)]
        wanted = [v for entry in world.before[world.position :] for v in readable_before(entry)]
        assert len(found) == len(set(found))
        assert set(found) <= set(wanted)
        intact = [
            v for e in world.before[world.position :] if e.number not in damaged for v in readable_before(e)
        ]
        assert set(intact) <= set(found)
        assert loss_record(after).skipped_entries == len([n for n in damaged if n < after.length()])


def test_an_input_that_somebody_else_repaired_meanwhile_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(3)
    world = World(simulation, tmp_path)
    world.position = 0
    entry = next(entry for entry in world.before if entry.segments)
    (tmp_path / "channel" / "log" / f"{entry.number:020d}.json").unlink()
    tries: list[int] = []
    times = 1

    def fail() -> None:
        tries.append(1)
        if len(tries) <= times:
            raise MessageLossError("its input is damaged", where="another channel")

    monkeypatch.setattr(FakeBatchRerun, "kill", staticmethod(fail), raising=False)
    monkeypatch.setattr(repair_module, "BatchRerun", FakeBatchRerun)
    world.repair(skip=False)
    assert len(tries) == 2
    assert readable(world.opened(), world.opened().read_entry(entry.number)) == readable_before(entry)

    (tmp_path / "channel" / "log" / f"{entry.number:020d}.json").unlink()
    tries.clear()
    times = 9  # nobody repairs it
    with pytest.raises(LostForGoodError):
        world.repair(skip=False)
    assert len(tries) == 2


def readable_before(entry: Entry) -> list[int]:
    """The messages that an entry had when it was written."""
    return rows_of(entry.batch_id) if entry.segments else []
