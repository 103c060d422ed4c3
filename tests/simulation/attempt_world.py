"""A cluster whose executors run real attempts of fragments on one state directory, with faults of all kinds.

Masters and workers are those of `app_master_world`; the application master and its executors are real. A kill
is an exception that nothing catches for good; from then on the process can change no file and send nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from app_master_world import APP, PORT, SETTINGS, World
from attempt_changes import Changer, watch_versions
from attempt_checks import AttemptChecks, judged
from attempt_masters import RepeatingAppMaster, RestartingMaster
from attempt_process import ExecutorProcess, Java, Late, java_of, started
from attempt_readers import Reader
from attempt_scalings import Scaler, let_every_fragment_be_scaled
from shell_application import OF_A_CHANGE, OF_FRAGMENTS, OF_READERS, DrawnApplication, check_versions
from shell_disk import Killed, StandInSink, Target, watching
from shell_engine import DISORDER_MS, StandInQuery
from trial_checks import TrialChecks
from wall_clock import WallClock

from drivetrain.cluster.access.system_names import app_master_name, executor_name
from drivetrain.cluster.app_master.app_master_messages import Setup
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication, vertices_of
from drivetrain.cluster.app_master.stream.stream_app_master import StreamAppMaster
from drivetrain.cluster.executor import spark_work
from drivetrain.cluster.messages.launching import Launch
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.checkpoint.transaction import Phase, Transaction
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.file_lock import FileLock
from drivetrain.runtime import fragment_lock
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.simulator import Node, Simulation
from drivetrain.simulator.loop import SimulatedLoop
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.spark.batch import newest_bound
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.prepare import opened_sinks
from drivetrain.spark.session import lost_java

W = TypeVar("W", bound="AttemptWorld")

MANY = {
    "restart.attempts": "100000",
    "restart.job-attempts": "100000",
    "checkpoint.timeout": "20 s",
}
"""Settings under which no fault ends the application."""


class AttemptWorld(World):
    """The cluster, the state directory of the application below `place`, and the target of its sinks.

    With `deaths` the process that reaches each of these points, one after the other, dies there, and there
    are no other faults.
    """

    def __init__(
        self,
        simulation: Simulation,
        place: Path,
        deaths: Sequence[CrashPoint] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        is_growing: bool = False,
        has_history: bool = False,
        is_long: bool = False,
    ) -> None:
        is_growing = is_growing or has_history
        super().__init__(simulation, failures=0, refusals=simulation.random.choice((0, 0, 2)))
        random = self.random
        self.is_calm = False
        self.place = place
        self.target = Target(place / "target")
        self.target.directory.mkdir()
        self.drawn = DrawnApplication(random, is_growing=is_growing, has_history=has_history, is_long=is_long)
        self.kills_left = random.choice((0, 2, 6, 20))
        self.harms_left = random.choice((0, 0, 1, 3))
        self.risk = random.choice((0.0005, 0.002, 0.01))
        self.pace = random.choice((1, 3, 6))
        """How long steps take: whether the application runs longer than it takes to notice a failure."""
        self.deaths = None if deaths is None else deque(deaths)
        if deaths is not None:
            self.kills_left = self.harms_left = 0
        is_of_a_change = deaths is not None and any(
            point in (*OF_A_CHANGE, *OF_FRAGMENTS) for point in deaths
        )
        changes = 40 if is_of_a_change else random.choice((0, 2, 6)) * (deaths is None)
        self.changer = Changer(self, random.randrange(2, 9) if is_growing and deaths is None else changes)
        self.scaler = Scaler(self, Random(f"{simulation.seed} scalings").choice((0, 0, 4)) * (deaths is None))
        self.reader = self._drawn_reader(deaths)
        if self.reader.left:
            self.harms_left = 0  # a damaged channel of another application is repaired in a thread
        self.kills = self.zombies = self.java_left = self.harms = 0
        self.is_one_machine = random.random() < 0.5
        """Whether there is one machine: only then is a Java process that outlives its executor known, and
        waited for."""
        self.java_lives_on = 0.7
        """The probability that a Java process outlives its executor."""
        self.java_rests_s: Sequence[float] = (0.001, 0.3, 1.5)
        """How long such a process waits before it acts."""
        self.processes: dict[str, ExecutorProcess] = {}  # by node
        self.lives: dict[str, Life] = {}
        self.locks_of: dict[Life, list[FileLock]] = {}
        self.without_locks: set[str] = set()
        """The nodes of executors that have lost their locks."""
        self.slept_s = 0.0
        self.wall_s = WallClock(str(simulation.seed), self.monotonic_s)
        """The wall clock of all machines except those of executors, each of which has its own."""
        self.are_made = random.random() < 0.7 or deaths is not None
        # With checkpoints no fragment starts or leaves, and no other application reads.
        self.are_made = self.are_made and not is_growing and not self.reader.left
        self.settings = MANY | {
            "state.dir": str(place / "state"),
            "checkpoint.mode": "on" if self.are_made else "off",
            "checkpoint.interval": f"{random.choice((100, 300, 1000))} ms",
            "channel.window-batches": str(random.choice((2, 4, 50))),
            "channel.max-age": "30 min" if simulation.seed % 2 else "0 ms",  # an hour later all is too old
            "run.trial-wait": self._drawn_wait(deaths, has_history=has_history),
            "app.executors": str(random.choice((1, 2, 2, 3))),
            "app.executor-slots": "4",
        }
        self.settings |= settings or {}
        self.config = Config.load(None, None, SETTINGS | self.settings)
        self.checks = AttemptChecks(self.epoch_of)
        self.trials = TrialChecks(self.config[run_keys.TRIAL_WAIT] / 1000, self.monotonic_s)
        self.late = Late()
        self.newest_transaction = (-1, -1, -1)
        """Life, round, and the checkpoint that is decided."""
        self.is_preparing = False
        """Whether fragments must answer the coordinator of checkpoints."""
        self.submission = "a submission"
        self.broken: Exception | None = None
        """Errors of steps that must not raise any."""

    def _drawn_wait(self, deaths: Sequence[CrashPoint] | None, *, has_history: bool) -> str:
        """How long a trial waits for messages: long where the input is held up for the next change.

        Else code that fails would come into force for good, and nobody corrects it.
        """
        if deaths is not None or has_history:
            return "30 s"
        return Random(f"{self.simulation.seed} trials").choice(("1 s", "5 s", "30 s"))

    def _drawn_reader(self, deaths: Sequence[CrashPoint] | None) -> Reader:
        """Another application that reads this one, in some worlds."""
        random = Random(f"{self.simulation.seed} readers")
        streams = [id for id, node in self.drawn.plan.graph.nodes.items() if not node.operation.ends_stream]
        of_readers = deaths is not None and any(point in OF_READERS for point in deaths)
        lives = 40 if of_readers else random.choice((0, 0, 3)) * (deaths is None)
        return Reader(self, lives, random.choice(streams))

    def monotonic_s(self) -> float:
        """The clock of all processes; blocking waits make it run ahead of the loop's."""
        return self.simulation.loop.time() + self.slept_s

    def sleep(self, duration_s: float) -> None:
        self.slept_s += duration_s

    # -- processes -------------------------------------------------------------------------------------

    async def _master(self, node: Node) -> None:
        system = await self.system(node, "master")
        self.paths[node.name] = str(system.spawn(lambda: RestartingMaster(self, node), "master").path)

    async def _app_master(self, node: Node) -> None:
        self._born(node)
        epoch = int(node.name.removeprefix("am"))  # the next one may have been started already
        system = await self.system(node, app_master_name(APP, epoch))
        masters = [f"m1:{PORT}", f"m2:{PORT}"]
        log = self.simulation.record
        setup = Setup(APP, epoch, self.spec, masters, system.config, "", node.clock_ms, log)
        setup = self.placed(setup)
        application, plan = self.drawn.built(0), self.drawn.plan
        planned = PlannedApplication(vertices_of(plan), plan, application.name, application.naming_settings)

        def make() -> StreamAppMaster:
            self.actor = RepeatingAppMaster(setup, lambda: planned)
            self.actor.world, self.actor.draw = self, node.random.random
            return self.actor

        self.paths["am"] = str(system.spawn(make, "app-master").path)
        self.app_system = system

    def state(self) -> Path | None:
        """The state directory of the application, if it has one."""
        return next((self.place / "state").glob("shells-*"), None)

    def known_state(self) -> Path:
        """The state directory of an application that runs."""
        state = self.state()
        assert state is not None
        return state

    def is_held_up(self, draw: Random) -> bool:
        """Whether a source gives nothing now: an application that must die in a change, or read former
        messages, does not end before that."""
        is_asked = self.changer.changes_left > 0 or self.scaler.left > 0
        is_long = bool(self.deaths) or self.drawn.has_history
        return is_long and is_asked and draw.random() < 0.95

    def placed(self, setup: Setup) -> Setup:
        """The parameters of an application master, where it was placed."""
        return dataclasses.replace(setup, submission=self.submission)

    def config_of(self, _launch: Launch) -> Config:
        """The configuration of an executor."""
        return self.config

    def sink(self, context: SinkContext) -> StandInSink:
        """A sink of the application."""
        return StandInSink(context.sink_id, self.target)

    async def _executor(self, node: Node, launch: Launch) -> None:
        self._born(node)
        process = ExecutorProcess(self, node, launch, Java(1_000 + len(self.processes)))
        self.processes[node.name] = process
        system = await self.system(node, executor_name(launch.app_id, launch.epoch, launch.launch_id))
        process.start(system, lambda _: self.ending.add(launch.launch_id))
        try:
            await process.run()
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self.broken = error

    def _born(self, node: Node) -> None:
        life = CURRENT_LIFE.get()
        assert life is not None
        self.lives[node.name] = life

    def epoch_of(self, life: Life) -> int:
        """The epoch of an executor, or of an application master."""
        process = self.processes.get(life.name)
        return int(life.name.removeprefix("am")) if process is None else process.launch.epoch

    def alive(self) -> list[ExecutorProcess]:
        """The running executors, except frozen ones."""
        return [p for p in self.processes.values() if p.node.is_alive and not p.node.is_frozen]

    def kill(self, launch_id: str) -> None:
        """End an executor's process."""
        node = self.executors[launch_id]
        was_alive = node.is_alive
        super().kill(launch_id)
        if was_alive:
            self._died(node.name)

    def kill_executors(self) -> None:
        """End all executors, with their Java processes."""
        for launch_id in self.living():
            self.kill(launch_id)
        for process in self.processes.values():
            process.java.is_alive = False

    def kill_app_master(self) -> None:
        """End the application master's process; a leader that notices starts the next."""
        if self.app_master.is_alive:
            self.app_master.crash()

    def _died(self, name: str) -> None:
        """Do what the kernel does when an executor's process has ended."""
        life = self.lives[name]
        for lock in self.locks_of.pop(life, []):
            lock.release()
        process = self.processes.get(name)
        if process is None:
            return
        process.dies()
        lives_on = self.is_one_machine and self.random.random() < self.java_lives_on
        process.java.is_alive = lives_on
        self.java_left += lives_on

        async def after() -> None:
            process.bury(life)
            for _ in range(self.random.randrange(1, 5) if lives_on else 0):
                await self.simulation.sleep(self.random.choice(self.java_rests_s))
                process.go_on_without_python()
            process.java.is_alive = False
            process.left_over = []

        self.simulation.loop.create_task(after(), context=Context(), name=f"after {name}")

    def host_name(self) -> str:
        """The machine of the process that asks."""
        life = CURRENT_LIFE.get()
        process = None if life is None else self.processes.get(life.name)
        if process is None or self.is_one_machine:
            return "here"
        return self.owner_worker[process.launch.launch_id].name

    def queries_beside(self, process: ExecutorProcess) -> list[StandInQuery]:
        """The queries that run in all other executors, and in Java processes that outlived theirs."""
        found: list[StandInQuery] = []
        for name, other in self.processes.items():
            if other is process or name in self.without_locks:
                continue
            if self.lives[name].is_alive:
                found += [query for query in other.engine.queries if query.is_active]
            elif other.java.is_alive:
                found += other.left_over
        return found

    def lose_locks(self, node: Node) -> None:
        """Give the locks of a frozen executor to others, as a network file system does after some time."""
        self.without_locks.add(node.name)
        for lock in self.locks_of.get(self.lives[node.name], []):
            if lock._descriptor is not None:
                fcntl.flock(lock._descriptor, fcntl.LOCK_UN)

    async def lead(self) -> None:
        """Act for the leader: start another application master when there is none."""
        while True:
            await self.simulation.sleep(0.3)
            if not self.app_master.is_alive and not self.is_over():
                await self.simulation.sleep(self.random.uniform(0.0, 1.0))
                await self.start_app_master()

    # -- what happens to it ----------------------------------------------------------------------------

    def before_change(self, path: str) -> None:
        """Called before a file is changed: the process may end here; one that has ended changes nothing."""
        life = CURRENT_LIFE.get()
        if life is None or not path.startswith(str(self.place)):
            return
        if not life.is_alive:
            raise Killed
        self.may_die(life, self.risk)
        if life.name not in self.without_locks:
            self.checks.changes(life, path)

    def reached(self, point: CrashPoint) -> None:
        """Called at a point between two effects: the process may end here, or another of its threads
        continue."""
        life = CURRENT_LIFE.get()
        if life is None:
            return
        if not life.is_alive:
            raise Killed
        if self.deaths and self.deaths[0] is point:
            self.deaths.popleft()
            if self.random.random() < 0.5:
                self.kill_app_master()
            self.die(life)
        self.may_die(life, self.risk * 10)
        process = self.processes.get(life.name)
        if process is not None and self.random.random() < 0.1:
            process.interrupt()

    def may_die(self, life: Life, chance: float) -> None:
        if self.kills_left > 0 and self.random.random() < chance:
            self.kills_left -= 1
            self.die(life)

    def die(self, life: Life) -> None:
        """End the running process here."""
        self.kills += 1
        if life.name in self.processes:
            self.kill(self.processes[life.name].launch.launch_id)
        else:
            self.simulation.node(life.name).crash()  # an application master, perhaps one that was replaced
        raise Killed

    def harm(self) -> None:
        """Damage a channel; or, when nothing runs, a fragment's state (running queries would not notice
        that)."""
        state = self.state()
        if state is None or self.harms_left <= 0:
            return
        self.harms_left -= 1
        if self.are_made and self.random.random() < 0.5:
            self.kill_executors()
            self.harms += self.drawn.harm_state(state, self.random)
        else:
            self.harms += self.drawn.harm_channel(state, self.random)

    # -- what must hold --------------------------------------------------------------------------------

    def take_clock(self, clock_ms: int | None) -> None:
        """Keep a report's clock in the registry."""
        if clock_ms is None:
            return
        self.clock_ms = max(clock_ms, self.clock_ms or clock_ms)

    def hear_clock(self, clock_ms: int | None) -> None:
        """Take the clock that the current application master announces: the next must not announce a
        smaller one."""
        if clock_ms is None:
            return
        assert clock_ms >= self.told_ms, f"the clock goes back from {self.told_ms} to {clock_ms}"
        self.told_ms = clock_ms
        if not self.harms:  # a harm may set fragments back, but not the clock
            bound_ms = self.drawn.clock_bound_ms(self.known_state())
            assert clock_ms <= bound_ms, f"the clock is {clock_ms}, and {bound_ms} are committed"

    def persisted(self, transaction: Transaction) -> None:
        """Check a persisted transaction: a decision is never taken back."""
        record = -1 if transaction.record is None else transaction.record.txid
        new = (transaction.life, transaction.round, record)
        if any(now < before for now, before in zip(new, self.newest_transaction, strict=True)):
            self.records.violations.append(f"checkpoints go back from {self.newest_transaction} to {new}")
        self.newest_transaction = new
        self.is_preparing = transaction.phase is Phase.PREPARING

    def check(self) -> None:
        """Check what must hold at any time."""
        if self.broken is not None:
            raise self.broken
        self.reap()
        job = getattr(self.actor, "job", None) if self.app_master.is_alive else None
        if self.actor is not None and job is not None:
            job.check()
            self.actor.pool.check()
            self.hear_clock(self.actor.clock())
        self.drawn.check_shown(self.target, together=self.are_made)
        check_versions(self.target)
        self.changer.check()
        violations = [*self.records.violations, *self.checks.violations]
        assert not violations, "; ".join(violations)


