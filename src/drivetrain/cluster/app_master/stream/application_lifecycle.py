"""Steps done once for a whole application: it is prepared, its job is started, and its end is recorded.

Problem: one executor prepares and concludes for all, and may die doing so. Nothing may be deployed before the
application is prepared and the registry records it.

Design: the order of the steps. The first executor that joins is asked to `Prepare`; the job starts when all
executors have joined, or `PATIENCE_MS` later; when all fragments have finished, an executor is asked to
`Conclude`. An application that waits for another one, whose stream it reads, is prepared again and
again. Every step may be called at any time, and does nothing before its time; `requests` keeps which executor
was asked, and which answer counts.

Invariants:
1. Each request for a new state (`fresh`, a replay, a savepoint) takes effect once: the registry records it
   before any fragment is deployed.
2. `Conclude` is asked for only when every fragment has finished, none has yet to leave, and no change is on
   trial; it is repeated when an executor dies doing it.

Called by `stream_app_master` after each relevant event and with the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.app_master_messages import AskOutcome
from drivetrain.cluster.app_master.stream.application_requests import ApplicationRequests
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointTraffic
from drivetrain.cluster.app_master.stream.running_job import RunningJob
from drivetrain.cluster.app_master.stream.stream_progress import VersionStatus
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.executing import (
    Conclude,
    Concluded,
    Prepare,
    Prepared,
    PrepareDeferred,
    PrepareFailed,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config.catalog import application as keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.job_events import JobState

PATIENCE: Final = "patience"
"""The name of the delay that ends with `patience_over`."""
AGAIN: Final = "prepare-again"
"""The name of the delay that ends with `prepare_again`."""
AGAIN_MS: Final = 1_000
"""How soon an application is prepared again that waits for another one."""
PATIENCE_MS: Final = 10_000
"""How long a prepared application waits for more executors before it starts with those it has."""


class ApplicationLifecycle:
    """The duties for the job `running` of the application master `owner`.

    `is_known` returns whether the fragments of the version in force are known, `is_changing` whether a
    change of the graph is under way, or a fragment has yet to leave.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        running: RunningJob,
        checkpoints: CheckpointTraffic,
        is_known: Callable[[], bool],
        is_changing: Callable[[], bool],
    ) -> None:
        self._is_known: Final = is_known
        self._is_changing: Final = is_changing
        self._owner: Final = owner
        self._running: Final = running
        self._checkpoints: Final = checkpoints
        self._is_waiting = False
        self.requests: Final = ApplicationRequests(owner.ask, owner.config[keys.PREPARE_TIMEOUT])
        running.is_concluding = lambda: self.requests.is_concluding

    def take_up(self) -> None:
        """Take the next step, if it is due: prepare, start the job, conclude."""
        self.prepare()
        self.open()
        self.conclude()

    def prepare(self) -> None:
        """Let an executor prepare the application, unless it is prepared or one is doing so."""
        owner, ready, requests = self._owner, self._owner.pool.ready, self.requests
        is_time = self._running.job.state in (JobState.CREATED, JobState.RUNNING) and owner.end_state is None
        if requests.prepared or requests.is_under_way or self._is_waiting or not ready or not is_time:
            return
        # If an earlier epoch had prepared, the spec in the launch file would no longer request a new state.
        setup, spec = owner.setup, owner.setup.spec
        prepare = Prepare(setup.app_id, setup.epoch, spec.fresh, spec.replay_from_ms, spec.savepoint)
        requests.prepare(ready[0], prepare)
        owner.changed()

    def open(self) -> None:
        """Start the job, once the application is prepared and the registry records its new state."""
        owner, job, prepared = self._owner, self._running.job, self.requests.prepared
        if prepared is None or owner.end_state is not None or not self._is_known():
            return
        if owner.setup.spec.begins_anew and not owner.is_known_prepared:
            owner.report()  # this is called again when the registry has the report
            return
        if job.state is JobState.CREATED:
            self._running.perform(job.start(eager=prepared.resumed))
        if len(owner.pool.ready) >= len(owner.pool.wanted):
            self._running.perform(job.open())
        elif not job.is_open:
            owner.wake(PATIENCE, 0, PATIENCE_MS)

    def prepare_again(self) -> None:
        """Look whether what the application waits for has come."""
        self._is_waiting = False
        self.prepare()

    def patience_over(self) -> None:
        """Start with the executors that have joined."""
        if self.requests.prepared:
            self._running.perform(self._running.job.open())

    def conclude(self) -> None:
        """Let an executor record the end, once all fragments have finished and published their output."""
        owner, job, ready = self._owner, self._running.job, self._owner.pool.ready
        if not job.executions or job.state is not JobState.RUNNING:
            return
        is_time = all(e.state is ExecutionState.FINISHED for e in job.executions)
        if not is_time or not ready or self.requests.is_under_way or owner.end_state is not None:
            return
        if self._is_changing():
            return  # it ends with the fragments; then this is called again
        if not self._checkpoints.is_all_published(self.conclude):
            return
        took_ms = max(0, owner.setup.clock_ms() - owner.started_ms)
        counts = self._running.progress.counts()
        message = Conclude(
            owner.setup.epoch, counts, self._running.progress.outputs(), took_ms, FINAL_CLOCK_MS
        )
        self.requests.conclude(ready[0], message)
        owner.changed()

    def answered(self, answer: AskOutcome) -> None:
        """Handle an executor's answer to `Prepare` or `Conclude`, or its absence."""
        owner, running = self._owner, self._running
        request = self.requests.answered(answer)
        if request is None or owner.end_state is not None:
            return
        owner.changed()
        match answer.answer:
            case PrepareDeferred():
                self._is_waiting = True
                owner.wake(AGAIN, 0, AGAIN_MS)
            case Prepared() as prepared:
                running.progress.shown = VersionStatus(prepared.outputs, prepared.rules)
                before = prepared.before
                running.progress.shown_before = None if before is None else VersionStatus(*before)
                for notice in prepared.notices:
                    owner.note(ErrorView("notice", notice))
                if prepared.finished:
                    owner.end(ApplicationState.SUCCEEDED)
                else:
                    self._checkpoints.prepared(running.planned)
                    self.open()
            case Concluded():
                running.perform(running.job.concluded())
            case PrepareFailed(error, retryable):
                owner.note(error)
                running.fail(error, retryable=retryable)
            case _:
                # It died or does not answer: let another executor try.
                what, member = request
                owner.stop_executor(member.id, f"it did not {what}: {answer.why}")
                self.prepare()
                self.conclude()
