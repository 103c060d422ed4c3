"""Run an application embedded: every fragment in this process, on one Spark session.

The sequence: plan, lock the state directory, start Spark, compile every fragment and check
every source and sink before anything is written, start the queries in topological order, then poll
(`embedded_loop`) until all have finished, one has failed, or a stop is requested.

What if we die here: at any point the same command continues from Spark's checkpoints; sinks and
channels skip what they have. `application.json` has "finished" only after the last output.
"""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.api.application import Application
from drivetrain.api.graphs.graph import Graph
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.job.run_progress import (
    NoticeGiven,
    QuietListener,
    RunListener,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.durable import disk_full, is_full
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.private_files import Writers
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint import write_savepoint
from drivetrain.runtime.checkpoints.savepoint_manifest import Manifest
from drivetrain.runtime.checkpoints.savepoint_requests import SavepointRequests
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.runtime.control_socket import ControlSocket
from drivetrain.runtime.graph_versions import KeptVersion
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.sink_places import refuse_shared_places
from drivetrain.runtime.state_place import state_home
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.flow.flow_actor import FlowController, drop_message
from drivetrain.spark.prepare.graph_code import graph_from_code
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run.application_versions import ApplicationVersions
from drivetrain.spark.run.configuring import notices_of_changed
from drivetrain.spark.run.control_answers import ControlAnswers
from drivetrain.spark.run.copying import settle_with_store
from drivetrain.spark.run.embedded_loop import SETTLE_MS, EmbeddedLoop
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.fragment_changes import FragmentChanges
from drivetrain.spark.run.fragment_driver import POLL_S, FragmentDriver
from drivetrain.spark.run.live_changes import LiveChanges
from drivetrain.spark.run.outside_repairs import OutsideRepairs
from drivetrain.spark.run.preparing import Replan, finish, look_at, prepare
from drivetrain.spark.run.recovery import (
    Recovery,
    RecoveryThread,
    SteppedRecovery,
    SteppedWork,
    SteppingThread,
)
from drivetrain.spark.run.results import already_finished, as_compiled, result
from drivetrain.spark.run.run_checkpoints import RunCheckpoints
from drivetrain.spark.run.run_clock import RunClock
from drivetrain.spark.run.run_reporter import RunReporter
from drivetrain.spark.run.stopped_producers import StoppedProducers
from drivetrain.spark.run.subscribing import WaitOptions
from drivetrain.spark.run.trunk_changes import first_context
from drivetrain.spark.session.lost_java import java_lost


@dataclasses.dataclass(frozen=True)
class Running:
    """The parts of a running application that programs may use."""

    clock: RunClock
    changes: LiveChanges


MOST_RESTORES = 5
"""How often one run goes back to a checkpoint: repeated damage has a cause that a restore cannot repair."""


def run(
    application: Application,
    config: Config | None = None,
    listener: RunListener | None = None,
    *,
    fresh: bool = False,
    replay_from_ms: int | None = None,
    savepoint: str | None = None,
    version: KeptVersion | None = None,
    on_start: Callable[[Running], None] | None = None,
) -> RunResult:
    """Run `application` until its input ends or the listener requests a stop, and return the result.

    `fresh` deletes the state and outputs of earlier runs. `replay_from_ms` begins a new life, which takes the
    messages from that time on; published results stay. `savepoint` is the directory of a savepoint to
    continue from, if there is no state yet. `version` continues with the graph of that version, not with
    the application's. `on_start` receives the clock and the changes of the run
    before its first batch. Raises the error that stopped the run.
    """
    config = config or Config.load(None, {}, {})
    listener = listener or QuietListener()
    started_s = time.monotonic()
    begins = _begins(fresh or replay_from_ms is not None or savepoint is not None, version)
    own = _planned(application.graph(), config)
    settings, writers = application.naming_settings, Writers(config[run_keys.WRITERS])
    rundir = RunDirectory(state_home(config), application.name, settings, writers)
    copies = CopiedCheckpoints.of(rundir, config)
    rundir.acquire(fresh=fresh)
    try:
        is_finished = settle_with_store(
            rundir, copies, fresh=fresh, replay_from_ms=replay_from_ms, savepoint=savepoint
        )
        plan = _plan_of(own, version, rundir, config)
        if not begins and (is_finished or rundir.finished is not None):
            return already_finished(plan)
        resumed = not begins and rundir.started

        waiting = WaitOptions(lambda why: listener.on_event(NoticeGiven(why)), listener.stop_requested)
        replanned: Replan = lambda: (_plan_of(own, version, rundir, config), None)  # noqa: E731 - short
        ready = partial(prepare, rundir=rundir, config=config, copies=copies, replanned=replanned)
        begin = partial(
            ready, plan, fresh=fresh, replay_from_ms=replay_from_ms, savepoint=savepoint, waiting=waiting
        )

        def again(changed: Plan, version: GraphVersion | None) -> Execution:
            return ready(changed, version=version)

        return _run_with_restores(begin, again, plan, rundir, listener, started_s, on_start, resumed=resumed)
    except Exception as error:
        rundir.ownership.explain(error)
        cause = _cause(config, error)
        if cause is None:
            raise
        raise cause from error
    finally:
        if copies is not None:
            copies.close()
        rundir.release()


def _cause(config: Config, error: Exception) -> DrivetrainError | None:
    """The error to show instead of one that follows from a lost Java process or a full disk; None: itself."""
    lost = java_lost(config, error)
    if lost is None and is_full(error):
        return disk_full(error, "what the application writes", getattr(error, "filename", None))
    return lost


def _begins(begins: bool, version: KeptVersion | None) -> bool:
    """`begins`; raises `UserError` for a new beginning with a version of what was before."""
    if begins and version is not None:
        raise UserError(
            "a version can only continue its own state",
            where="run",
            got="a version, and fresh, replay_from or from_savepoint",
            remedy="leave one of them out",
        )
    return begins


def _plan_of(own: Plan, version: KeptVersion | None, rundir: RunDirectory, config: Config) -> Plan:
    """The plan of a version, from the code that was kept with it; without one, the application's `own`."""
    if version is None:
        return own
    versions = rundir.versions
    known = versions.numbers()
    record = None
    if version == "in-force":
        record = versions.in_force()
    elif version in known:
        record = versions.version(version)
    code = None if record is None else versions.code(record.number)
    if record is None or code is None:
        raise UserError(
            "there is no such version to continue with",
            where=rundir.app_id,
            expected=", ".join(map(str, known)) or "an application that has run",
            got="none" if record is None else f"version {record.number}, whose code was not kept",
            remedy="see drivetrain versions, or run the application's file without --version",
        )
    return _planned(graph_from_code(code, f"version {record.number}"), config)


def _planned(graph: Graph, config: Config) -> Plan:
    """The plan of a graph, whose sinks have places of their own."""
    return refuse_shared_places(configured_plan(graph, config))


def _run_with_restores(
    begin: Callable[[], Execution],
    again: Callable[[Plan, GraphVersion | None], Execution],
    plan: Plan,
    rundir: RunDirectory,
    listener: RunListener,
    started_s: float,
    on_start: Callable[[Running], None] | None,
    *,
    resumed: bool,
) -> RunResult:
    """Run what `begin` prepares; if it has to go back to its newest checkpoint, `again` prepares it."""
    execution: Execution | None = None
    version: GraphVersion | None = None
    for restores in itertools.count():
        try:
            execution = begin() if not restores else again(plan, version)
            return _run(execution, listener, started_s, on_start, resumed=resumed or restores > 0)
        except RestoreNeededError:
            if restores >= MOST_RESTORES:
                raise
            if execution is not None:  # it may have changed
                plan, version = execution.plan, rundir.versions.in_force()
    raise AssertionError("it counts without an end")


def _run(
    execution: Execution,
    listener: RunListener,
    started_s: float,
    on_start: Callable[[Running], None] | None,
    *,
    resumed: bool,
) -> RunResult:
    """Run a prepared application to its end, or until a stop is requested.

    Raises RestoreNeededError when it has to be prepared again, to go back to its newest checkpoint.
    """
    plan, rundir, config = execution.plan, execution.rundir, execution.context.config
    thread = ActorThread("drivetrain-run", config)
    control: ControlSocket | None = None
    reporter = RunReporter(execution, listener)
    try:
        loop = assembled(execution, reporter, thread)
        control = _listening(rundir, loop, reporter)
        reporter.begin(loop)
        if on_start is not None:
            on_start(Running(loop.clock, loop.changes))
        reporter.on_event(RunStarted(plan.application, tuple(loop.drivers), resumed, *_life(rundir)))
        outcome = _until_the_end(loop)
        run_result = concluded(execution, loop, outcome, started_s)
        if outcome is RunOutcome.FINISHED:
            finish(rundir, run_result, execution.copies)
    except RestoreNeededError:
        reporter.interrupted()
        raise
    except BaseException as error:
        reporter.end(None, error)
        raise
    else:
        reporter.end(outcome, None)
        return run_result
    finally:
        if control is not None:
            control.close()
        thread.close()


def _listening(rundir: RunDirectory, loop: EmbeddedLoop, reporter: RunReporter) -> ControlSocket | None:
    """The socket through which other processes watch and change the application; None where sockets are
    impossible, as on some file systems: the run continues without one."""
    try:
        return ControlSocket(rundir.path, ControlAnswers(rundir, loop.changes, reporter).answer)
    except DrivetrainError as error:
        loop.changes.versions.notices.append(f"no command and no console can reach this run: {error}")
        return None


def assembled(
    execution: Execution,
    listener: RunListener,
    thread: ActorThread,
    begin: Callable[[str, Steps[FragmentQuery]], SteppedRecovery] = RecoveryThread,
    read: Callable[[str, Steps[None]], SteppedWork] = SteppingThread,
) -> EmbeddedLoop:
    """The loop that runs a prepared application, not started yet; its actors are in `thread`.

    `begin` starts the recovery of a fragment, `read` has messages from before a change read again.
    """
    plan, rundir, config = execution.plan, execution.rundir, execution.context.config
    clock_file = ClockFile(rundir.home / "clock", rundir.ownership.require)
    clock = RunClock(plan, thread, clock_file, config, rundir.life.from_ms)
    notices: deque[str] = deque(execution.notices)
    assert execution.record is not None, "an application that another process has prepared"
    versions = execution.versions = ApplicationVersions(execution, execution.record)
    execution.first_version = partial(first_context, versions)
    queries = {f.id: execution.fragment(f.id) for f in plan.fragments}
    thread.spawn(lambda: FlowController(execution.flow, drop_message), "flow")
    checkpoints = RunCheckpoints(execution, thread, queries)
    requests = SavepointRequests(rundir, _saving(rundir, checkpoints, clock))
    recovery = Recovery(execution, notices.append)

    def drive(query: FragmentQuery) -> FragmentDriver:
        return FragmentDriver(query, recovery, partial(checkpoints.can_go_back, query.fragment.id), begin)

    drivers = {id: drive(query) for id, query in queries.items()}
    fragments = FragmentChanges(execution, drivers, drive, clock, checkpoints)
    changes = LiveChanges(execution, drivers, fragments, read)
    notices.extend(notices_of_changed(execution.versions))
    outside = OutsideRepairs(drivers, recovery), StoppedProducers(execution, drivers)
    return EmbeddedLoop(listener, clock, checkpoints, requests, notices, drivers, changes, *outside)


def concluded(execution: Execution, loop: EmbeddedLoop, outcome: RunOutcome, started_s: float) -> RunResult:
    """The result of a run that has ended, and that began at `started_s` (monotonic seconds)."""
    ended = {id: driver.query for id, driver in loop.drivers.items()}
    clock_ms = loop.clock.settle(SETTLE_MS)
    of_run = result(execution.plan, ended, outcome, started_s, execution.rundir.life, clock_ms)
    version = loop.changes.state.version
    return dataclasses.replace(of_run, checkpoints=loop.checkpoints.figures, version=version)


def _until_the_end(loop: EmbeddedLoop) -> RunOutcome:
    with ExitStack() as ends:  # all are stopped, even if one of them cannot be
        ends.callback(loop.changes.close)
        ends.callback(loop.repairs.close)
        ends.callback(loop.checkpoints.close)
        for driver in loop.drivers.values():
            ends.callback(driver.stop)
        loop.start()
        while (outcome := loop.step(monotonic_ms())) is None:
            time.sleep(POLL_S)
        return outcome


def _saving(
    rundir: RunDirectory, checkpoints: RunCheckpoints, clock: RunClock
) -> Callable[[Path, int], Manifest]:
    """A function that writes savepoints of a run: the place, and how many ms the checkpoint may take."""

    def make(place: Path, timeout_ms: int) -> Manifest:
        return write_savepoint(
            rundir, place, lambda: checkpoints.wait_made(timeout_ms), lambda: clock.clock_ms
        )

    return make


def _life(rundir: RunDirectory) -> tuple[int, int | None]:
    return rundir.life.number, rundir.life.from_ms


def analysed(application: Application, config: Config | None = None) -> Plan:
    """The plan of `application` as Spark analyses it: every operator's columns, and how it really runs.

    Starts Spark and reads the inputs' schemas; runs nothing and writes only temporary files.
    """
    config = config or Config.load(None, {}, {})
    plan = _planned(application.graph(), config)
    with tempfile.TemporaryDirectory(prefix="drivetrain-plan-") as scratch:
        context = look_at(plan, RunDirectory(scratch, application.name, {}), config)
    return as_compiled(context)
