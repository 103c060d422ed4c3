"""An application run embedded, again and again, whose process is killed between any two of its effects.

What survives is on disk: the state directory, and the target of the sinks. What runs is real (`prepare`, the
embedded loop, drivers, recovery and repair, participation, coordinator, clock, flow control, channels and
snapshots), on the engine of `shell_engine`. One thread does everything: `Process.step` draws whose turn it is,
and at a crash point others may take their turn in the middle of a batch.

A kill is an exception that nothing catches for good: from then on the process cannot change a file any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shell_engine import DISORDER_MS, StandInEngine, StandInQuery, StandInSource

from drivetrain.actor import ActorSystem
from drivetrain.api import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.core.job.run_progress import QuietListener, RunOutcome
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.files import ChannelFiles
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.batch.offset_log import batch_numbers
from drivetrain.spark.checkpoints.participation import Participation, RestoreNeededError
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run import execution as execution_module
from drivetrain.spark.run.embedded import assembled
from drivetrain.spark.run.execution import prepare
from drivetrain.spark.run.host import Host
from drivetrain.testing.loop import SimulatedLoop


class Killed(BaseException):
    """The process ends here."""


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate"}
_watch: Callable[[str], None] | None = None
"""Called with the path before a file is changed; None: nobody watches."""


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watch is None:
        return
    if event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES):
        _watch(str(args[0]))


class _Auditing:
    """Python tells a hook of every change to files, and there is no way to take a hook back."""

    is_on = False


@contextlib.contextmanager
def watching(watch: Callable[[str], None]) -> Iterator[None]:
    """Have `watch` called before every change to a file, also by Arrow; it may raise."""
    global _watch
    if not _Auditing.is_on:
        sys.addaudithook(_audit)
        _Auditing.is_on = True
    with pytest.MonkeyPatch.context() as patched:
        for name in ("delete", "_put"):
            real = getattr(ChannelFiles, name)

            def changed(self: Any, path: str, *given: Any, real: Any = real, **more: Any) -> Any:
                watch(self._full(path))
                return real(self, path, *given, **more)

            patched.setattr(ChannelFiles, name, changed)
        _watch = watch
        try:
            yield
        finally:
            _watch = None


class Target:
    """Where the sinks publish, together: one file, replaced in one step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def shown(self) -> dict[str, tuple[int, list[int]]]:
        """By sink the last batch that is shown, and all rows."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((self.directory / "shown.json").read_text())
            return {id: (last, rows) for id, (last, rows) in told.items()}
        return {}

    def show(self, shown: Mapping[str, tuple[int, list[int]]]) -> None:
        aside = self.directory / "shown.tmp"
        aside.write_text(json.dumps(shown))
        os.replace(aside, self.directory / "shown.json")


class StandInSink:
    """A transactional sink, whose frames are lists."""

    guarantee = "exactly once"
    group = "the target"

    def __init__(self, id: str, target: Target) -> None:
        self.id = id
        self.target = target
        self.waiting = target.directory / id
        self.waiting.mkdir(exist_ok=True)

    def validate(self) -> None:
        """It can always be written."""

    check_fresh = fresh = validate

    def write(self, df: list[int], batch_id: int) -> int:
        shown = self.target.shown()
        last, rows = shown.get(self.id, (-1, []))
        if batch_id <= last:
            return 0
        self.target.show({**shown, self.id: (batch_id, rows + df)})
        return len(df)

    def prepare(self, df: list[int], batch_id: int) -> int:
        if batch_id <= self.target.shown().get(self.id, (-1, []))[0]:
            return 0
        aside = self.waiting / "aside.tmp"
        aside.write_text(json.dumps(df))
        os.replace(aside, self.waiting / str(batch_id))
        return len(df)

    def prepared(self) -> list[int]:
        return sorted(int(path.name) for path in self.waiting.iterdir() if path.name.isdigit())

    def abort(self, batch_id: int) -> None:
        (self.waiting / str(batch_id)).unlink()

    def publish(self, _txid: int, last: Mapping[str, int], all: Mapping[str, StandInSink]) -> dict[str, int]:
        shown, told = self.target.shown(), {}
        for id, sink in all.items():
            before, rows = shown.get(id, (-1, []))
            new = [b for b in sink.prepared() if before < b <= last.get(id, -1)]
            added = [row for b in new for row in json.loads((sink.waiting / str(b)).read_text())]
            shown[id], told[id] = (max(before, last.get(id, -1)), rows + added), len(added)
        self.target.show(shown)
        for id, sink in all.items():
            for batch in [b for b in sink.prepared() if b <= shown[id][0]]:
                sink.abort(batch)
        return told


class Actors:
    """The actor system of one process, on a loop of its own that stands still between its turns."""

    def __init__(self, random: Random, config: Config) -> None:
        self.loop = SimulatedLoop(random, until_s=1e9)
        self.is_closed = False

        async def make() -> ActorSystem:
            return ActorSystem("simulated-run", config=config)

        self.system: ActorSystem = self.loop.run_until_complete(make())

    def spawn(self, factory: Any, name: str) -> Any:
        async def spawn() -> Any:
            return self.system.spawn(factory, name)

        return self.loop.run_until_complete(spawn())

    def tell(self, actor: Any, message: Any) -> None:
        self.system.tell_threadsafe(actor, message)

    def begin(self, actor: Any, message: Any, reply: Any) -> Any:
        return self.loop.create_task(actor.ask(message, reply, timeout_ms=10**9))

    def pass_time(self, duration_s: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(duration_s))


class SteppedPart:
    """Takes part in checkpoints when it is its turn."""

    def __init__(self, parts: list[Participation], part: Participation) -> None:
        self.parts = parts
        self.part = part
        self.ran = part.ran

    def start(self) -> None:
        self.part.start()
        self.parts.append(self.part)

    def close(self) -> None:
        self.part.close()
        if self.part in self.parts:
            self.parts.remove(self.part)


class SteppedRecovery:
    """A recovery that goes on when it is its turn."""

    def __init__(self, steps: Steps[FragmentQuery]) -> None:
        self.steps = steps
        self.made: FragmentQuery | None = None
        self.error: BaseException | None = None

    def step(self) -> None:
        try:
            next(self.steps)
        except StopIteration as done:
            self.made = done.value
        except Exception as error:  # noqa: BLE001 - raised by `successor`
            self.error = error

    def is_alive(self) -> bool:
        return self.made is None and self.error is None

    def successor(self) -> FragmentQuery:
        if self.error is not None:
            raise self.error
        assert self.made is not None
        return self.made

    def give_up(self) -> None:
        self.steps.close()


class Listener(QuietListener):
    """Asks to stop when the world wants it."""

    def __init__(self) -> None:
        self.stops = False

    def stop_requested(self) -> bool:
        return self.stops


class World:
    """One application with its disk, from the first start of its process to its end.

    With `deaths` the process dies when it comes to each of these points, one after the other, and nothing else
    befalls it.
    """

    def __init__(self, seed: int, directory: Path, deaths: Sequence[CrashPoint] | None = None) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.target = Target(directory / "target")
        self.target.directory.mkdir()
        self.now_s = 1_000.0
        self.is_dead = False
        self.is_up = False
        self.kills_left = self.random.randrange(2, 25)
        self.harms_left = self.random.randrange(0, 5)
        self.stops_left = self.random.randrange(0, 3)
        self.risk = self.random.choice((0.0005, 0.002, 0.01))
        self.deaths = None if deaths is None else deque(deaths)
        if deaths is not None:
            self.kills_left = self.harms_left = self.stops_left = 0
        self.kills = self.harms = self.restores = self.stops = 0
        self.counts: dict[str, int] = {}
        self.application = self.drawn()
        mode = "on" if deaths else self.random.choice(("on", "on", "off"))
        self.config = Config.load(
            None,
            {},
            {
                "state.dir": str(directory / "state"),
                "checkpoint.mode": mode,
                "checkpoint.interval": f"{self.random.choice((200, 1000, 3000))} ms",
                "checkpoint.timeout": "20 s",
                "channel.window-batches": str(self.random.choice((2, 4, 50))),
            },
        )
        self.are_made = mode == "on"
        self.plan: Plan = make_plan(self.application.graph())
        self.clock_ms = -(10**18)

    # -- the application -----------------------------------------------------------------------------

    def drawn(self) -> Application:
        """A chain, a fork, or a join, of two to four fragments."""
        app = Application("shells")

        def read(name: str) -> Any:
            self.counts[name] = self.random.randrange(0, 60)
            made = app.read(sources.generate(rows=1), name=name).select(ts="timestamp_millis(id)", v="id")
            return made.event_time("ts", max_disorder=f"{DISORDER_MS} ms", name=f"{name}-timed").cut()

        shape = self.random.choice(("chain", "fork", "join"))
        stream = read("first")
        if shape == "chain":
            stream.filter("v >= 0", name="middle").cut().filter("v >= 0", name="last").sink(
                sinks.none(), name="out"
            )
        elif shape == "fork":
            stream.filter("v >= 0", name="left").cut().filter("v >= 0", name="behind").sink(
                sinks.none(), name="out"
            )
            stream.filter("v >= 0", name="right").sink(sinks.none(), name="other")
        else:
            both = stream.union(read("second"), name="both").filter("v >= 0", name="all")
            both.sink(sinks.none(), name="out")
        return app

    def source(self, id: str) -> StandInSource:
        first = 1_000 * (1 + list(self.counts).index(id))
        return StandInSource(first, self.counts[id], lambda: self.random.randrange(0, 5))

    def wanted(self) -> dict[str, Counter[int]]:
        """What every sink must have shown in the end."""
        found = Counter(
            value
            for index, count in enumerate(self.counts.values())
            for value in range(1_000 * (1 + index), 1_000 * (1 + index) + count)
        )
        return {n.id: found for n in self.plan.graph.nodes.values() if n.operation.target is not None}

    # -- what happens to it --------------------------------------------------------------------------

    def before_change(self, path: str) -> None:
        """A file is to be changed: the process may end here; one that has ended changes nothing."""
        if not self.is_up or not path.startswith(str(self.directory)):
            return
        if self.is_dead:
            raise Killed
        self.may_die(self.risk)

    def may_die(self, chance: float) -> None:
        if self.kills_left > 0 and self.random.random() < chance:
            self.kills_left -= 1
            self.die()

    def die(self) -> None:
        self.kills += 1
        self.is_dead = True
        raise Killed

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s

    def harm(self) -> None:
        """Damage something: a segment or an entry that was not read yet, or a fragment's state."""
        state = next((self.directory / "state").glob("shells-*"), None)
        if state is None or self.harms_left <= 0:
            return
        self.harms_left -= 1
        was_up, self.is_up = self.is_up, False  # it is not the process that changes these files
        if self.are_made and not was_up and self.random.random() < 0.6:
            self.harm_state(state)
        else:
            self.harm_channel(state)
        self.is_up = was_up

    def harm_state(self, state: Path) -> None:
        """Lose a fragment's checkpoint, or the end of it; nothing runs, which would not look at it."""
        fragment = self.random.choice([f.id for f in self.plan.fragments])
        checkpoint = state / "fragments" / fragment / "checkpoint"
        known = sorted(batch_numbers(checkpoint / "commits"))
        if not known:
            return
        self.harms += 1
        if self.random.random() < 0.5:
            shutil.rmtree(checkpoint)
        else:
            (checkpoint / "offsets" / str(known[-1])).unlink()

    def harm_channel(self, state: Path) -> None:
        channel = self.random.choice(self.plan.channels)
        store = ChannelStore(str(state / "channels" / channel.id))
        numbers = store.numbers()
        position = store.positions().get(channel.consumer_fragment, 0)
        unread = [n for n in numbers if n >= position]
        if not unread:
            return
        try:
            entry = store.read_entry(self.random.choice(unread))
        except DrivetrainError:
            return
        paths = [segment.path for segment in entry.segments] or [f"log/{entry.number:020d}.json"]
        file = state / "channels" / channel.id / self.random.choice(paths)
        if file.exists():
            self.harms += 1
            if self.random.random() < 0.5:
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:-3])

    # -- what must hold ------------------------------------------------------------------------------

    def check_shown(self) -> None:
        """Nothing is shown twice, nothing that is unknown; with checkpoints all sinks show the same."""
        shown, wanted = self.target.shown(), self.wanted()
        for id, (_, rows) in shown.items():
            assert max(Counter(rows).values(), default=1) == 1, f"{id} shows a message twice: {rows}"
            assert set(rows) <= set(wanted[id]), f"{id} shows what nobody sent"
        if self.are_made:
            sets = {id: frozenset(shown.get(id, (0, []))[1]) for id in wanted}
            assert len(set(sets.values())) == 1, f"the sinks show different cuts: {sets}"

    def check_clock(self, clock_ms: int | None) -> None:
        if clock_ms is not None:
            assert clock_ms >= self.clock_ms, f"the clock moved back from {self.clock_ms} to {clock_ms}"
            self.clock_ms = clock_ms

    def check_end(self) -> None:
        self.check_shown()
        shown = {id: Counter(rows) for id, (_, rows) in self.target.shown().items()}
        assert {id: shown.get(id, Counter()) for id in self.wanted()} == self.wanted()


