"""Run an application embedded: every fragment in this process, on one Spark session.

The order of things: plan, lock the state directory, start Spark, compile every fragment and check
every source and sink before anything is written, start the queries in topological order, then poll
until all have finished, one has failed, or somebody asks to stop.

What if we die here: at any point the same command goes on from Spark's checkpoints; sinks and
channels skip what they have. `application.json` says "finished" only after the last output.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.checkpoint_figures import CheckpointFigures
from drivetrain.core.plan import Plan
from drivetrain.core.planner import plan as make_plan
from drivetrain.core.progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    QuietListener,
    RunListener,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.errors import DrivetrainError
from drivetrain.spark.actor_thread import ActorThread
from drivetrain.spark.channel.segments import MessageLossError
from drivetrain.spark.checkpoints.manifest import Manifest
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.checkpoints.run_checkpoints import RunCheckpoints
from drivetrain.spark.checkpoints.savepoint import write_savepoint
from drivetrain.spark.checkpoints.savepoint_requests import SavepointRequests
from drivetrain.spark.clock_file import ClockFile
from drivetrain.spark.execution import Execution, finish, look_at, prepare, refuse_shared_targets
from drivetrain.spark.failures import StateDamagedError
from drivetrain.spark.flow_actor import FlowController, nobody_else
from drivetrain.spark.query import FragmentQuery
from drivetrain.spark.recovery import Recoveries, Recovery
from drivetrain.spark.results import already_finished, result
from drivetrain.spark.run_clock import RunClock
from drivetrain.spark.rundir import RunDirectory
from drivetrain.spark.session import java_lost
from drivetrain.spark.source_clock import PartitionsChangedError

POLL_S = 0.05
DRAIN_S = 60.0
_MOST_RESTORES = 5
"""How often one run goes back to a checkpoint: damage that comes again and again is the disk's."""
SETTLE_MS = 10_000
"""How long the end of a run waits until its clock is on disk."""
LOOK_S = 0.5
"""How often a fragment is looked at between its batches: it may be blocked, and what waits for it grows."""


@dataclass
class Running:
    """The queries of an application by fragment id, in topological order, its clock, and who watches them."""

    listener: RunListener
    clock: RunClock
    recoveries: Recoveries
    checkpoints: RunCheckpoints
    savepoints: SavepointRequests
    notices: deque[str]
    """What repairs have said and the listener was not told yet."""
    queries: dict[str, FragmentQuery] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    """How often each fragment's query was made anew in this run."""
    told_checkpoints: CheckpointFigures | None = None
    """What the listener was told last of checkpoints."""
    shown: dict[str, tuple[float, FragmentProgressed]] = field(default_factory=dict)
    """When a fragment's progress was looked at without a new batch, and what the listener was told last."""


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
    on_clock: Callable[[RunClock], None] | None = None,
) -> RunResult:
    """Run `application` until its input ends or the listener asks to stop, and say what it did.

    `fresh` forgets what earlier runs of it did, outputs included. `replay_from_ms` begins a new life of it,
    which takes the messages of then and later; what was published stays. `savepoint` is a place where it goes
    on from, if it has no state here. `on_clock` is given its clock before the first batch. Raises the error
    that stopped it.
    """
    config = config or Config.load(None, {}, {})
    listener = listener or QuietListener()
    started_s = time.monotonic()
    plan = make_plan(application.graph(), config[run_keys.LATENCY], config[run_keys.DELIVERY])
    refuse_shared_targets(plan)
    settings = {name: setting.value for name, setting in application.settings.items()}
    rundir = RunDirectory(config[run_keys.STATE_DIR], application.name, settings)
    rundir.acquire()
    try:
        begins = fresh or replay_from_ms is not None or savepoint is not None
        if not begins and rundir.finished is not None:
            return already_finished(plan)
        restores = 0
        while True:
            resumed = rundir.started and not begins
            try:
                execution = prepare(
                    plan, rundir, config, fresh=fresh, replay_from_ms=replay_from_ms, savepoint=savepoint
                )
                return _run(execution, listener, started_s, on_clock, resumed=resumed)
            except RestoreNeededError:
                if restores >= _MOST_RESTORES:
                    raise
                restores += 1
                fresh, begins, replay_from_ms, savepoint = False, False, None, None
    except Exception as error:
        lost = java_lost(config)
        if lost is None:
            raise
        raise lost from error
    finally:
        rundir.release()


