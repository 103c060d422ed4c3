"""Run an application embedded: every fragment in this process, on one Spark session.

The order of things: plan, lock the state directory, start Spark, compile every fragment and check
every source and sink before anything is written, start the queries in topological order, then poll
(`embedded_loop`) until all have finished, one has failed, or somebody asks to stop.

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
from functools import partial
from pathlib import Path

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.application import Application
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.job.run_progress import (
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
from drivetrain.spark.repair.recovery import Recovering, Recovery, Underway
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.embedded_loop import SETTLE_MS, EmbeddedLoop
from drivetrain.spark.run.execution import Execution, finish, look_at, prepare, refuse_shared_targets
from drivetrain.spark.run.fragment_driver import POLL_S, FragmentDriver
from drivetrain.spark.run.results import already_finished, result
from drivetrain.spark.run.run_clock import RunClock
from drivetrain.spark.session.lost_java import java_lost

_MOST_RESTORES = 5
"""How often one run goes back to a checkpoint: damage that comes again and again is the disk's."""


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
        loop = assembled(execution, listener, thread)
        if on_clock is not None:
            on_clock(loop.clock)
        listener.on_event(RunStarted(plan.application, tuple(loop.drivers), resumed, *_life(rundir)))
        outcome = _until_the_end(loop)
        ended = {id: driver.query for id, driver in loop.drivers.items()}
        told = result(plan, ended, outcome, started_s, rundir.life, loop.clock.settle(SETTLE_MS))
        told = dataclasses.replace(told, checkpoints=loop.checkpoints.figures)
        if outcome is RunOutcome.FINISHED:
            finish(rundir, told)
        return told
    finally:
        thread.close()


def assembled(
    execution: Execution,
    listener: RunListener,
    thread: ActorThread,
    begin: Callable[[str, Steps[FragmentQuery]], Underway] = Recovering,
) -> EmbeddedLoop:
    """What runs an application that was prepared, not started yet; its actors are in `thread`.

    `begin` begins the recovery of a fragment.
    """
    plan, rundir, config = execution.plan, execution.rundir, execution.context.config
    clock = RunClock(plan, thread, ClockFile(rundir.home / "clock"), config, rundir.life.from_ms)
    notices: deque[str] = deque(execution.notices)
    queries = {f.id: execution.fragment(f.id) for f in plan.fragments}
    thread.spawn(lambda: FlowController(execution.flow, nobody_else), "flow")
    checkpoints = RunCheckpoints(execution, thread, queries)
    requests = SavepointRequests(rundir, _saving(rundir, checkpoints, clock))
    recovery = Recovery(execution, notices.append)
    drivers = {
        id: FragmentDriver(query, recovery, partial(checkpoints.can_go_back, id), begin)
        for id, query in queries.items()
    }
    return EmbeddedLoop(listener, clock, checkpoints, requests, notices, drivers)


def _until_the_end(loop: EmbeddedLoop) -> RunOutcome:
    with ExitStack() as ends:  # all are stopped, also when one of them cannot be
        for driver in loop.drivers.values():
            ends.callback(driver.stop)
        loop.start()
        while (outcome := loop.step(monotonic_ms())) is None:
            time.sleep(POLL_S)
        return outcome


def _saving(
    rundir: RunDirectory, checkpoints: RunCheckpoints, clock: RunClock
) -> Callable[[Path, int], Manifest]:
    """What makes savepoints of a run: at a place, of a checkpoint that is made within so many ms."""

    def make(place: Path, timeout_ms: int) -> Manifest:
        return write_savepoint(
            rundir, place, lambda: checkpoints.wait_made(timeout_ms), lambda: clock.clock_ms
        )

    return make


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