class Process:
    """One life of the process: from its start until it has finished, was stopped, or is killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rundir = RunDirectory(
            str(world.directory / "state"), "shells", world.application.naming_settings
        )
        self.parts: list[Participation] = []
        self.recoveries: list[SteppedRecovery] = []
        self.listener = Listener()
        self.actors: Actors | None = None
        self.is_nested = False

    def run(self, steps: int) -> RunOutcome | None:
        """Run until the end, or raise Killed; None when so many steps were not enough."""
        self.rundir.acquire()
        if self.rundir.finished is not None:
            return RunOutcome.FINISHED
        restores = 0
        while True:
            try:
                return self.run_once(steps)
            except RestoreNeededError:
                restores += 1
                assert restores <= MOST_RESTORES, "it goes back again and again"
                self.stop_all()

    def run_once(self, steps: int) -> RunOutcome | None:
        world = self.world
        self.parts, self.recoveries = [], []
        self.engine = StandInEngine(world.random.randrange, world.source, self.is_blocked)
        host = Host(lambda *_: self.engine, lambda part: SteppedPart(self.parts, part))
        flow = FlowBook(world.config, monotonic_s=lambda: world.now_s, wall_s=lambda: world.now_s)
        self.execution = prepare(world.plan, self.rundir, world.config, flow=flow, host=host)
        world.restores += any("went back" in notice for notice in self.execution.notices)
        self.actors = Actors(Random(world.random.random()), world.config)
        self.loop = assembled(self.execution, self.listener, self.actors, self.begin_recovery)
        world.check_clock(self.loop.clock.clock_ms)
        self.loop.start()
        for _ in range(steps):
            outcome = self.step()
            if world.is_dead:
                raise Killed
            if outcome is not None:
                self.stop_all()
                if outcome is RunOutcome.FINISHED:
                    self.rundir.finish({})
                return outcome
        return None

    def begin_recovery(self, _fragment: str, steps: Steps[FragmentQuery]) -> SteppedRecovery:
        self.recoveries.append(SteppedRecovery(steps))
        return self.recoveries[-1]

    def is_blocked(self, query: StandInQuery) -> bool:
        """Whether the batch of a query would wait, for its subscribers or for a snapshot that is taken."""
        for driver in self.loop.drivers.values():
            own = driver.query
            if own.checkpoint == query.checkpoint:
                return own.turn.locked() or self.execution.flow.full(own.branches.stores) is not None
        return False

    def step(self) -> RunOutcome | None:
        """Whose turn it is does a little."""
        world = self.world
        if world.random.random() < 0.0005:
            world.harm()
        if world.stops_left > 0 and world.random.random() < 0.001:
            world.stops_left -= 1
            world.stops += 1
            self.listener.stops = True
        world.now_s += world.random.choice((0.001, 0.01, 0.05))
        queries = [query.step for query in self.engine.queries if query.is_active]
        turns: list[Callable[[], object]] = [
            *queries,
            *queries,
            *(r.step for r in self.recoveries if r.is_alive()),
        ]
        turns += [lambda part=part: part.step(int(world.now_s * 1000)) for part in self.parts]
        turns += [self.pass_time, self.look]
        outcome = world.random.choice(turns)()
        world.check_clock(self.loop.clock.clock_ms)
        return outcome if isinstance(outcome, RunOutcome) else None

    def look(self) -> RunOutcome | None:
        outcome = self.loop.step(int(self.world.now_s * 1000))
        self.world.check_shown()
        return outcome

    def pass_time(self) -> None:
        assert self.actors is not None
        self.actors.pass_time(self.world.random.choice((0.01, 0.05, 0.3)))

    def reached(self, point: CrashPoint) -> None:
        """At a point between two effects: the process may end here, or others may have their turn."""
        world = self.world
        if world.is_dead:
            raise Killed
        if world.deaths and world.deaths[0] is point:
            world.deaths.popleft()
            world.die()
        world.may_die(world.risk * 10)
        if self.is_nested or world.random.random() > 0.1 or not hasattr(self, "loop"):
            return
        self.is_nested = True
        try:
            others = [query.step for query in self.engine.queries if query.is_active]
            others += [lambda part=part: part.step(int(world.now_s * 1000)) for part in self.parts]
            if others:
                world.random.choice(others)()
        finally:
            self.is_nested = False

    # -- the end -------------------------------------------------------------------------------------

    def stop_all(self) -> None:
        for driver in self.loop.drivers.values():
            driver.stop()
        assert self.actors is not None
        self.actors.loop.close()

    def release(self) -> None:
        """What the kernel does for a process that has ended."""
        for recovery in self.recoveries:
            with contextlib.suppress(Killed):
                recovery.steps.close()
        if self.actors is not None:
            self.actors.loop.close()
        self.rundir.release()


STEPS = 60_000
MOST_RESTORES = 5
"""Damage is done between lives, and at most once while one goes on."""


def run_world(seed: int, deaths: Sequence[CrashPoint] | None = None) -> World:
    """Run an application to its end, however often its process is killed on the way; raises what is wrong."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(seed, Path(place), deaths)
        with pytest.MonkeyPatch.context() as patched, watching(world.before_change):
            patched.setattr(time, "monotonic", lambda: world.now_s)
            patched.setattr(time, "monotonic_ns", lambda: int(world.now_s * 1e9))
            patched.setattr(time, "sleep", world.sleep)
            patched.setattr(
                execution_module, "open_sink", lambda _, context: StandInSink(context.sink_id, world.target)
            )
            while run_life(world) is not RunOutcome.FINISHED:
                world.check_shown()
        world.check_end()
        return world


def run_life(world: World) -> RunOutcome | None:
    process = Process(world)
    world.is_up, world.is_dead = True, False
    try:
        with armed(process.reached):
            outcome = process.run(STEPS)
        assert outcome is not None, "the run does not end"
    except Killed:
        outcome = None
    finally:
        process.release()
        world.is_up = False
    if world.random.random() < 0.5:
        world.harm()
    return outcome
