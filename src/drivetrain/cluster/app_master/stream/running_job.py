"""The job of a streaming application: turns executors' reports into its events, and performs its effects.

Problem: `core.job.job` decides what happens to fragments; its decisions must reach the executors, whose
messages must reach it.

Design: a shell over `Job`, with its progress and clock. Messages may be lost: `beat` repeats `Deploy` and
`CancelFragment` until the executor reports on the attempt.

Invariants:
1. An executor that does not stop its fragments in time is ended with its process.
2. The counts of an ended attempt are final, and its clock no longer counts once another one is deployed.
3. When the unpublished output of a finished fragment is lost, all fragments start again.

Called by `stream_app_master`, and by `application_lifecycle`, which begins and concludes the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

from drivetrain.actor import Message
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.executors.executor_pool import Member
from drivetrain.cluster.app_master.stream.application_clock import ApplicationClock
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointTraffic
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.app_master.stream.restart_policy import decoded, policies
from drivetrain.cluster.app_master.stream.restore_request import RESTORE_NEEDED
from drivetrain.cluster.app_master.stream.stream_progress import StreamProgress
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.changing import VersionsChanged
from drivetrain.cluster.messages.executing import (
    CancelFragment,
    Deploy,
    ExecutorReport,
    FragmentChanged,
    FragmentOutcome,
)
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config.catalog import application as keys
from drivetrain.core.job.fragment_execution import Execution, ExecutionEvent, ExecutionState, ExecutorId
from drivetrain.core.job.job import Job
from drivetrain.core.job.job_events import (
    CancelAttempt,
    DeployAttempt,
    JobChanged,
    JobEffect,
    JobState,
    RecordJobEnd,
    Vertex,
    WakeFragment,
    WakeJob,
)
from drivetrain.core.job.placement import ReadyExecutor

JOB: Final = "job"
FRAGMENT: Final = "fragment "
"""Names of the delays that end with `job_due` and `fragment_due`; the fragment's id is appended to the
second."""

_EVENTS: Final = {
    FragmentOutcome.RUNNING: ExecutionEvent.RUNS,
    FragmentOutcome.FINISHED: ExecutionEvent.FINISHES,
    FragmentOutcome.CANCELED: ExecutionEvent.IS_CANCELED,
    FragmentOutcome.FAILED: ExecutionEvent.FAILS,
}
_ENDS: Final = {
    JobState.FINISHED: ApplicationState.SUCCEEDED,
    JobState.FAILED: ApplicationState.FAILED,
    JobState.CANCELED: ApplicationState.KILLED,
}
_RUN: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)


class RunningJob:
    """The job of `planned`, for the application master `owner`.

    `go_back` is called with the reason when an executor reports that state is lost, `finished` when all
    fragments have finished and the end must be recorded.
    """

    def __init__(
        self,
        owner: ApplicationMaster,
        planned: PlannedApplication,
        checkpoints: CheckpointTraffic,
        go_back: Callable[[str], None],
        finished: Callable[[], None],
    ) -> None:
        policy, job_policy = policies(owner.config)
        saved = decoded(owner.registered)
        self._owner: Final = owner
        self.planned: Final = planned
        self._checkpoints: Final = checkpoints
        self._go_back: Final = go_back
        self._finished: Final = finished
        self._cancel_since_ms = 0
        self.fragment_failed: Callable[[str, ErrorView], None] = lambda _fragment, _error: None
        """Called when an attempt has failed, before another one follows."""
        self.is_concluding: Callable[[], bool] = lambda: False
        """Whether an executor records the application's end now, so that nothing may begin any more."""
        self.job: Final = Job(planned.vertices, policy, job_policy, owner.context.system.rng, saved)
        self.progress: Final = StreamProgress(self.job)
        self.clock: Final = ApplicationClock(owner.context, planned.vertices, owner.config, owner.clock())

    # ---- messages of executors

    def executor_joined(self, member: Member) -> None:
        """An executor is ready for fragments."""
        slots = self._owner.config[keys.EXECUTOR_SLOTS]
        self.perform(self.job.executor_ready(ReadyExecutor(ExecutorId(member.id), slots, member.host)))

    def executor_lost(self, member: Member, why: str) -> None:
        """Fail the executor's fragments; they continue elsewhere, or once another executor is ready."""
        error = ErrorView("executor-lost", f"executor {member.id} is gone: {why}")
        its_own = [execution for execution in self.job.executions if execution.executor == member.id]
        before = [execution for execution in its_own if execution.is_placed]
        had_finished = any(execution.state is ExecutionState.FINISHED for execution in its_own)
        effects = self.job.executor_lost(ExecutorId(member.id), error, self._now_ms)
        for execution in before:
            self.progress.close(execution.fragment, execution.attempt)
        self.perform(effects)
        if had_finished and self._checkpoints.may_have_unpublished(self.planned):
            self._fail_finished(error, retryable=True)

    def take_report(self, report: ExecutorReport) -> None:
        """Handle an executor's report on its fragments."""
        self.clock.take_report(report)
        for fragment in self.progress.take(report):
            self.perform(self.job.data_came(fragment))
        self._owner.changed()

    def fragment_changed(self, message: FragmentChanged) -> bool:
        """Handle the outcome of an attempt; returns whether it is the current one."""
        execution = self.job.execution(message.fragment)
        if execution is None or execution.attempt != message.attempt:
            return False
        if message.report is not None:
            self.take_report(message.report)
        error = message.error
        if message.outcome in (FragmentOutcome.FAILED, FragmentOutcome.CANCELED):
            error = error or ErrorView("fragment", f"fragment {message.fragment} stopped unexpectedly")
            if message.outcome is FragmentOutcome.FAILED:
                self._fragment_failed(message, execution, error)
        known, effects = self.job.changed(
            message.fragment,
            message.attempt,
            message.executor_id,
            _EVENTS[message.outcome],
            self._now_ms,
            error=error,
            retryable=message.retryable,
        )
        if known and message.outcome is FragmentOutcome.RUNNING:
            do_all_run = all(e.state in _RUN for e in self.job.executions)
            self._checkpoints.runs(message.fragment, message.attempt, self.planned, do_all_run=do_all_run)
        if known and execution.is_terminal:
            self.progress.close(message.fragment, message.attempt)
        self.perform(effects)
        return known

    def _fragment_failed(self, message: FragmentChanged, execution: Execution, error: ErrorView) -> None:
        if error.code == RESTORE_NEEDED:
            if self._owner.end_state is None:
                self._go_back(error.what)
        elif execution.state is ExecutionState.FINISHED:
            self._fail_finished(message.error, retryable=message.retryable)
        if not execution.is_terminal:
            self.progress.failed(message.fragment, error)
            self._owner.note(error)
            self.fragment_failed(message.fragment, error)

    def _fail_finished(self, error: ErrorView | None, *, retryable: bool) -> None:
        """Start all fragments again: a finished fragment's output cannot be published."""
        error = error or ErrorView("fragment", "a fragment that had finished is gone")
        self._owner.note(error)
        self.fail(error, retryable=retryable)

    # ---- requests of the application master

    def replace_vertices(self, vertices: Sequence[Vertex], participants: Mapping[str, bool]) -> None:
        """The job consists of these fragments from now on; `participants` take part in checkpoints."""
        if tuple(vertices) != self.job.vertices:
            self.clock.changed(vertices)
            self.perform(self.job.replace_vertices(vertices))
        self._checkpoints.changed(participants)

    def fail(self, error: ErrorView, *, retryable: bool) -> None:
        """Fail the job as a whole; it starts again only if `retryable`."""
        self.perform(self.job.fail(error, self._now_ms, retryable=retryable))

    def cancel(self) -> None:
        """End the job: fragments stop at their next batch boundary."""
        self.perform(self.job.cancel(self._now_ms))

    def relay(self, fragment: str, message: Message) -> None:
        """Send a message to the executor that runs, or ran, a fragment; senders repeat lost ones."""
        execution = self.job.execution(fragment)
        if execution is not None and execution.executor is not None:
            self.tell(execution.executor, message)

    def tell(self, executor: str, message: Message) -> None:
        """Send a message to an executor, if it exists."""
        member = self._owner.pool.find(executor)
        if member is not None and member.executor is not None:
            member.executor.tell(message, self._owner.context.me)

    def have_look(self, fragments: Iterable[str]) -> None:
        """Have the executors that run these fragments read the versions in the state directory again."""
        executions = map(self.job.execution, fragments)
        executors = {e.executor for e in executions if e is not None and e.executor is not None}
        for executor in sorted(executors):
            self.tell(executor, VersionsChanged(self._owner.setup.epoch))

    def beat(self) -> None:
        """Repeat unanswered messages; end executors that do not stop their fragments."""
        self.perform(self.job.unanswered())
        if self.job.state not in (JobState.FAILING, JobState.CANCELLING):
            self._cancel_since_ms = 0
            return
        now_ms = self._owner.now_ms
        self._cancel_since_ms = self._cancel_since_ms or now_ms
        if now_ms - self._cancel_since_ms < self._owner.config[keys.CANCEL_TIMEOUT]:
            return
        stuck = {e.executor for e in self.job.executions if e.state is ExecutionState.CANCELING}
        for executor in sorted(executor for executor in stuck if executor is not None):
            self._owner.stop_executor(executor, "it did not stop its fragments in time")

    def perform(self, effects: Sequence[JobEffect]) -> None:
        """Perform effects of the job, in order."""
        for effect in effects:
            match effect:
                case DeployAttempt(fragment, attempt, executor):
                    self.clock.restarted(fragment, attempt)
                    self._checkpoints.moved(fragment, attempt, executor)
                    self.tell(executor, Deploy(fragment, attempt, self._owner.setup.epoch))
                case CancelAttempt(fragment, attempt, executor, drain):
                    self.tell(executor, CancelFragment(fragment, attempt, drain))
                case WakeFragment(fragment, attempt, delay_ms):
                    self._owner.wake(f"{FRAGMENT}{fragment}", attempt, delay_ms)
                    self._owner.report()
                case WakeJob(restart, delay_ms):
                    self._owner.wake(JOB, restart, delay_ms)
                case RecordJobEnd():
                    self._finished()
                case JobChanged(state) if state in _ENDS:
                    error = self.job.error if state is JobState.FAILED else None
                    self._owner.end(_ENDS[state], cast("ErrorView | None", error))
        if effects:
            self._owner.changed()

    @property
    def _now_ms(self) -> int:
        return self._owner.setup.clock_ms()
