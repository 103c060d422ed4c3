"""The process of an executor in a simulated cluster: real actor, real attempts, an engine without Spark.

`Executor`, `SparkWork`, `Attempt` and all that they drive are real. `ExecutorProcess.run` takes the steps
that threads take in production, in a random order. When the process is killed, its Java process may live for
a moment longer and continue its work: commit a batch that has run, plan the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from attempt_checks import CheckedEngine
from shell_engine import StandInQuery
from shell_process import SteppedPart, SteppedReading, SteppedRecovery
from wall_clock import WallClock

from drivetrain.actor import Actor, ActorPath, ActorSystem, Message
from drivetrain.cluster.executor.executor import Executor
from drivetrain.cluster.executor.fragment_attempt import Attempt, AttemptChanged
from drivetrain.cluster.executor.spark_work import SparkWork
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.changing import VersionReports, VersionsChanged
from drivetrain.cluster.messages.checkpoints import CheckpointAnswered, CheckpointCommand
from drivetrain.cluster.messages.executing import CancelFragment, Deploy, EndExecutor, FragmentChanged
from drivetrain.cluster.messages.flow import RelayedFlowMessage
from drivetrain.cluster.messages.launching import Launch, ProcessKind
from drivetrain.core.flow.flow import FlowMessage
from drivetrain.runtime.preparation import Preparer
from drivetrain.simulator import Node
from drivetrain.simulator.process_life import CURRENT_LIFE, Life
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import Participation
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.host import Host

if TYPE_CHECKING:
    from attempt_world import AttemptWorld


TO_EXECUTORS = (Deploy, CancelFragment, EndExecutor, RelayedFlowMessage, CheckpointCommand, VersionsChanged)
TO_APP_MASTER = (FragmentChanged, CheckpointAnswered, RelayedFlowMessage, CheckpointCommand, VersionReports)
"""The messages that are sent repeatedly, so they may arrive twice."""
REPEATED = 0.1
"""The probability that a message arrives twice."""


class Java:
    """The Java process of an executor, in the form of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.is_alive = True

    def poll(self) -> int | None:
        return None if self.is_alive else 137

    def wait(self, _timeout: float) -> int:
        return 137


class RepeatingExecutor(Executor):
    """Gets some messages twice, the second time later, and now and then one of an earlier epoch."""

    world: AttemptWorld
    draw: Callable[[], float]
    relayed: deque[FlowMessage]

    def _forward(self, message: FlowMessage) -> None:
        if any(message is relayed for relayed in self.relayed):
            self.world.checks.wrong(f"a message returns to the application master that relayed it: {message}")
        super()._forward(message)

    def act(self, message: Message) -> None:
        if isinstance(message, RelayedFlowMessage):
            self.relayed.append(message.flow_message)
        with self.world.checks.unchanged_by(message, self):
            super().act(message)
        if isinstance(message, TO_EXECUTORS):
            again = self.world.late.another(message, self._launch.epoch, self.draw)
            if again is not None:
                repeat(self, again, self.draw())


class Late:
    """Messages that an actor got, the newest of each kind and epoch: they may arrive once more."""

    def __init__(self) -> None:
        self._got: dict[tuple[type[Message], int], Message] = {}

    def another(self, message: Message, epoch: int, draw: Callable[[], float]) -> Message | None:
        """The message that the receiver of `message` gets in addition: the same, one of an earlier epoch,
        or None."""
        kind = type(message)
        self._got[kind, getattr(message, "epoch", epoch)] = message
        if draw() < REPEATED:
            return message
        older = [late for (of, at), late in self._got.items() if of is kind and at < epoch]
        return older[-1] if older and draw() < REPEATED else None


def repeat(actor: Actor, message: Message, after_s: float) -> None:
    """Send an actor a second copy of a message that it has just got."""
    context = actor.context
    context.system.loop.call_later(after_s, context.me.tell, message, context.sender)


