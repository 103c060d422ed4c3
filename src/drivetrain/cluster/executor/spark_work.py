"""An executor's work with Spark: prepare the application, create attempts, conclude. It blocks.

Problem: starting Spark takes seconds, compiling takes more, and an executor must answer its application
master meanwhile. One executor prepares an application, the others join it, and an executor that dies is
replaced by one that joins in the middle.

Design: all methods are called in threads, one call at a time; the actor in `executor` only requests them and
gets the results. The application is loaded once in this process, from the unpacked archive.

Invariants:
1. An application is prepared once per application master: a repeated request joins, so that the state is not
   deleted twice.
2. The state directory stays locked, shared with the other executors, until the process ends.

3. An application that has changed while it ran continues with the version in force, whatever its file says.

Called by `executor`, `change_checks` and `fragment_attempt`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from drivetrain.api import Application
from drivetrain.cluster.executor.executor_copies import ExecutorCopies
from drivetrain.cluster.executor.failure_views import HookError
from drivetrain.cluster.executor.planned_to_run import planned_to_run
from drivetrain.cluster.executor.running_versions import RunningVersions
from drivetrain.cluster.executor.version_program import VersionEdit, made_version
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.changing import CheckVersion, VersionReport
from drivetrain.cluster.messages.executing import Conclude, Prepared, PrepareDeferred
from drivetrain.cluster.messages.following import OutputView
from drivetrain.code.application_file import load_application, user_traceback
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.core.change.change_state import not_kept
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.checkpoint.transaction import Command
from drivetrain.core.job.run_progress import OutputResult, ProcessorResult, RunOutcome, RunResult
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.counts import CountRule, rules_of
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.private_files import Writers
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.sink_places import refuse_shared_places
from drivetrain.runtime.state_place import state_home
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participants import SendAnswer, SendCommand
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run import preparing
from drivetrain.spark.run.application_versions import ApplicationVersions, add_later_schemas
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.host import SPARK, Host
from drivetrain.spark.run.recovery import RecoveryThread, SteppedRecovery, SteppedWork, SteppingThread
from drivetrain.spark.run.results import is_source, outputs
from drivetrain.spark.run.subscribing import awaited
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks
from drivetrain.spark.session import spark_session as spark_session

log = logging.getLogger(__name__)

PREDECESSOR_S = 45.0
"""How long a predecessor that was replaced may hold its locks; its worker kills it sooner."""


class SparkWork:
    """The application of one executor, on `host`. `preparer` identifies one application master process.

    `begin_recovery` begins a recovery, whose steps it takes, by default in a thread.
    """

    def __init__(
        self,
        launch: LaunchFile,
        config: Config,
        preparer: Preparer,
        host: Host = SPARK,
        begin_recovery: Callable[[str, Steps[FragmentQuery]], SteppedRecovery] = RecoveryThread,
    ) -> None:
        self.config = config
        self.begin_recovery = begin_recovery
        """For the drivers of this executor's attempts."""
        self.begin_reading: Callable[[str, Steps[None]], SteppedWork] = SteppingThread
        """Begins to read former messages for a fragment, by default in a thread."""
        self.compiling = threading.Lock()
        """Held while a fragment is compiled, as fragments share objects that compiling creates."""
        self.copies = ExecutorCopies(config, Claimant(launch.submission, launch.epoch))
        """The copied checkpoints, if they are the state."""
        self.flow = FlowBook(config, epoch=launch.epoch)
        """The ends of channels in this process."""
        self.checkpoint_ways: tuple[SendCommand, SendAnswer] | None = None
        """Functions that send to fragments of other processes, and to the coordinator of checkpoints."""
        self.tell_seen: Callable[[VersionReport], None] = lambda _: None
        """Sends what an attempt has seen of the versions."""
        self.versions: RunningVersions | None = None
        """The versions of the graph; None before this executor has prepared or joined the application."""
        self._launch = launch
        self._preparer = preparer
        self._host = host
        self.make_version: Callable[[CheckVersion], tuple[GraphVersion, bytes]] = self._make_version
        """Makes the record and the code of a proposed version, by default in a process of its own."""
        self._lock = threading.RLock()
        self._application: Application | None = None
        self._plan: Plan | None = None
        self._rundir: RunDirectory | None = None
        self._execution: Execution | None = None
        self._prepared: Prepared | None = None

    def load(self) -> Plan:
        """Load the application before anything is requested; raises errors in its file."""
        with self._lock:
            return self._load()[1]

    def begin_engine(self) -> None:
        """Load the application and start Spark before anything is requested; raises what `prepare` raises.

        Not with a cluster of Spark, where an executor without fragments would take cores from others.
        """
        if not self.config[spark_keys.MASTER].startswith("local"):
            return
        with self._lock:
            _, plan, _ = self._load()
            self._host.engine(plan, self.config)

    # -- requests of the application master --------------------------------------------------------

    def prepare(
        self, *, fresh: bool, replay_from_ms: int | None = None, savepoint: str | None = None
    ) -> Prepared | PrepareDeferred:
        """Load the application, start Spark, check everything and create its state; or join.

        It may have to wait for another application, and is then asked again. Raises errors in the
        application, and `UnavailableError` when another process runs it.
        """
        with self._lock:
            if self._prepared is not None:
                return self._prepared
            _, plan, rundir = self._load()
            first = rundir.acquire_or_share(self._preparer, PREDECESSOR_S, fresh=fresh)
            try:
                if first and savepoint is not None and rundir.preparation.has_begun_state:
                    rundir.clear()  # nothing has run: the request would no longer be there
                is_over = first and self.copies.begin(rundir, PREDECESSOR_S, fresh=fresh, savepoint=savepoint)
                waits = None
                if first and savepoint is None:  # which has what sources had noted
                    waits = awaited(plan.graph, rundir, self.config, starts_over=fresh)
                if waits is not None:
                    rundir.release()
                    return PrepareDeferred(waits)
                self._prepared = self._prepare(
                    plan,
                    rundir,
                    fresh=fresh and first,
                    replay_from_ms=replay_from_ms if first else None,
                    savepoint=savepoint if first else None,
                    first=first,
                    is_over=is_over,
                )
            except BaseException:
                rundir.release()
                raise
            self._rundir = rundir
            return self._prepared

    def _prepare(
        self,
        plan: Plan,
        rundir: RunDirectory,
        *,
        fresh: bool,
        replay_from_ms: int | None,
        savepoint: str | None,
        first: bool,
        is_over: bool,
    ) -> Prepared:
        own = plan
        plan, record = self._in_force(own, rundir, from_file=fresh or savepoint is not None, first=first)
        begins = fresh or replay_from_ms is not None or savepoint is not None
        finished = not begins and (is_over or rundir.finished is not None)
        resumed = not begins and rundir.started
        if finished:
            if first:
                rundir.preparation.note(self._preparer, rundir.preparation.schemas)
        elif first:
            prepare = partial(
                preparing.prepare,
                rundir=rundir,
                config=self.config,
                flow=self.flow,
                host=self._host,
                copies=self.copies.copies,
                replanned=lambda: self._in_force(own, rundir, first=True),
            )
            if replay_from_ms is not None and not fresh and self.copies.has_state_elsewhere(rundir):
                prepare(plan, version=record)  # what its last checkpoint has is published from here
                plan, record = self._in_force(own, rundir, first=True)
            self._execution = prepare(
                plan, version=record, fresh=fresh, replay_from_ms=replay_from_ms, savepoint=savepoint
            )
            if savepoint is not None:
                self.copies.copy_life(rundir)
            self.copies.watch()
            self._bind(self._execution)
            if self._execution.versions is not None:
                WithdrawnSinks(self._execution.versions, {}).resume()
                self._execution.notices += self._execution.versions.notices
                self._execution.versions.notices.clear()
            rundir.preparation.note(self._preparer, self._execution.schemas())
        else:
            self._join(plan, rundir, record)
        if first:
            rundir.share()
        views = shown(plan)
        life = rundir.life
        notices: tuple[str, ...] = ()
        if self._execution is not None:
            notices = tuple(self._execution.notices)
        master = self.config[spark_keys.MASTER]
        rules = rules_of(plan.graph)
        state = (views, life.number, life.from_ms, notices, rules)
        return Prepared(finished, resumed, master, *state, self._shown_before())

    def _shown_before(self) -> tuple[tuple[OutputView, ...], dict[str, CountRule]] | None:
        """The outputs and rules for the status after a rollback; None if no version is on trial."""
        if self.versions is None:
            return None
        stored, record = self.versions.stored, self.versions.versions.in_force.record
        try:
            before = stored.trial_of(record)
            if before is None:
                return None
            plan = self.versions.versions.of_number(before.number).plan
        except DrivetrainError as error:
            log.warning("the version before version %d cannot be shown: %s", record.number, error)
            return None
        return shown(plan), rules_of(plan.graph)

    def _in_force(
        self, plan: Plan, rundir: RunDirectory, *, from_file: bool = False, first: bool = False
    ) -> tuple[Plan, GraphVersion | None]:
        """See `planned_to_run`; only the `first` executor may have to take the subscriptions over."""
        if not first:
            plan, _ = preparing.with_readers(plan, rundir, self.config, None, fresh=False)
        if from_file or not self._has_changed_it(rundir):
            return plan, None
        return planned_to_run(plan, rundir, self.config)

    def _has_changed_it(self, rundir: RunDirectory) -> bool:
        """Whether the versions here are of this submission, which may have changed while it ran."""
        by = rundir.preparation.last
        return self.copies.are_changes_own or (by is not None and by.app_id == self._preparer.app_id)

    def _join(self, plan: Plan, rundir: RunDirectory, record: GraphVersion | None) -> Execution:
        self.copies.join(rundir)
        self.copies.watch()
        execution = preparing.join(plan, rundir, self.config, self.flow, self._host)
        execution.record = record or rundir.versions.in_force()
        add_later_schemas(execution.context)
        self._execution = execution
        self._bind(execution)
        return execution

    def _bind(self, execution: Execution) -> None:
        if self.checkpoint_ways is not None:
            execution.checkpoints.send, execution.checkpoints.answer = self.checkpoint_ways
        if execution.record is not None:
            execution.versions = ApplicationVersions(execution, execution.record)
            self.versions = RunningVersions(execution, self.compiling, self.begin_reading)

    def take_command(self, fragment: str, input: str, command: Command) -> None:
        """Handle a checkpoint command for a fragment; ignored if it is not here. From any thread."""
        execution = self._execution
        if execution is not None:
            execution.checkpoints.receive(fragment, input, command)

    def execution(self) -> Execution:
        """The application, ready to run its fragments; joins what another executor has prepared.

        Raises `UnavailableError` when none has.
        """
        with self._lock:
            if self._execution is None:
                rundir = self._joined()
                _, plan, _ = self._load()
                plan, record = self._in_force(plan, rundir)
                self._join(plan, rundir, record)
                assert self._execution is not None
            return self._execution

    def conclude(self, message: Conclude) -> str:
        """Record that the application has finished, and call its hooks; returns what they printed.

        Raises `HookError` with the traceback of a hook that raised.
        """
        with self._lock:
            rundir = self._joined()
            application, plan, _ = self._load()
            plan = plan if self.versions is None else self.versions.plan
            processors = tuple(
                ProcessorResult(id, *counts, is_source=is_source(plan, id))
                for id, counts in message.counts.items()
            )
            written = tuple(
                OutputResult(o.processor, o.target, o.messages, o.guarantee) for o in message.outputs
            )
            result = RunResult(
                application=plan.application,
                outcome=RunOutcome.FINISHED,
                duration_ms=message.duration_ms,
                processors=processors,
                outputs=written,
                clock_ms=message.clock_ms,
            )
            preparing.finish(rundir, result, self.copies.newest(rundir))
            try:
                return preparing.printed_by_hooks(application, result)
            except DrivetrainError:
                raise
            except Exception as error:
                raise HookError(
                    f"{type(error).__name__}: {error}",
                    where="when_finished",
                    user_traceback=user_traceback(error),
                ) from error

    def _make_version(self, message: CheckVersion) -> tuple[GraphVersion, bytes]:
        """The record and the code of the version in the archive of a proposal, or of the edit in force."""
        application, _, rundir = self._load()
        stored, edit = rundir.versions, None
        if message.edit is not None:
            base = stored.code(message.against)
            if base is None:
                raise not_kept(message.against, application.name)
            edit = VersionEdit(message.edit, message.against, base)
        return made_version(
            stored.proposed_archive(message.id),
            message.code,
            edit,
            Path(self._launch.work_directory) / f"proposed-{message.id}",
            self._launch,
            (application.name, application.naming_settings),
        )

    def close(self) -> None:
        """Stop Spark."""
        self.copies.close()
        spark_session.stop()

    # -- inside --------------------------------------------------------------------------------------

    def _load(self) -> tuple[Application, Plan, RunDirectory]:
        spec = self._launch.spec
        if self._application is None or self._plan is None:
            path = str(Path(self._launch.code_directory) / spec.file)
            target = path if spec.target is None else f"{path}:{spec.target}"
            application = load_application(target, spec.settings)
            plan = refuse_shared_places(configured_plan(application.graph(), self.config))
            self._application, self._plan = application, plan
        naming = self._application.name, self._application.naming_settings
        writers = Writers(self.config[run_keys.WRITERS])
        rundir = RunDirectory(state_home(self.config), *naming, writers, self._launch.submission)
        return self._application, self._plan, rundir

    def _joined(self) -> RunDirectory:
        """The state directory, shared with the other executors of this application master."""
        if self._rundir is None:
            _, _, rundir = self._load()
            deadline = time.monotonic() + PREDECESSOR_S
            # An executor prepares it before any fragment is deployed; this waits only for its last steps.
            while rundir.acquire_or_share(self._preparer, PREDECESSOR_S):
                rundir.release()
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        "this application has not been prepared",
                        where=rundir.app_id,
                        remedy="its application master prepares it and then tries again",
                    )
                time.sleep(0.1)
            self._rundir = rundir
        return self._rundir


def shown(plan: Plan) -> tuple[OutputView, ...]:
    """The outputs of a plan, for the application's status."""
    return tuple(OutputView(o.processor, o.target, o.messages, o.guarantee) for o in outputs(plan, {}))
