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
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.run_progress import (
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
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.private_files import Writers
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.checkpoints.savepoint import write_savepoint
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.runtime.durable import disk_full, is_full
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.checkpoints.run_checkpoints import RunCheckpoints
from drivetrain.spark.checkpoints.savepoint_requests import SavepointRequests
from drivetrain.spark.flow.flow_actor import FlowController, nobody_else
from drivetrain.spark.repair.recovery import Recovery
from drivetrain.spark.run.execution import Execution, finish, look_at, prepare, refuse_shared_targets
from drivetrain.spark.run.fragment_driver import DRAIN_S, POLL_S, FragmentDriver
from drivetrain.spark.run.results import already_finished, result
from drivetrain.spark.run.run_clock import RunClock
from drivetrain.spark.session.lost_java import java_lost

_MOST_RESTORES = 5
"""How often one run goes back to a checkpoint: damage that comes again and again is the disk's."""
SETTLE_MS = 10_000
"""How long the end of a run waits until its last checkpoint is published, and until its clock is on disk."""
LOOK_S = 0.5
"""How often a fragment is looked at between its batches: it may be blocked, and what waits for it grows."""


@dataclass
class Running:
    """The fragments of an application by id, in topological order, its clock, and who watches them."""

    listener: RunListener
    clock: RunClock
    checkpoints: RunCheckpoints
    savepoints: SavepointRequests
    notices: deque[str]
    """What repairs have said and the listener was not told yet."""
    drivers: dict[str, FragmentDriver]
    told_checkpoints: CheckpointFigures | None = None
    """What the listener was told last of checkpoints."""
    told: dict[str, tuple[int, FragmentState | None]] = field(default_factory=dict)
    """The batch and the state of each fragment that the listener was told last."""
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
    settings = application.naming_settings
    rundir = RunDirectory(
        config[run_keys.STATE_DIR], application.name, settings, Writers(config[run_keys.WRITERS])
    )
    rundir.acquire(fresh=fresh)
    try:
        begins = fresh or replay_from_ms is not None or savepoint is not None
        if not begins and rundir.finished is not None:
            return already_finished(plan)
        restores = 0
        while True:
            resumed = not begins and rundir.started
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
        lost = java_lost(config, error)
        if lost is None and is_full(error):
            raise disk_full(error, "what the application writes", getattr(error, "filename", None)) from error
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
        thread.spawn(lambda: FlowController(execution.flow, nobody_else), "flow")
        checkpoints = RunCheckpoints(execution, thread, queries)
        requests = SavepointRequests(rundir, _saving(rundir, checkpoints, clock))
        recovery = Recovery(execution, notices.append)
        drivers = {
            id: FragmentDriver(query, recovery, partial(checkpoints.can_go_back, id))
            for id, query in queries.items()
        }
        running = Running(listener, clock, checkpoints, requests, notices, drivers)
        if on_clock is not None:
            on_clock(clock)
        listener.on_event(RunStarted(plan.application, tuple(running.drivers), resumed, *_life(rundir)))
        outcome = _until_the_end(running)
        ended = {id: driver.query for id, driver in drivers.items()}
        told = result(plan, ended, outcome, started_s, rundir.life, clock.settle(SETTLE_MS))
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
    drivers = running.drivers.values()
    with ExitStack() as ends:  # all are stopped, also when one of them cannot be
        for driver in drivers:
            ends.callback(driver.stop)
        for driver in drivers:
            _tell_state(running, driver.query)
            driver.start()
            _tell_state(running, driver.query)
        while True:
            for driver in drivers:
                _step(running, driver)
            is_over = all(driver.is_finished for driver in drivers)
            running.savepoints.look()
            if is_over and running.checkpoints.is_all_published() and not running.savepoints.is_busy:
                _tell_checkpoints(running)
                return RunOutcome.FINISHED
            _tell_checkpoints(running)
            for notices in (running.clock.notices, running.checkpoints.notices, running.notices):
                while notices:
                    running.listener.on_event(NoticeGiven(notices.popleft()))
            if running.listener.stop_requested():
                _drain(running)
                return RunOutcome.STOPPED
            time.sleep(POLL_S)


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


def _step(running: Running, driver: FragmentDriver) -> None:
    """Look after a fragment once, and tell what is new; raises why it cannot go on."""
    try:
        driver.step(lambda query: _tell(running, query))
    except BaseException:
        driver.query.state = FragmentState.FAILED
        _tell_state(running, driver.query)
        raise
    query = driver.query
    running.clock.report(driver.fragment, driver.queries_before, query.settled_clock_ms, driver.waiting_for())
    _tell_state(running, query)


def _drain(running: Running) -> None:
    """Let every running batch finish, then stop; what a batch had begun and not finished runs again."""
    for driver in running.drivers.values():
        driver.drain()
        _tell_state(running, driver.query)
    deadline_s = time.monotonic() + DRAIN_S
    for driver in running.drivers.values():
        driver.wait_drained(deadline_s)
    # So that the newest checkpoint is all of the application, for instance for a savepoint.
    deadline_s = time.monotonic() + SETTLE_MS / 1000
    while running.checkpoints.is_publishing() and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    for driver in running.drivers.values():
        driver.stop()
        _tell_state(running, driver.query)


def _tell(running: Running, query: FragmentQuery) -> None:
    _tell_state(running, query)
    batch, state = running.told.get(query.fragment.id, (-1, None))
    now_s = time.monotonic()
    looked_s, before = running.shown.get(query.fragment.id, (now_s, None))
    if query.batch_id == batch and (before is None or now_s - looked_s < LOOK_S):
        return
    stalled_ms, waiting_for = running.clock.stall(query.fragment.id)
    progress = dataclasses.replace(query.progressed(), stalled_ms=stalled_ms, waiting_for=waiting_for)
    running.told[query.fragment.id] = (query.batch_id, state)
    running.shown[query.fragment.id] = (now_s, progress)
    if progress == before:
        return
    running.listener.on_event(progress)
    fraction = _fraction(running)
    if fraction is not None:
        running.listener.on_event(InputProgressed(fraction))


def _tell_state(running: Running, query: FragmentQuery) -> None:
    batch, state = running.told.get(query.fragment.id, (-1, None))
    if state is not query.state:
        running.told[query.fragment.id] = (batch, query.state)
        running.listener.on_event(FragmentStateChanged(query.fragment.id, query.state))


def _fraction(running: Running) -> float | None:
    done = total = 0
    for query in (driver.query for driver in running.drivers.values()):
        for source in query.trunk.sources:
            position = query.inputs.position(source)
            if position.total is None:
                return None
            done, total = done + position.done, total + position.total
    return min(1.0, done / total) if total else None
