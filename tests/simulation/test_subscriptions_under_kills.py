"""Readers subscribe to an application of a cluster, and processes of both die between any two effects.

The files are real ones, and so is the code of the reader, and of the application master but for its shell.
What stands in for executors makes versions, and begins channels a while later. Judged from outside:

1. A reader that lives and asks gets its subscription, and notes it; then no request is left.
2. What a reader notes was in force, its channel had begun, and no message had been read with its key.
3. A reader that has asked only once, and has died, has begun nothing.
4. There is one subscription of a source, and it ends when its reader says so.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.api.graphs.graph import Graph
from drivetrain.cluster.app_master.stream.stored_subscriptions import StoredSubscriptions
from drivetrain.code.fingerprint import fingerprint
from drivetrain.config import Config
from drivetrain.core.change import subscription_request_queue as desk
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.subscriptions import with_subscription, without_subscriptions
from drivetrain.core.plan.planner import plan
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_check import columns_file, require_in_force
from drivetrain.runtime.subscription_note import SubscriptionNote, read_note
from drivetrain.runtime.subscription_requests import REFUSED, WANTED
from drivetrain.spark.run.subscribing import awaited, end_subscriptions, subscribe
from nightly_run import first_seed

SEEDS = 25
COLUMNS = b'{"type":"struct","fields":[]}'
POINTS = (CrashPoint.SUBSCRIPTION_ASKED, CrashPoint.SUBSCRIPTION_NOTED)


class DeadError(Exception):
    """A process has died here."""


class Shop:
    """The application that others read: its application masters, and what executors do for them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rundir = RunDirectory(str(world.state), "shop", {})
        app = Application("shop")
        read = app.read(sources.generate(rows=9), name="read")
        read.filter("id > 1", name="kept").sink(sinks.none(), name="out")
        self.graph: Graph = app.graph()
        self.rundir.acquire()
        self.rundir.begin(plan(self.graph), version_of(plan(self.graph), fingerprint), b"code")
        self.epoch = 0
        self.begun: set[str] = set()
        self.start()

    def start(self) -> None:
        """The next application master; what the former one had in memory is gone."""
        self.epoch += 1
        me = Preparer("app-1", self.epoch, f"am#{self.epoch}")
        self.rundir.preparation.note(me, {})
        self.former, self.stored = getattr(self, "stored", None), StoredSubscriptions(self.rundir, me)
        self.desk = desk.SubscriptionRequestQueue()
        self.asked: desk.WantedSubscription | None = None

    def step(self) -> None:
        match self.world.random.randrange(6):
            case 0 | 1:
                self.look()
            case 2 | 3:
                self.change()
            case 4:
                self.batch()
            case _ if self.world.random.random() < 0.2:
                self.start()

    def look(self) -> None:
        seen = self.stored.look()
        for effect in self.desk.step(seen):
            match effect:
                case desk.RequestChange(wanted):
                    self.asked = wanted
                case desk.DropRequest(wanted):
                    self.stored.forget(wanted)
                case desk.ReportRefusal(wanted):
                    raise AssertionError(f"{wanted} was not asked for")
        self.desk.check(seen.wanted)

    def change(self) -> None:
        """What the application master asked for is refused, or compiled and recorded."""
        wanted, self.asked = self.asked, None
        if wanted is None:
            return
        chance, of = self.world.random.random(), wanted.of
        if chance < 0.2:
            self.desk.step(desk.ChangeRefused(for_good=False))
            return
        if of.stream not in self.graph.nodes and not wanted.ends:
            for effect in self.desk.step(desk.ChangeRefused(for_good=True)):
                assert isinstance(effect, desk.ReportRefusal)
                self.stored.refuse(effect.wanted, UserError("the application has no such stream"))
            return
        if not wanted.ends:
            assert self.world.asked[wanted.name] > 1, f"{of.reader} may have died, and is kept messages for"
            assert of.key not in self.world.read, f"messages were read with the key {of.key}"
            place = self.rundir.channel(of.channel)
            ChannelBeginning(place).prepare()
            columns_file(place).write(COLUMNS)
        now = without_subscriptions(self.graph, [of.id])
        self.graph = now if wanted.ends else with_subscription(now, of)
        how = "unsubscribe" if wanted.ends else "subscribe"
        self.rundir.versions.note(version_of(plan(self.graph), fingerprint), how, b"code")
        if chance < 0.3:
            self.start()  # it dies before it learns that the version is recorded
        else:
            self.desk.step(desk.ChangeApplied())

    def batch(self) -> None:
        """The fragment has taken up the version in force: its channels begin, and get an entry."""
        for channel in plan(self.graph).subscriptions:
            store = ChannelStore(self.rundir.channel(channel.id), fragment="read", durable=False)
            ChannelBeginning(store.uri).begin(store, -1, None, None)
            self.begun.add(channel.id)
            store.append(store.length(), [], store.length())


