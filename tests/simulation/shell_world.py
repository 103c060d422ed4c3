"""An application run embedded, again and again, whose process is killed between any two of its effects.

What survives is on disk: the state directory, and the target of the sinks. A kill is an exception that
nothing catches for good: from then on the process cannot change a file any more. Between two lives, and in
them, the disk may lose segments and entries that were not read yet, and what Spark keeps of a fragment.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from shell_disk import Killed, StandInSink, Target, watching
from shell_engine import DISORDER_MS, OF_A_VERSION, StandInSource, is_bad
from shell_process import Process

from drivetrain.api import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import DrivetrainError, OperatorError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.offset_log import batch_numbers, committed, entries_after
from drivetrain.spark.prepare import opened_sinks

OF_A_CHANGE = (
    CrashPoint.BEFORE_VERSION,
    CrashPoint.AFTER_VERSION,
    CrashPoint.BEFORE_OUTCOME,
    CrashPoint.AFTER_OUTCOME,
)
STEPS = 60_000
"""Many more than a life of such an application takes."""


class World:
    """One application with its disk, from the first start of its process to its end.

    With `deaths` the process dies when it comes to each of these points, one after the other, and nothing
    else befalls it.
    """

    def __init__(self, seed: int, directory: Path, deaths: Sequence[CrashPoint] | None = None) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.target = Target(directory / "target")
        self.target.directory.mkdir()
        self.now_s = 1_000.0
        self.is_dead = False
        self.is_up = False
        self.kills_left = self.random.choice((0, 2, 6, 20))
        self.harms_left = self.random.randrange(0, 5)
        self.stops_left = self.random.randrange(0, 3)
        self.risk = self.random.choice((0.0005, 0.002, 0.01))
        self.deaths = None if deaths is None else deque(deaths)
        if deaths is not None:
            self.kills_left = self.harms_left = self.stops_left = 0
        self.changes_left = 0 if deaths is not None and not self.dies_in_a_change(deaths) else 40
        if deaths is None:
            self.changes_left = self.random.randrange(0, 5)
        self.eagerness = 0.004 if deaths is None else 0.05
        self.changes = 0
        self.kills = self.harms = self.restores = self.stops = 0
        self.published_midway = 0
        """How often a checkpoint was published while a fragment still ran."""
        self.shown_rows = 0
        self.counts: dict[str, int] = {}
        self.drawn_graph = self.random.choice(("chain", "fork", "join")), self.random.getrandbits(64)
        self.application = self.built(0)
        mode = "on" if deaths else self.random.choice(("on", "on", "off"))
        self.config = Config.load(
            None,
            {},
            {
                "state.dir": str(directory / "state"),
                "checkpoint.mode": mode,
                "checkpoint.interval": f"{self.random.choice((100, 300, 1000))} ms",
                "checkpoint.timeout": "20 s",
                "channel.window-batches": str(self.random.choice((2, 4, 50))),
            },
        )
        self.are_made = mode == "on"
        self.file = self.application
        """What the user has in the application's file."""
        self.plan: Plan = make_plan(self.application.graph())
        self.clock_ms = -(10**18)

    # -- the application -----------------------------------------------------------------------------

    @staticmethod
    def dies_in_a_change(deaths: Sequence[CrashPoint]) -> bool:
        return any(point in OF_A_CHANGE for point in deaths)

    def built(self, change: int) -> Application:
        """A chain, a fork, or a join, of two to four fragments, as the user has changed it that often.

        The branches of some fragments differ from change to change; every third change is to code that fails.
        """
        shape, seed = self.drawn_graph
        drawn, app = Random(seed), Application("shells")
        differs = Random(seed + change)

        def kept() -> str:
            """The condition of a filter, which says what the branches are to do."""
            shown = change if change and differs.random() < 0.8 else 0
            return f"v >= -{shown}"

        def read(name: str) -> Any:
            self.counts[name] = drawn.randrange(0, 60)
            made = app.read(sources.generate(rows=1), name=name).select(ts="timestamp_millis(id)", v="id")
            return made.event_time("ts", max_disorder=f"{DISORDER_MS} ms", name=f"{name}-timed").cut()

        stream = read("first")
        if shape == "chain":
            last = stream.filter(kept(), name="middle").cut().filter(kept(), name="last")
            last.sink(sinks.none(), name="out")
            last.sink(sinks.none(), name="also")
        elif shape == "fork":
            left = stream.filter(kept(), name="left").cut()
            left.filter(kept(), name="behind").sink(sinks.none(), name="out")
            stream.filter(kept(), name="right").sink(sinks.none(), name="other")
        else:
            both = stream.union(read("second"), name="both").filter(kept(), name="all")
            both.sink(sinks.none(), name="out")
            both.sink(sinks.none(), name="also")
        return app

    def source(self, id: str) -> StandInSource:
        first = 1_000 * (1 + list(self.counts).index(id))
        return StandInSource(first, self.counts[id], lambda: self.random.randrange(0, 4))

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
            (checkpoint / "offsets" / str(known[-1])).unlink(missing_ok=True)

    def harm_channel(self, state: Path) -> None:
        channel = self.random.choice(self.plan.channels)
        store = ChannelStore(str(state / "channels" / channel.id))
        numbers = store.numbers()
        # What was taken and is not trimmed yet nobody repairs.
        consumer = next(f for f in self.plan.fragments if f.id == channel.consumer_fragment)
        checkpoint = state / "fragments" / consumer.id / "checkpoint"
        newest = committed(checkpoint)
        if newest >= 0 and not (checkpoint / "offsets" / str(newest)).exists():
            return
        position = entries_after(checkpoint, newest, consumer.inputs).get(channel.id, 0)
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

    def check_shown(self) -> int:
        """Nothing is shown twice, nothing that is unknown; with checkpoints all sinks show the same.

        Returns how many rows are shown.
        """
        shown, wanted = self.shown(), self.wanted()
        for id, (_, rows) in shown.items():
            assert max(Counter(rows).values(), default=1) == 1, f"{id} shows a message twice: {rows}"
            assert set(rows) <= set(wanted[id]), f"{id} shows what nobody sent"
        if self.are_made:
            sets = {id: frozenset(shown.get(id, (0, []))[1]) for id in wanted}
            assert len(set(sets.values())) == 1, f"the sinks show different cuts: {sets}"
        self.shown_rows = sum(len(rows) for _, rows in shown.values())
        return self.shown_rows

    def shown(self) -> dict[str, tuple[int, list[int]]]:
        """What the sinks show, without the versions."""
        return {
            id: (last, [row % OF_A_VERSION for row in rows])
            for id, (last, rows) in self.target.shown().items()
        }

    def check_versions(self) -> None:
        """Sinks of one fragment show each message as the same version; none as one whose code fails."""
        shown = {id: rows for id, (_, rows) in self.target.shown().items()}
        for id, rows in shown.items():
            assert not any(is_bad(row // OF_A_VERSION) for row in rows), f"{id} shows what cannot be computed"
        if {"out", "also"} <= shown.keys():
            out, also = set(shown["out"]), set(shown["also"])
            both = {row % OF_A_VERSION for row in out} & {row % OF_A_VERSION for row in also}
            differing = {row for row in out ^ also if row % OF_A_VERSION in both}
            assert not differing, f"a batch was shown by two versions: {sorted(differing)}"

    def check_clock(self, clock_ms: int | None) -> None:
        if clock_ms is not None:
            assert clock_ms >= self.clock_ms, f"the clock moved back from {self.clock_ms} to {clock_ms}"
            self.clock_ms = clock_ms

    def check_end(self) -> None:
        self.check_shown()
        self.check_versions()
        shown = {id: Counter(rows) for id, (_, rows) in self.shown().items()}
        assert {id: shown.get(id, Counter()) for id in self.wanted()} == self.wanted()


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
                opened_sinks, "open_sink", lambda _, context: StandInSink(context.sink_id, world.target)
            )
            while run_life(world) is not RunOutcome.FINISHED:
                world.check_shown()
                world.check_versions()
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
    except OperatorError:
        # Of a version that was run, not updated, there is nothing to go back to: the user corrects the file.
        in_force = process.rundir.versions.in_force()
        assert in_force is not None
        assert in_force.made_how == "run", "the application did not go back to the version before"
        texts = [record.described for record in in_force.processors.values()]
        changes = [int(text.partition("v >= -")[2]) for text in texts if text.startswith("v >= -")]
        assert is_bad(max(changes)), "the code of the version does not fail"
        process.stop_all()
        world.file, outcome = world.built(0), None
    finally:
        process.release()
        world.is_up = False
    if world.random.random() < 0.5:
        world.harm()
    return outcome
