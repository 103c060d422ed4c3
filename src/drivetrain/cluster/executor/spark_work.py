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

Called by `executor` and `fragment_attempt`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from drivetrain.api import Application
from drivetrain.cluster.executor.failure_views import HookError
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.executing import Conclude, Prepared
from drivetrain.cluster.messages.following import OutputView
from drivetrain.code.application_file import load_application, user_traceback
from drivetrain.config import Config
from drivetrain.config.catalog import run as run_keys
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.core.checkpoint.transaction import Command
from drivetrain.core.job.run_progress import OutputResult, ProcessorResult, RunOutcome, RunResult
from drivetrain.core.plan.configured import configured_plan
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.private_files import Writers
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.checkpoints.participants import Answer, Send
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.prepare.opened_sinks import refuse_shared_targets
from drivetrain.spark.repair.recovery import Recovering, Underway
from drivetrain.spark.repair.steps import Steps
from drivetrain.spark.run import execution as spark_execution
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.host import SPARK, Host
from drivetrain.spark.run.results import is_source, outputs
from drivetrain.spark.session import spark_session as spark_session

PREDECESSOR_S = 45.0
"""How long a predecessor that was given up may hold its locks; its worker kills it sooner."""


def executor_config(launch: LaunchFile) -> Config:
    """The application's configuration for this executor; by default Spark is local, with a core per slot."""
    sets = dict(launch.config)
    master = Config.load(None, None, sets)[spark_keys.MASTER]
    if master == spark_keys.MASTER.default_value:
        master = sets[spark_keys.MASTER.name] = f"local[{max(1, launch.slots)}]"
    own = f"{spark_keys.CONF.name}.spark.local.dir"
    if master.startswith("local") and own not in sets:
        sets[own] = str(Path(launch.work_directory) / "spark")  # in a directory that is always deleted
    return Config.load(None, None, sets)


class Work:
    """The application of one executor, on `host`. `preparer` identifies one application master process.

    `begin_recovery` begins a recovery, whose steps it takes, by default in a thread.
    """

    def __init__(
        self,
        launch: LaunchFile,
        config: Config,
        preparer: Preparer,
        host: Host = SPARK,
        begin_recovery: Callable[[str, Steps[FragmentQuery]], Underway] = Recovering,
    ) -> None:
        self.config = config
        self.begin_recovery = begin_recovery
        """For the drivers of this executor's attempts."""
        self.compiling = threading.Lock()
        """Held while a fragment is compiled, as fragments share objects that compiling creates."""
        self.flow = FlowBook(config, epoch=launch.epoch)
        """The ends of channels in this process."""
        self.checkpoint_ways: tuple[Send, Answer] | None = None
        """Functions that send to fragments of other processes, and to the coordinator of checkpoints."""
        self._launch = launch
        self._preparer = preparer
        self._host = host
        self._lock = threading.RLock()
        self._application: Application | None = None
        self._plan: Plan | None = None
        self._rundir: RunDirectory | None = None
        self._execution: Execution | None = None
        self._prepared: Prepared | None = None

    # -- requests of the application master --------------------------------------------------------

    def prepare(
        self, *, fresh: bool, replay_from_ms: int | None = None, savepoint: str | None = None
    ) -> Prepared:
        """Load the application, start Spark, check everything and create its state; or join.

        Raises errors in the application, and `UnavailableError` when another process runs it.
        """
        with self._lock:
            if self._prepared is not None:
                return self._prepared
            _, plan, rundir = self._load()
            first = rundir.acquire_or_share(self._preparer, PREDECESSOR_S, fresh=fresh)
            try:
                self._prepared = self._prepare(
                    plan,
                    rundir,
                    fresh=fresh and first,
                    replay_from_ms=replay_from_ms if first else None,
                    savepoint=savepoint if first else None,
                    first=first,
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
    ) -> Prepared:
        begins = fresh or replay_from_ms is not None or savepoint is not None
        finished = rundir.finished is not None and not begins
        resumed = not begins and rundir.started
        if finished:
            if first:
                rundir.preparation.note(self._preparer, rundir.preparation.schemas)
        elif first:
            self._execution = spark_execution.prepare(
                plan,
                rundir,
                self.config,
                flow=self.flow,
                host=self._host,
                fresh=fresh,
                replay_from_ms=replay_from_ms,
                savepoint=savepoint,
            )
            rundir.preparation.note(self._preparer, self._execution.schemas())
        else:
            self._execution = spark_execution.join(plan, rundir, self.config, self.flow, self._host)
        if first:
            rundir.share()
        views = tuple(OutputView(o.processor, o.target, o.messages, o.guarantee) for o in outputs(plan, {}))
        life = rundir.life
        notices: tuple[str, ...] = ()
        if self._execution is not None:
            self._bind(self._execution)
            notices = tuple(self._execution.notices)
        master = self.config[spark_keys.MASTER]
        return Prepared(finished, resumed, master, views, life.number, life.from_ms, notices)

    def _bind(self, execution: Execution) -> None:
        if self.checkpoint_ways is not None:
            execution.checkpoints.send, execution.checkpoints.answer = self.checkpoint_ways

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
                execution = spark_execution.join(plan, rundir, self.config, self.flow, self._host)
                self._bind(execution)
                self._execution = execution
            return self._execution

    def conclude(self, message: Conclude) -> str:
        """Record that the application has finished, and call its hooks; returns what they printed.

        Raises `HookError` with the traceback of a hook that raised.
        """
        with self._lock:
            rundir = self._joined()
            application, plan, _ = self._load()
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
            spark_execution.finish(rundir, result)
            try:
                return spark_execution.printed_by_hooks(application, result)
            except DrivetrainError:
                raise
            except Exception as error:
                raise HookError(
                    f"{type(error).__name__}: {error}",
                    where="when_finished",
                    user_traceback=user_traceback(error),
                ) from error

    def close(self) -> None:
        """Stop Spark."""
        spark_session.stop()

    # -- inside --------------------------------------------------------------------------------------

    def _load(self) -> tuple[Application, Plan, RunDirectory]:
        spec = self._launch.spec
        if self._application is None or self._plan is None:
            path = str(Path(self._launch.code_directory) / spec.file)
            target = path if spec.target is None else f"{path}:{spec.target}"
            application = load_application(target, spec.settings)
            plan = configured_plan(application.graph(), self.config)
            refuse_shared_targets(plan)
            self._application, self._plan = application, plan
        settings = self._application.naming_settings
        rundir = RunDirectory(
            self.config[run_keys.STATE_DIR],
            self._application.name,
            settings,
            Writers(self.config[run_keys.WRITERS]),
        )
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