class Report:
    """The reader: its processes one after the other, in a cluster or not, as they are started."""

    def __init__(self, world: World, name: str, stream: str) -> None:
        self.world, self.stream = world, stream
        self.rundir = RunDirectory(str(world.state), name, {})
        self.rundir.acquire()
        app = Application(name)
        app.read(sources.application("shop", stream), name="hours").sink(sinks.none())
        self.graph = app.graph()
        self.starts_over = True
        self.runs: SubscriptionNote | None = None
        self.refusals = 0
        self.is_gone = False

    def step(self) -> None:
        chance = self.world.random.random()
        if self.is_gone:
            return
        if self.runs is not None and chance < 0.9:
            self.read(self.runs)
        elif chance < 0.94:
            self.prepare()
        elif chance < 0.97:
            self.runs, self.starts_over = None, chance < 0.955
        elif self.runs is not None and chance < 0.98:
            end_subscriptions(self.graph, self.rundir)
            self.runs = None

    def prepare(self) -> None:
        """An executor is asked to prepare the application."""
        if self.starts_over:
            shutil.rmtree(self.rundir.source("hours"), ignore_errors=True)
        try:
            if awaited(self.graph, self.rundir, self.world.config, starts_over=self.starts_over) is None:
                subscribe(self.graph, self.rundir, self.world.config, None)
                note = read_note(self.rundir.source("hours"))
                assert note is not None
                self.started(note)
        except UnavailableError:
            return  # another subscription of the shop was replaced meanwhile
        except UserError as refused:
            self.refusals += 1
            if self.stream in ("read", "kept"):
                raise AssertionError("a stream that there is was refused") from refused

    def started(self, note: SubscriptionNote) -> None:
        require_in_force(note, "hours")
        channel = note.channel.rpartition("/")[2]
        assert channel in self.world.shop.begun, "the channel had not begun"
        assert not self.world.requests(), "its batches begin although there is a request"
        self.runs, self.starts_over = note, False

    def read(self, note: SubscriptionNote) -> None:
        store = ChannelStore(note.channel)
        if store.length():
            self.world.read.add(note.key)


class World:
    """The state directory of both, and what has happened in it."""

    def __init__(self, seed: int, directory: Path, stream: str) -> None:
        self.random = random.Random(seed)
        self.state = directory / "state"
        self.config = Config.load(None, {}, {"state.dir": str(self.state)})
        self.asked: dict[tuple[str, str], int] = {}
        self.read: set[str] = set()
        self.deaths = 0
        self.shop = Shop(self)
        self.report = Report(self, "report", stream)

    def run(self, steps: int) -> None:
        with armed(self.reached):
            for _ in range(steps):
                try:
                    (self.shop if self.random.random() < 0.6 else self.report).step()
                except DeadError:
                    self.report.runs = None  # another process of it starts

    def reached(self, point: CrashPoint) -> None:
        if point is CrashPoint.SUBSCRIPTION_ASKED:
            for wanted in self.shop.stored.look().wanted:
                self.asked[wanted.name] = wanted.beat + 1
        if point in POINTS and self.random.random() < 0.1:
            self.deaths += 1
            raise DeadError(point)

    def requests(self) -> list[Path]:
        return [p for folder in (WANTED, REFUSED) for p in (self.shop.rundir.path / folder).glob("[!.]*")]

    def finish(self) -> None:
        """Nobody dies any more, and the reader is started."""
        self.report.runs = None
        with armed(lambda point: self.reached(point) if point not in POINTS[1:] else None):
            self.random = random.Random(7)
            for _ in range(2000):
                if self.report.runs is not None:
                    return
                try:
                    self.shop.step()
                    self.report.prepare()
                except DeadError:
                    continue
        raise AssertionError("the reader waits for ever")


@pytest.fixture(autouse=True)
def _nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.runtime.outside_producer.is_running_at", lambda home: False)


@pytest.mark.parametrize("seed", range(first_seed(0), first_seed(0) + SEEDS))
def test_a_reader_gets_one_subscription_though_processes_die(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path, "kept")
    world.run(200)
    world.finish()
    note = world.report.runs
    assert note is not None
    in_force = world.shop.rundir.versions.in_force()
    assert in_force is not None
    assert [(one.id, one.key) for one in in_force.subscriptions] == [(note.id, note.key)], f"seed {seed}"
    assert not world.requests()


@pytest.mark.parametrize("seed", range(5))
def test_a_refusal_reaches_the_reader_though_processes_die(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path, "nothing")
    world.run(300)
    assert world.report.refusals, f"seed {seed}"
    assert not plan(world.shop.graph).subscriptions


def test_a_reader_that_has_died_begins_nothing(tmp_path: Path) -> None:
    world = World(0, tmp_path, "kept")
    with armed(world.reached):
        while not world.requests():
            world.report.prepare()
    for _ in range(300):
        world.shop.step()
    assert not plan(world.shop.graph).subscriptions
    world.finish()
