"""An application run embedded, again and again, whose process is killed between any two of its effects.

The state directory and the target of the sinks survive a kill. A kill is an exception that nothing catches
for good: from then on the process cannot change a file any more. Between two lives, and during them, the
disk may lose segments and entries that were not read yet, and Spark's checkpoint of a fragment. The wall
clock is set forward and back.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from shell_application import EXTRA, OF_A_CHANGE, DrawnApplication, check_versions
from shell_disk import Killed, StandInSink, Target, watching
from shell_engine import DISORDER_MS, OF_A_VERSION, StandInSource, change_in, is_bad, time_of_ms, trunk_of
from shell_process import Process, has_more
from shell_states import StateEntries, drop_with_trunks
from trial_checks import TrialChecks
from wall_clock import WallClock

from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.change.change_stages import unproven
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import OperatorError
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.state_lease import StateLease
from drivetrain.runtime.graph_versions import GraphVersions
from drivetrain.runtime.objects.object_store import StoreAccessError
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch import newest_bound
from drivetrain.spark.prepare import opened_sinks
from drivetrain.spark.run import run_checkpoints
from model_store import ModelStore

STEPS = 60_000
"""Many more than a life of such an application takes."""


class World:
    """One application with its disk, from the first start of its process to its end.

    With `deaths` the process dies when it reaches each of these points, one after the other, and there are
    no other faults. With `is_growing` the application gets a fragment by some of its changes, and loses it
    by others. With `is_copied` its checkpoints are in a store, too, and its state directory may be lost. With
    `is_remote` they are its state: another machine continues it, too, with what it has kept from before.
    """

    def __init__(
        self,
        seed: int,
        directory: Path,
        deaths: Sequence[CrashPoint] | None = None,
        *,
        is_growing: bool = False,
        has_history: bool = False,
        is_hasty: bool = False,
        scalings: int = 0,
        is_copied: bool = False,
        is_remote: bool = False,
        turns_back: bool = False,
        drops: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.target = Target(directory / "target")
        self.target.directory.mkdir()
        self.now_s = 1_000.0
        self.wall_s = WallClock(str(seed), lambda: self.now_s)
        self.is_dead = False
        self.is_up = False
        self.kills_left = self.random.choice((2, 6, 20) if is_copied else (0, 2, 6, 20))
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
        if is_growing:
            self.changes_left, self.eagerness = 40 if deaths else self.random.randrange(2, 9), 0.02
        if has_history and deaths is None:
            self.changes_left, self.eagerness = self.random.randrange(6, 30), 0.01
        self.is_hasty = is_hasty
        """Whether the first change comes before the first batch."""
        self.scalings_left, self.scaled = scalings, 0
        self.store = ModelStore(before=self.at_request, after=self.at_request) if is_copied else None
        self.is_remote = is_remote
        self.refusals = 0
        """How often the store refused what a checkpoint has."""
        self.lost = self.moved = 0
        """How often the state directory was lost, and how often another machine continued."""
        if is_copied:
            self.changes_left = 0  # the versions would be lost with the directory, but not the user's file
        self.turns_back, self.returned = turns_back, 0
        """Whether the user returns from handovers, and cancels that; how often that was cancelled."""
        self.rolled_back: set[int] = set()
        """The changes of versions that were rolled back."""
        self.changes = 0
        self.kills = self.harms = self.restores = self.stops = 0
        self.published_midway = 0
        """How often a checkpoint was published while a fragment still ran."""
        self.shown_rows = self.extra_rows = self.former_rows = 0
        self.handed_over = 0
        """How often the rows of a version were compared with the time of its handover."""
        self.drawn = DrawnApplication(
            self.random,
            is_growing=is_growing,
            has_history=has_history,
            is_long=drops,
            trunks=0.8 if drops else 0.3,
        )
        self.states = StateEntries(self.state_directory) if drops else None
        """The states of queries of sources, which changes of their trunks drop."""
        if drops:
            self.changes_left, self.eagerness = 40 if deaths else self.random.randrange(6, 30), 0.02
        self.histories = 0
        """How many changes asked for earlier messages."""
        self.application = self.drawn.built(0)
        mode = "on" if deaths else self.random.choice(("on", "on", "off"))
        mode = "on" if is_copied else mode
        mode = "off" if is_growing or drops else mode  # with checkpoints no fragment starts or leaves
        self.config = Config.load(
            None,
            {},
            {
                "state.dir": str(directory / "state"),
                "checkpoint.mode": mode,
                "checkpoint.copy-to": "s3://copies" if is_copied else "nowhere",
                "checkpoint.interval": f"{self.random.choice((100, 300, 1000))} ms",
                "checkpoint.timeout": "20 s",
                "channel.window-batches": str(self.random.choice((2, 4, 50))),
                "channel.max-age": "30 min" if seed % 2 else "0 ms",  # an hour later all is too old
                "run.trial-wait": "30 ms"
                if deaths
                else Random(f"{seed} trials").choice(("1 s", "5 s", "30 s")),
            },
        )
        self.trials = TrialChecks(self.config[run_keys.TRIAL_WAIT] / 1000, lambda: self.now_s)
        self.are_made = mode == "on"
        self.file = self.application
        """The number of the change in the user's file of the application."""
        self.clock_ms = -(10**18)

    @staticmethod
    def dies_in_a_change(deaths: Sequence[CrashPoint]) -> bool:
        return any(point in OF_A_CHANGE for point in deaths)

    def state_directory(self) -> Path | None:
        """The application's, once it is there."""
        return next((self.directory / "state").glob("shells-*"), None)

    def source(self, id: str) -> StandInSource:
        return self.drawn.source(id, lambda: self.random.randrange(0, 4))

    # -- what happens to it --------------------------------------------------------------------------

    def before_change(self, path: str) -> None:
        """Called before a file is changed: the process may end here; one that has ended changes nothing."""
        if not self.is_up or not path.startswith(str(self.directory)):
            return
        if self.is_dead:
            raise Killed
        self.may_die(self.risk)

    def at_request(self, _what: str, path: str) -> None:
        """Called before and after a request to the store: the process may end here, or be refused."""
        if self.is_up:
            if self.is_dead:
                raise Killed
            self.may_die(self.risk * 5)
            if self.is_remote and "/packs/" in path and self.random.random() < 0.05:
                self.refusals += 1
                raise StoreAccessError("the request to the object store is not allowed")

    def copies_of(self, rundir: RunDirectory) -> CopiedCheckpoints | None:
        """The copies of the checkpoints, as seen by a process."""
        if self.store is None:
            return None
        place = "s3://copies/shells"
        lease = StateLease(self.store, "shells", place) if self.is_remote else None
        return CopiedCheckpoints(self.store, "shells", place, rundir.path, lease)

    def may_lose_the_disk(self) -> None:
        """Lose the state directory, if a checkpoint was copied; or continue on another machine."""
        if self.is_remote and self.random.random() < 0.5:
            here, other, aside = (self.directory / name for name in ("state", "other-state", "aside"))
            for path in (here, other):
                path.mkdir(exist_ok=True)
            here.rename(aside)
            other.rename(here)
            aside.rename(other)
            self.moved += 1
            self.clock_ms = -(10**18)
            return
        state = next((self.directory / "state").glob("shells-*"), None)
        has_copy = self.store is not None and any("/checkpoints/" in name for name in self.store.objects)
        if state is not None and has_copy and self.random.random() < 0.8:
            shutil.rmtree(state)
            self.lost += 1
            self.clock_ms = -(10**18)  # the clock continues from that of the copy

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
        was_up, self.is_up = self.is_up, False  # the world changes these files, not the process
        if self.are_made and not was_up and self.random.random() < 0.6:
            # Only while no process runs: a running one would not read it.
            is_harmed = self.drawn.harm_state(state, self.random)
        else:
            is_harmed = self.drawn.harm_channel(state, self.random)
        self.harms += is_harmed
        self.is_up = was_up

    def note_rolled_back(self, versions: GraphVersions) -> None:
        for number in versions.numbers():
            if versions.is_rolled_back(number):
                self.rolled_back.add(change_of(versions.version(number)))

    # -- what must hold ------------------------------------------------------------------------------

    def check_shown(self) -> int:
        """Check what the sinks show; returns how many rows."""
        self.shown_rows = self.drawn.check_shown(self.target, together=self.are_made)
        return self.shown_rows

    def check_versions(self) -> None:
        """Check the versions of what the sinks show, and the states that queries have read."""
        check_versions(self.target)
        assert self.states is None or not self.states.wrong, "; ".join(self.states.wrong)

    def check_clock(self, clock_ms: int | None) -> None:
        if clock_ms is not None:
            assert clock_ms >= self.clock_ms, f"the clock moved back from {self.clock_ms} to {clock_ms}"
            self.clock_ms = clock_ms

    def check_end(self) -> None:
        self.check_shown()
        self.check_versions()
        self.handed_over = check_handovers(
            next((self.directory / "state").glob("shells-*")), self.target, self.drawn
        )
        self.drawn.check_end(self.target)
        if self.drawn.has_history:
            in_force = GraphVersions(next((self.directory / "state").glob("shells-*"))).in_force()
            assert in_force is not None
            self.former_rows = self.drawn.check_history(
                self.target, self.rolled_back, has_more=has_more(in_force)
            )
        elif self.drawn.is_growing:
            self.drawn.check_extra(self.target, self.rolled_back)
        if self.drawn.is_growing:
            check_gone(next((self.directory / "state").glob("shells-*")))
            self.extra_rows = len(self.target.shown().get(EXTRA, (0, []))[1])


