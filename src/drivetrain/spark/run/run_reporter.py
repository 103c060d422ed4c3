"""Reports the state of a run to pages and commands in other processes.

Problem: figures are asked for at any time, by any number of consoles, while fragments process batches; no
request may keep a batch waiting.

Design: a listener of the run, in front of the user's own. It keeps the newest state, which is replaced as a
whole, so any thread can read it. Counts are copied under their own locks. A thread of its own notes the
history. When the run ends, its last status stays in the state directory (`runtime.last_run`).

Invariants:

1. A status is made without waiting for a fragment or for the loop.
2. The end of a run is noted once, and only when the run does not begin again from a checkpoint.

Called by `embedded`; asked by `control_answers`.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.actor.purgatory import monotonic_ms
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.core.job.history import STEP_MS, History, HistoryKeeper
from drivetrain.core.job.job_status import (
    ErrorView,
    ExecutorView,
    FragmentView,
    JobState,
    JobStatus,
    OutputView,
    moment_of,
)
from drivetrain.core.job.run_progress import FragmentState, ProgressEvent, RunListener, RunOutcome
from drivetrain.core.job.run_state import RunState
from drivetrain.core.job.run_status import fragments_of
from drivetrain.core.picture.placed_graph import Graph, graph_of
from drivetrain.core.plan.counts import derive, rules_of
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.last_run import LastRun, forget_last_run, write_last_run
from drivetrain.spark.batch.message_counts import together
from drivetrain.spark.run.results import as_compiled, outputs
from drivetrain.spark.run.thread_dump import threads_of

if TYPE_CHECKING:
    from drivetrain.spark.run.application_versions import LoadedVersion
    from drivetrain.spark.run.embedded_loop import EmbeddedLoop
    from drivetrain.spark.run.execution import Execution

log = logging.getLogger(__name__)

_ENDS: Final = {
    RunOutcome.FINISHED: JobState.FINISHED,
    RunOutcome.STOPPED: JobState.CANCELED,
    RunOutcome.ALREADY_FINISHED: JobState.FINISHED,
}


class RunReporter:
    """Reports a run of `execution`; a listener that passes all on to the user's `listener`."""

    def __init__(self, execution: Execution, listener: RunListener) -> None:
        self._execution: Final = execution
        self._listener: Final = listener
        self._started_ms: Final = _now_ms()
        self._life: Final = execution.rundir.life
        self._spark_master: Final = execution.context.config[spark_keys.MASTER]
        self._cores: Final = execution.engine.cores
        self._state = RunState()
        self._loop: EmbeddedLoop | None = None
        self._is_asked_to_stop = False
        self._error: ErrorView | None = None
        self._ended: JobState | None = None
        self._keeper: Final = HistoryKeeper()
        self._keeping: Final = threading.Lock()
        self._drawn: tuple[LoadedVersion, Graph] | None = None
        self._drawing: Final = threading.Lock()
        self._over: Final = threading.Event()

    # -- the listener of the run -----------------------------------------------------------------------

    def on_event(self, event: ProgressEvent) -> None:
        """Record an event, and pass it on."""
        self._state = self._state.after(event)
        self._listener.on_event(event)

    def stop_requested(self) -> bool:
        """Whether the user's listener or another process wants the run to stop."""
        return self._is_asked_to_stop or self._listener.stop_requested()

    # -- the life of the run ---------------------------------------------------------------------------

    def begin(self, loop: EmbeddedLoop) -> None:
        """The run begins, with these fragments."""
        self._loop = loop
        forget_last_run(self._execution.rundir.path)
        threading.Thread(target=self._keep, name="run-history", daemon=True).start()

    def interrupted(self) -> None:
        """The run begins again from a checkpoint; another reporter continues."""
        self._over.set()

    def end(self, outcome: RunOutcome | None, error: BaseException | None) -> None:
        """The run has ended: note its last status; one that cannot be noted is not shown later."""
        self._over.set()
        if self._loop is None:
            return
        self._error = None if error is None else error_view(error)
        self._ended = JobState.FAILED if outcome is None else _ENDS[outcome]
        try:
            last = LastRun(self.status(), self.history(), self.graph(), self._loop.changes.state.version)
            write_last_run(self._execution.rundir.path, last)
        except DrivetrainError as failure:
            log.warning("the end of the run is not noted: %s", failure)
        except Exception:  # what is only shown later must not change how the run ends
            log.exception("the end of the run is not noted")

    # -- for any thread --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the run to finish its batches, and to end."""
        self._is_asked_to_stop = True

    def status(self) -> JobStatus:
        """The current status of the run."""
        execution, loop, state = self._execution, self._loop, self._state
        rundir, plan = execution.rundir, execution.plan
        drivers = {} if loop is None else dict(loop.drivers)
        parts = [driver.query.counts for driver in drivers.values()]
        counts = together(parts)
        taken, given = derive(rules_of(plan.graph), counts.out, counts.into)
        free, total = _disk(execution)
        attempts = {id: driver.queries_before + 1 for id, driver in drivers.items()}
        return JobStatus(
            app_id=rundir.app_id,
            epoch=1,
            state=self._job_state(state),
            started_ms=self._started_ms,
            now_ms=_now_ms(),
            clock_ms=None if loop is None else loop.clock.clock_ms,
            fragments=tuple(map(self._with_error, fragments_of(state, attempts))),
            executors=(self._process(),),
            outputs=tuple(
                OutputView(each.processor, each.target, each.messages, each.guarantee)
                for each in outputs(plan, counts.into)
            ),
            counts={
                node.id: (
                    taken.get(node.id) or 0,
                    given.get(node.id) or 0,
                    counts.late.get(node.id, 0),
                    counts.dead.get(node.id, 0),
                )
                for node in plan.graph.nodes.values()
                if not node.operation.is_table
            },
            accumulators=dict(sorted(counts.user.items())),
            fraction=state.fraction,
            error=self._error,
            errors=() if self._error is None else (self._error,),
            life=self._life.number,
            replay_from_ms=self._life.from_ms,
            skipped=sum(part.skipped_rows for part in parts),
            lost=sum(part.lost_rows for part in parts),
            checkpoints=None if loop is None else loop.checkpoints.figures,
            checkpoints_now_ms=monotonic_ms(),
            waiting_for=None if loop is None or self._ended is not None else loop.producers.waiting_for,
            change=None if loop is None or self._ended is not None else loop.changes.state.in_words,
            disk_free=free,
            disk_total=total,
        )

    def history(self) -> History:
        """The figures of the last 15 minutes."""
        with self._keeping:
            return self._keeper.history()

    def graph(self) -> Graph:
        """The graph in force with coordinates, and how each processor really runs."""
        with self._drawing:
            assert self._execution.versions is not None, "an application that another process has prepared"
            version = self._execution.versions.in_force
            if self._drawn is None or self._drawn[0] is not version:
                self._drawn = version, graph_of(as_compiled(version.context))
            return self._drawn[1]

    def threads(self) -> dict[str, str]:
        """The stacks of its threads, in Python and in Java."""
        return threads_of(self._execution.engine.spark)

    # -- parts -----------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            moment = moment_of(self.status())
            with self._keeping:
                self._keeper.note(moment)
            if self._over.wait(STEP_MS / 1000):
                return

    def _job_state(self, state: RunState) -> JobState:
        if self._ended is not None:
            return self._ended
        if any(view.state is FragmentState.DRAINING for view in state.fragments):
            return JobState.CANCELLING
        return JobState.RUNNING

    def _with_error(self, view: FragmentView) -> FragmentView:
        if self._error is None or view.state != FragmentState.FAILED.value:
            return view
        return msgspec.structs.replace(view, error=self._error)

    def _process(self) -> ExecutorView:
        return ExecutorView(
            executor="run",
            worker=None,
            host=socket.gethostname(),
            pid=os.getpid(),
            slots=self._cores,
            state="ready" if self._ended is None else "ended",
            spark_master=self._spark_master,
        )


def _disk(execution: Execution) -> tuple[int | None, int | None]:
    """Free and total bytes of the file system with the state directory; None: not known."""
    try:
        usage = shutil.disk_usage(execution.rundir.path)
    except OSError:
        return None, None
    return usage.free, usage.total


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