@contextlib.contextmanager
def attempt_world(
    simulation: Simulation,
    deaths: Sequence[CrashPoint] | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    is_growing: bool = False,
    has_history: bool = False,
    is_long: bool = False,
) -> Iterator[AttemptWorld]:
    """A world whose processes have its clock, its disk and its engine; `is_long`: it has many messages."""

    def make(place: Path) -> AttemptWorld:
        flags = {"is_growing": is_growing, "has_history": has_history, "is_long": is_long}
        return AttemptWorld(simulation, place, deaths, settings, **flags)

    with made_world(make) as (world, _):
        yield world


@contextlib.contextmanager
def made_world(make: Callable[[Path], W]) -> Iterator[tuple[W, pytest.MonkeyPatch]]:
    """The world that `make` makes in an empty directory, and what its processes are patched with."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place,
        pytest.MonkeyPatch.context() as patched,
    ):
        world = make(Path(place))
        _patch(patched, world)
        with judged(world.checks), watching(world.before_change), armed(world.reached):
            try:
                yield world, patched
            finally:
                world.simulation.loop._forget_done_tasks()  # while the failures of killed ones are ignored
                for locks in world.locks_of.values():
                    for lock in locks:
                        lock.release()


def _patch(patched: pytest.MonkeyPatch, world: AttemptWorld) -> None:
    opened, persist, keep = FileLock._opened, CheckpointFiles.persist, SimulatedLoop._keep_failure

    def note_lock(lock: FileLock) -> int:
        life = CURRENT_LIFE.get()
        if life is not None and not lock.is_open:
            world.locks_of.setdefault(life, []).append(lock)
        return opened(lock)

    def note_transaction(files: CheckpointFiles, transaction: Transaction) -> None:
        persist(files, transaction)
        world.persisted(transaction)

    def keep_failure(loop: SimulatedLoop, task: Any, life: Life | None) -> None:
        if task.done() and not task.cancelled() and isinstance(task.exception(), Killed):
            return
        keep(loop, task, life)

    def failed(loop: Any, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):
            loop.default_exception_handler(context)

    watch_versions(patched, world.changer)
    let_every_fragment_be_scaled(patched)
    world.simulation.loop.set_exception_handler(failed)
    patched.setattr(FileLock, "_opened", note_lock)
    patched.setattr(CheckpointFiles, "persist", note_transaction)
    patched.setattr(SimulatedLoop, "_keep_failure", keep_failure)
    patched.setattr(time, "monotonic", world.monotonic_s)
    patched.setattr(time, "monotonic_ns", lambda: int(world.monotonic_s() * 1e9))
    patched.setattr(time, "time", world.wall_s)
    patched.setattr(time, "time_ns", world.wall_s.time_ns)
    patched.setattr(time, "sleep", world.sleep)
    patched.setattr(newest_bound, "AHEAD_MS", DISORDER_MS)  # all messages are of a few seconds
    patched.setattr(spark_work, "PREDECESSOR_S", 0.2)  # it blocks, and nothing else runs meanwhile
    patched.setattr(lost_java, "java_process", lambda: java_of(CURRENT_LIFE.get(), world.processes))
    patched.setattr(socket, "gethostname", world.host_name)
    patched.setattr(fragment_lock, "_started", lambda pid: started(pid, world.processes))
    patched.setattr(opened_sinks, "open_sink", lambda _, context: world.sink(context))