def check_handovers(state: Path, target: Target, drawn: DrawnApplication) -> int:
    """Check that the versions of a handover show only messages of their spans; returns how many were
    checked."""
    stored = GraphVersions(state)
    records = {number: stored.version(number) for number in stored.numbers()}
    shown = {id: rows for id, (_, rows) in target.shown().items()}
    looked_at = 0
    for number, record in records.items():
        if record.at_ms is None or any(records[n].made_how == "run" for n in records if n > number):
            continue  # a version that is run, and not updated to, takes all messages from then on
        for fragment, sinks in drawn.sinks.items():
            marks = {n: mark_of(one, fragment) for n, one in records.items()}
            own, before = marks[number], marks[record.follows]
            times: dict[int, list[int]] = {own: [], before: []}
            for row in (row for sink in sinks for row in shown.get(sink, [])):
                times.setdefault(row // OF_A_VERSION, []).append(time_of_ms(row % OF_A_VERSION))
            # Otherwise the application may have returned to it.
            if own not in [mark for n, mark in marks.items() if n != number]:
                looked_at += bool(times[own])
                assert all(ms >= record.at_ms for ms in times[own]), f"version {number} began early"
            if before not in [mark for n, mark in marks.items() if n >= number]:
                if stored.is_rolled_back(number):
                    continue
                looked_at += bool(times[before])
                assert all(ms < record.at_ms for ms in times[before]), f"{record.follows} ended late"
    return looked_at


def check_gone(state: Path) -> None:
    """Check that nothing remains of a fragment that has left.

    The empty place of one whose change was never recorded may remain: the next fragment takes it over.
    """
    in_force = GraphVersions(state).in_force()
    assert in_force is not None
    places = (state / place for place in ("fragments/more", "channels/tap--more"))
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    kept = [path.name for path in files if path.name not in ("first-batch", "begins")]
    assert has_more(in_force) or not kept, f"left: {kept}"


def mark_of(version: GraphVersion, fragment: str) -> int:
    """The number of the change from which a fragment's branches in a version come."""
    return change_in(version.processors[id].described for id in version.fragments[fragment].branches)


@contextlib.contextmanager
def simulated(world: World) -> Iterator[pytest.MonkeyPatch]:
    """Time, disk, sinks and threads are those of `world`."""
    with pytest.MonkeyPatch.context() as patched, watching(world.before_change):
        patched.setattr(time, "monotonic", lambda: world.now_s)
        patched.setattr(time, "monotonic_ns", lambda: int(world.now_s * 1e9))
        patched.setattr(time, "time", world.wall_s)
        patched.setattr(time, "time_ns", world.wall_s.time_ns)
        patched.setattr(time, "sleep", world.sleep)
        patched.setattr(newest_bound, "AHEAD_MS", DISORDER_MS)  # all messages are of a few seconds
        patched.setattr(
            opened_sinks, "open_sink", lambda _, context: StandInSink(context.sink_id, world.target)
        )
        # A thread would use the wall clock; a process that was replaced notices with the next checkpoint.
        patched.setattr(run_checkpoints, "ContinuationWatch", lambda *_: None)
        if world.states is not None:
            drop_with_trunks(patched, world.states)
        yield patched


def run_world(
    seed: int,
    deaths: Sequence[CrashPoint] | None = None,
    *,
    is_growing: bool = False,
    has_history: bool = False,
    is_hasty: bool = False,
    scalings: int = 0,
    is_copied: bool = False,
    is_remote: bool = False,
    turns_back: bool = False,
    drops: bool = False,
) -> World:
    """Run an application to its end, however often its process is killed on the way; raises an error for a
    violation."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        world = World(
            seed,
            Path(place),
            deaths,
            is_growing=is_growing or has_history,
            has_history=has_history,
            is_hasty=is_hasty,
            scalings=scalings,
            is_copied=is_copied,
            is_remote=is_remote,
            turns_back=turns_back,
            drops=drops,
        )
        with simulated(world):
            while run_life(world) is not RunOutcome.FINISHED:
                world.check_shown()
                world.check_versions()
                world.may_lose_the_disk()
        world.check_end()
        return world


def change_of(version: GraphVersion) -> int:
    """The number of the change in the file from which a version was made."""
    return change_in(record.described for record in version.processors.values())


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
        # A version that was run, not updated to, has nothing to go back to: the user corrects the file.
        in_force = process.rundir.versions.in_force()
        assert in_force is not None
        # A batch that a crash interrupted runs with its own version, which may be one that was on trial then.
        ran = [driver.query.versions for driver in process.loop.drivers.values()]
        others = [v for v in ran if v is not None and v.running.number != in_force.number]
        # A trial at an event time also ends when the clock reaches that time before any message.
        # One may also end without a message, after a time.
        ending, stages = process.rundir.versions.ending, process.rundir.versions.stages(in_force.number)
        is_over = (in_force.at_ms is not None or unproven(stages)) and ending(in_force.number) is not None
        is_right = in_force.made_how == "run" or others or is_over
        assert is_right, "the application did not go back to the version before"
        trunks = [trunk for f in process.plan.fragments for trunk in trunk_of(process.plan, f)]
        is_bad_one = any(map(is_bad, [change_of(in_force), *trunks]))
        assert is_bad_one or others, "the code of the version does not fail"
        process.stop_all()
        world.file, outcome = world.drawn.fitting(has_more=has_more(in_force)), None
    finally:
        process.release()
        world.note_rolled_back(process.rundir.versions)
        world.is_up = False
    if world.random.random() < 0.5:
        world.harm()
    return outcome
