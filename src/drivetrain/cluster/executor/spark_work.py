"""What an executor does with Spark: prepare the application, make attempts, conclude. It blocks.

Problem: starting Spark takes seconds, compiling takes more, and an executor must answer its application
master meanwhile. One executor prepares an application, the others join what it has prepared, and one that
dies is replaced by one that joins in the middle.

Design: everything here is called in threads, one call at a time; the actor in `executor` only asks and hears.
The application is loaded once in this process, from the unpacked archive.

Invariants:
1. An application master prepares an application once: whoever asks again joins, so nothing is forgotten
   twice.
2. The state directory stays locked, shared with the other executors, until the process ends.

Called by `executor` and `attempt`.
"""

from __future__ import annotations

import threading
import time
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
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.private_files import Writers
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.checkpoints.participants import Answer, Send
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.run import execution as spark_execution
from drivetrain.spark.run.execution import Execution
from drivetrain.spark.run.results import is_source, outputs
from drivetrain.spark.session import spark_session as spark_session

PREDECESSOR_S = 45.0
"""How long a predecessor that was given up may hold its locks: its worker kills it sooner."""


def executor_config(launch: LaunchFile) -> Config:
    """The configuration of the application here; without a Spark master, one with a core per slot."""
    sets = dict(launch.config)
    master = Config.load(None, None, sets)[spark_keys.MASTER]
    if master == spark_keys.MASTER.default_value:
        master = sets[spark_keys.MASTER.name] = f"local[{max(1, launch.slots)}]"
    own = f"{spark_keys.CONF.name}.spark.local.dir"
    if master.startswith("local") and own not in sets:
        sets[own] = str(Path(launch.work_directory) / "spark")  # goes with the process, however it ends
    return Config.load(None, None, sets)


class Work:
    """The application of one executor. `preparer` names one life of its application master."""

    def __init__(self, launch: LaunchFile, config: Config, preparer: str) -> None:
        self.config = config
        self.compiling = threading.Lock()
        """Held while a fragment is compiled: what fragments share is not made for two at once."""
        self.flow = FlowBook(config, epoch=launch.epoch)
        """The ends of channels in this process."""
        self.checkpoint_ways: tuple[Send, Answer] | None = None
        """How fragments of other processes, and the coordinator of checkpoints, are told something."""
        self._launch = launch
        self._preparer = preparer
        self._lock = threading.RLock()
        self._application: Application | None = None
        self._plan: Plan | None = None
        self._rundir: RunDirectory | None = None
        self._execution: Execution | None = None
        self._prepared: Prepared | None = None

    # -- what the application master asks for --------------------------------------------------------

    def prepare(
        self, *, fresh: bool, replay_from_ms: int | None = None, savepoint: str | None = None
    ) -> Prepared:
        """Load the application, start Spark, check everything and begin its state; or join.

        Raises what is wrong with the application, `UnavailableError` when somebody else runs it.
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
                rundir.note_prepared(self._preparer, rundir.prepared_schemas())
        elif first:
            self._execution = spark_execution.prepare(
                plan,
                rundir,
                self.config,
                flow=self.flow,
                fresh=fresh,
                replay_from_ms=replay_from_ms,
                savepoint=savepoint,
            )
            rundir.note_prepared(self._preparer, self._execution.schemas())
        else:
            self._execution = spark_execution.join(plan, rundir, self.config, self.flow)
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
        """A command of checkpoints for a fragment has come; dropped if that is not here. From any thread."""
        execution = self._execution
        if execution is not None:
            execution.checkpoints.hear(fragment, input, command)

    def execution(self) -> Execution:
        """The application as fragments of it can be run; joins what another executor has prepared.

        Raises `UnavailableError` when nobody has.
        """
        with self._lock:
            if self._execution is None:
                rundir = self._joined()
                _, plan, _ = self._load()
                execution = spark_execution.join(plan, rundir, self.config, self.flow)
                self._bind(execution)
                self._execution = execution
            return self._execution

    def conclude(self, message: Conclude) -> str:
        """Note that the application has finished, and call its hooks; returns what they printed.

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

    # -- what is needed for that ----------------------------------------------------------------------

    def _load(self) -> tuple[Application, Plan, RunDirectory]:
        spec = self._launch.spec
        if self._application is None or self._plan is None:
            path = str(Path(self._launch.code_directory) / spec.file)
            target = path if spec.target is None else f"{path}:{spec.target}"
            application = load_application(target, spec.settings)
            plan = make_plan(
                application.graph(), self.config[run_keys.LATENCY], self.config[run_keys.DELIVERY]
            )
            spark_execution.refuse_shared_targets(plan)
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
            # Somebody prepares it before any fragment is deployed; a wait here is for its last steps.
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