def _run(
    execution: Execution,
    listener: RunListener,
    started_s: float,
    on_clock: Callable[[RunClock], None] | None,
    *,
    resumed: bool,
) -> RunResult:
    """Run what was prepared to its end, or until somebody asks to stop.

    Raises RestoreNeededError when it has to be prepared again, to go back to its newest checkpoint.
    """
    plan, rundir, config = execution.plan, execution.rundir, execution.context.config
    thread = ActorThread("drivetrain-run", config)
    try:
        clock = RunClock(plan, thread, ClockFile(rundir.home / "clock"), config, rundir.life.from_ms)
        notices: deque[str] = deque(execution.notices)
        queries = {f.id: execution.fragment(f.id) for f in plan.fragments}
        recoveries = Recoveries(Recovery(execution, notices.append))
        thread.spawn(lambda: FlowController(execution.flow, nobody_else), "flow")
        checkpoints = RunCheckpoints(execution, thread, clock, queries)
        requests = SavepointRequests(rundir, _saving(rundir, checkpoints, clock))
        running = Running(listener, clock, recoveries, checkpoints, requests, notices, queries)
        if on_clock is not None:
            on_clock(clock)
        listener.on_event(RunStarted(plan.application, tuple(running.queries), resumed, *_life(rundir)))
        outcome = _until_the_end(running)
        told = result(plan, running.queries, outcome, started_s, rundir.life, clock.settle(SETTLE_MS))
        told = dataclasses.replace(told, checkpoints=checkpoints.figures)
        if outcome is RunOutcome.FINISHED:
            finish(rundir, told)
        return told
    finally:
        thread.close()


def _life(rundir: RunDirectory) -> tuple[int, int | None]:
    return rundir.life.number, rundir.life.from_ms


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of `application` as Spark sees it: every operator's columns, and how it really runs.

    Starts Spark and looks at the inputs' schemas; runs nothing and writes nothing that stays.
    """
    config = config or Config.load(None, {}, {})
    plan = make_plan(application.graph(), config[run_keys.LATENCY], config[run_keys.DELIVERY])
    refuse_shared_targets(plan)
    with tempfile.TemporaryDirectory(prefix="drivetrain-plan-") as scratch:
        context = look_at(plan, RunDirectory(scratch, application.name, {}), config)
    operators = {
        id: dataclasses.replace(
            operator,
            how=context.how.get(id, (operator.how, ""))[0],
            why=context.how.get(id, ("", operator.why))[1],
            columns=context.columns.get(id),
        )
        for id, operator in plan.operators.items()
    }
    return dataclasses.replace(plan, operators=operators)


# -- while it runs -----------------------------------------------------------------------------------


def _until_the_end(running: Running) -> RunOutcome:
    told: dict[str, tuple[int, FragmentState | None]] = {}
    try:
        for query in running.queries.values():
            _tell_state(running, query, told)
            _start(running, query, told)
        while True:
            for id in running.queries:
                _look_after(running, id, told)
            is_over = all(q.state is FragmentState.FINISHED for q in running.queries.values())
            running.savepoints.look()
            if is_over and running.checkpoints.is_all_published() and not running.savepoints.is_busy:
                _tell_checkpoints(running)
                return RunOutcome.FINISHED
            _tell_checkpoints(running)
            for notices in (running.clock.notices, running.checkpoints.notices, running.notices):
                while notices:
                    running.listener.on_event(NoticeGiven(notices.popleft()))
            if running.listener.stop_requested():
                _drain(running, told)
                return RunOutcome.STOPPED
            time.sleep(POLL_S)
    finally:
        running.recoveries.close()
        for query in running.queries.values():
            query.stop()


def _saving(
    rundir: RunDirectory, checkpoints: RunCheckpoints, clock: RunClock
) -> Callable[[Path, int], Manifest]:
    """What makes savepoints of a run: at a place, of a checkpoint that is made within so many ms."""

    def make(place: Path, timeout_ms: int) -> Manifest:
        return write_savepoint(
            rundir, place, lambda: checkpoints.wait_made(timeout_ms), lambda: clock.clock_ms
        )

    return make


def _tell_checkpoints(running: Running) -> None:
    figures = running.checkpoints.figures
    if figures is not None and figures is not running.told_checkpoints:
        running.told_checkpoints = figures
        running.listener.on_event(CheckpointsProgressed(figures))


def _start(running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    try:
        query.start()
    except MessageLossError as lost:
        running.recoveries.begin(query, lost)
    _tell_state(running, query, told)


def _look_after(running: Running, id: str, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    """Poll a fragment's query, or see how its repair is; raises why it cannot go on."""
    query = running.queries[id]
    try:
        if running.recoveries.is_busy(id):
            _look_after_repair(running, query, told)
        else:
            _poll(running, query, told)
    except BaseException:
        query.state = FragmentState.FAILED
        _tell_state(running, query, told)
        raise