class ExecutorProcess:
    """One executor, from its launch to its death."""

    def __init__(self, world: AttemptWorld, node: Node, launch: Launch, java: Java) -> None:
        self.world = world
        self.node = node
        self.launch = launch
        self.java = java
        self.parts: list[Participation] = []
        self.recoveries: list[SteppedRecovery] = []
        self.readings: list[SteppedReading] = []
        self.attempts: list[Attempt] = []
        self.left_over: list[StandInQuery] = []
        """The queries of a dead process, with which its Java process may continue."""
        self.is_nested = False
        self.executor: Executor
        self.engine = CheckedEngine(node.random.randrange, self.source, self.is_blocked, lambda: None)
        self.engine.others = lambda: world.queries_beside(self)
        self.engine.checks = world.checks
        self.engine.rows_of = world.trials.rows_of
        host = Host(lambda *_: self.engine, lambda part: SteppedPart(self.parts, part))
        assert launch.app_master is not None
        preparer = Preparer(launch.app_id, launch.epoch, launch.app_master)
        config = world.config_of(launch)
        self.work = SparkWork(self.launch_file(), config, preparer, host, self.begin_recovery)
        self.work.flow = FlowBook(
            config,
            epoch=launch.epoch,
            monotonic_s=world.monotonic_s,
            wall_s=WallClock(f"{world.simulation.seed} {launch.launch_id}", world.monotonic_s),
        )
        self.work.make_version = world.changer.version
        self.work.begin_reading = self.begin_reading
        application = world.drawn.built(0)
        self.work._application, self.work._plan = application, world.drawn.plan  # instead of a user's file

    def launch_file(self) -> LaunchFile:
        launch = self.launch
        return LaunchFile(
            kind=ProcessKind.EXECUTOR,
            launch_id=launch.launch_id,
            app_id=launch.app_id,
            epoch=launch.epoch,
            spec=launch.spec,
            slots=launch.slots,
            owner=str(launch.owner.path),
            app_master=launch.app_master,
            code_directory="",
            work_directory="",
            worker_id="w",
            worker_name="w",
            worker="",
            masters=[],
            host=self.node.name,
            submission=launch.submission,
        )

    def start(self, system: ActorSystem, end: Callable[[int], None]) -> None:
        """Start the actor, and begin to take steps."""
        assert self.launch.app_master is not None
        app_master = system.reference(ActorPath.parse(self.launch.app_master))

        def make() -> Executor:
            made = RepeatingExecutor(self.launch_file(), self.work, app_master, end, self.begin_attempt)
            made.world, made.draw = self.world, self.node.random.random
            made.relayed = deque(maxlen=50)
            self.executor = made
            return made

        system.spawn(make, "executor")

    def begin_attempt(self, attempt: Attempt) -> None:
        tell = attempt._tell

        def told(changed: AttemptChanged) -> None:
            if self.node.is_alive:
                self.world.checks.tells(self, attempt, changed)
            tell(changed)

        attempt._tell = told
        self.attempts.append(attempt)

    def source(self, id: str) -> Any:
        draw = self.node.random

        def size() -> int:
            return 0 if self.world.is_held_up(draw) else draw.randrange(0, 4)

        return self.world.drawn.source(id, size)

    def begin_recovery(self, _fragment: str, steps: Steps[FragmentQuery]) -> SteppedRecovery:
        self.recoveries.append(SteppedRecovery(steps))
        return self.recoveries[-1]

    def begin_reading(self, _fragment: str, steps: Steps[None]) -> SteppedReading:
        self.readings.append(SteppedReading(steps))
        return self.readings[-1]

    # -- its threads -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Let the parts take turns, a step at a time, until the process ends."""
        draw = self.node.random
        while True:
            await asyncio.sleep(self.world.pace * draw.choice((0.001, 0.01, 0.03)))
            now_s = self.world.monotonic_s()
            self.attempts[:] = [attempt for attempt in self.attempts if not attempt.has_ended]
            turns = self.turns_beside_attempts(now_s)
            turns += [partial(attempt.step, now_s) for attempt in self.attempts]
            if turns:
                draw.choice(turns)()

    def turns_beside_attempts(self, now_s: float) -> list[Callable[[], object]]:
        queries = [query.step for query in self.engine.queries if query.is_active]
        return [
            *queries,
            *queries,
            *(recovery.step for recovery in self.recoveries if recovery.is_alive()),
            *(reading.step for reading in self.readings if reading.is_alive()),
            *(partial(part.step, int(now_s * 1000)) for part in self.parts),
        ]

    def interrupt(self) -> None:
        """Let other parts take turns in the middle of a step: a batch and a checkpoint are two threads."""
        if self.is_nested:
            return
        self.is_nested = True
        try:
            turns = [query.step for query in self.engine.queries if query.is_active]
            turns += [partial(part.step, int(self.world.monotonic_s() * 1000)) for part in self.parts]
            if turns:
                self.node.random.choice(turns)()
        finally:
            self.is_nested = False

    def is_blocked(self, query: StandInQuery) -> bool:
        """Whether the batch of a query would wait, for its subscribers or for a snapshot that is taken."""
        for attempt in self.attempts:
            own = None if attempt._driver is None else attempt._driver.query
            if own is not None and own.checkpoint == query.checkpoint:
                inside = [id for id in own.branches.stores if id not in own.flow.outside]
                is_full = self.work.flow.full(inside) is not None
                return own.is_held or own.turn.locked() or is_full
        return False

    # -- its end ---------------------------------------------------------------------------------------

    def dies(self) -> None:
        """Kill the process: from now on only its Java process does anything."""
        self.left_over = [q for q in self.engine.queries if q.is_active and not q._is_running]

    def bury(self, life: Life) -> None:
        """Close the generators that the dead process has left suspended; they can change nothing."""
        context = Context()
        context.run(CURRENT_LIFE.set, life)
        works: list[Any] = [*self.recoveries, *self.readings]
        for steps in [*(a._steps for a in self.attempts), *(work.steps for work in works)]:
            with contextlib.suppress(BaseException):
                context.run(steps.close)

    def go_on_without_python(self) -> None:
        """Let the Java process continue: a query that had run a batch commits it, one that had committed
        plans the next."""
        if not self.left_over or not self.java.is_alive:
            return
        query = self.node.random.choice(self.left_over)
        with contextlib.suppress(Exception):  # like a query of Spark that fails
            if query._planned is None:
                query._plan()
            elif query._has_run:
                query._commit(query._planned)


def java_of(life: Life | None, processes: dict[str, ExecutorProcess]) -> Any:
    """The result of `lost_java.java_process` in a process."""
    process = None if life is None else processes.get(life.name)
    return None if process is None else process.java


def started(pid: int, processes: dict[str, ExecutorProcess]) -> str | None:
    """The start time that `fragment_lock` finds in /proc for a Java process."""
    is_alive = any(p.java.pid == pid and p.java.is_alive for p in processes.values())
    return str(pid) if is_alive else None