def _poll(running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    failure: DrivetrainError | None
    try:
        query.poll()
        _report_clock(running, query, query.waiting_for())
        _tell(running, query, told)
        failure = query.failure()
    except MessageLossError as lost:
        failure = lost
    if isinstance(failure, MessageLossError | PartitionsChangedError):
        running.recoveries.begin(query, failure)
        _tell_state(running, query, told)
    elif isinstance(failure, StateDamagedError) and running.checkpoints.can_go_back(query.fragment.id):
        raise RestoreNeededError(failure.what, where=failure.where, got=failure.got) from failure
    elif failure is not None:
        raise failure


def _look_after_repair(
    running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]
) -> None:
    id = query.fragment.id
    successor = running.recoveries.successor(id)
    if successor is None:
        _report_clock(running, query, "its restart")
        return
    running.queries[id] = successor
    running.attempts[id] = running.attempts.get(id, 0) + 1
    _start(running, successor, told)


def _report_clock(running: Running, query: FragmentQuery, waiting_for: str | None) -> None:
    attempt = running.attempts.get(query.fragment.id, 0)
    running.clock.report(query.fragment.id, attempt, query.settled_clock_ms, waiting_for)


def _drain(running: Running, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    """Let every running batch finish, then stop; what a batch had begun and not finished runs again."""
    running.recoveries.close()
    for query in running.queries.values():
        if query.state is FragmentState.RUNNING:
            query.state = FragmentState.DRAINING
            query.drain()
            _tell_state(running, query, told)
    deadline = time.monotonic() + DRAIN_S
    for query in running.queries.values():
        while query.active and query.busy and time.monotonic() < deadline:
            time.sleep(POLL_S)
        query.stop()
        if query.state in (FragmentState.DRAINING, FragmentState.RESTARTING):
            query.state = FragmentState.STOPPED
            _tell_state(running, query, told)


def _tell(running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]) -> None:
    _tell_state(running, query, told)
    batch, state = told.get(query.fragment.id, (-1, None))
    now_s = time.monotonic()
    looked_s, before = running.shown.get(query.fragment.id, (now_s, None))
    if query.batch_id == batch and (before is None or now_s - looked_s < LOOK_S):
        return
    stalled_ms, waiting_for = running.clock.stall(query.fragment.id)
    progress = dataclasses.replace(query.progressed(), stalled_ms=stalled_ms, waiting_for=waiting_for)
    told[query.fragment.id], running.shown[query.fragment.id] = (query.batch_id, state), (now_s, progress)
    if progress == before:
        return
    running.listener.on_event(progress)
    fraction = _fraction(running)
    if fraction is not None:
        running.listener.on_event(InputProgressed(fraction))


def _tell_state(
    running: Running, query: FragmentQuery, told: dict[str, tuple[int, FragmentState | None]]
) -> None:
    batch, state = told.get(query.fragment.id, (-1, None))
    if state is not query.state:
        told[query.fragment.id] = (batch, query.state)
        running.listener.on_event(FragmentStateChanged(query.fragment.id, query.state))


def _fraction(running: Running) -> float | None:
    done = total = 0
    for query in running.queries.values():
        for source in query.trunk.sources:
            position = query.inputs.position(source)
            if position.total is None:
                return None
            done, total = done + position.done, total + position.total
    return min(1.0, done / total) if total else None
