"""The application master of a streaming application: drives its job on its executors.

Problem: see `core.job.job` for what must become of fragments; somebody has to tell executors, and to listen.

Design: a thin shell over `Job`, `Accumulators` and (in the base class) the pool of executors. The order of
things: registered; the user's file is loaded and planned in a thread; executors are asked for; the first that
joins is asked to `Prepare`; the job begins when all executors are there, or a moment later; all fragments
finished, an executor is asked to `Conclude`; the base class ends it. What is told may be lost: `Deploy` and
`CancelFragment` are told again every second until the executor speaks of the attempt.

Invariants:
1. The state is forgotten (`fresh`), or begun anew by a replay, once each time it is asked for: that it was is
   in the registry before any fragment is deployed.
2. An executor that does not stop its fragments in time is ended with its process.
3. `Conclude` is asked for only when every fragment has finished; it may be asked twice when an executor dies
   over it.

Called by `__main__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, cast

import msgspec

from drivetrain.actor import Message
from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.executors.executor_pool import Member
from drivetrain.cluster.app_master.own_messages import Answered, Call, Setup
from drivetrain.cluster.app_master.stream.application_clock import ApplicationClock, ClockNews
from drivetrain.cluster.app_master.stream.application_duties import Errands
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointPort, CheckpointTraffic
from drivetrain.cluster.app_master.stream.planned_application import Planned
from drivetrain.cluster.app_master.stream.restart_policy import decoded, policies
from drivetrain.cluster.app_master.stream.restore_request import GO_BACK, RESTORE_NEEDED, GoingBack
from drivetrain.cluster.app_master.stream.stream_progress import StreamProgress
from drivetrain.cluster.error_views import error_view
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.executing import (
    CancelFragment,
    Conclude,
    Concluded,
    Deploy,
    ExecutorReport,
    FragmentChanged,
    FragmentOutcome,
    Known,
    Prepare,
    Prepared,
    PrepareFailed,
)
from drivetrain.cluster.messages.flow import FlowTold
from drivetrain.cluster.messages.following import ErrorView, JobStatus, OutputView
from drivetrain.cluster.messages.following import JobState as ToldState
from drivetrain.cluster.messages.registration import AppMasterRegistered
from drivetrain.config.catalog import application as keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.fragment_execution import Execution, ExecutionEvent, ExecutionState, ExecutorId
from drivetrain.core.job.job import Job
from drivetrain.core.job.job_events import (
    CancelAttempt,
    DeployAttempt,
    JobChanged,
    JobEffect,
    JobState,
    NoteTheEnd,
    WakeFragment,
    WakeJob,
)
from drivetrain.core.job.placement import ReadyExecutor
from drivetrain.runtime.clock_actor import ClockSeen, WaitClock

PATIENCE_MS: Final = 10_000
"""How long a prepared application waits for the other executors before it begins with those it has."""

_EVENTS: Final = {
    FragmentOutcome.RUNNING: ExecutionEvent.RUNS,
    FragmentOutcome.FINISHED: ExecutionEvent.FINISHES,
    FragmentOutcome.CANCELED: ExecutionEvent.IS_CANCELED,
    FragmentOutcome.FAILED: ExecutionEvent.FAILS,
}
_RUN: Final = (ExecutionState.RUNNING, ExecutionState.FINISHED)
_ENDS: Final = {
    JobState.FINISHED: ApplicationState.SUCCEEDED,
    JobState.FAILED: ApplicationState.FAILED,
    JobState.CANCELED: ApplicationState.KILLED,
}

LoadPlan = Callable[[], Planned]


class StreamAppMaster(ApplicationMaster):
    """`load` gives the planned application; it is called in a thread, and may raise."""

    def __init__(self, setup: Setup, load: LoadPlan) -> None:
        super().__init__(setup)
        self._load: Final = load

    def pre_start(self) -> None:
        """Begin."""
        self.job: Job | None = None
        self._progress: StreamProgress | None = None
        self._clock: ApplicationClock | None = None
        self._planned: Planned | None = None
        port = CheckpointPort(
            self._relay,
            self._tell_others,
            self.note,
            self.changed,
            self.clock,
            lambda: self.end_state is not None,
        )
        self._checkpoints = CheckpointTraffic(self.context, self.setup.epoch, self.config, port)
        self._way_back = GoingBack(
            self.setup, lambda: self.link.leader, self.ask, lambda ms: self.wake(GO_BACK, 0, ms)
        )
        self._errands = Errands(self.ask, self.config[keys.PREPARE_TIMEOUT])
        self._cancel_since_ms = 0
        super().pre_start()

    # ---- the beginning

    def started(self, registered: AppMasterRegistered) -> None:
        """Load the application."""
        self.context.pipe_to_self(
            self.context.blocking(self._load),
            lambda planned: Call(functools.partial(self._begin, planned)),
            lambda error: Call(functools.partial(self.end, ApplicationState.FAILED, error_view(error))),
        )

    def _begin(self, planned: Planned) -> None:
        if self.end_state is not None:
            return
        saved = decoded(self.registered)
        policy, job_policy = policies(self.config)
        self.job = Job(planned.vertices, policy, job_policy, self.context.system.rng, saved)
        self._planned = planned
        self._progress = StreamProgress(self.job, planned)
        self._clock = ApplicationClock(self.context, planned.vertices, self.config, super().clock())
        for _ in range(self.config[keys.EXECUTORS]):
            self.want_executor()

    def executor_joined(self, member: Member) -> None:
        """An executor takes fragments, once somebody has prepared the application."""
        if self.job is None:
            return
        slots = self.config[keys.EXECUTOR_SLOTS]
        self._perform_job(self.job.executor_ready(ReadyExecutor(ExecutorId(member.id), slots, member.host)))
        self._prepare()
        self._open()
        self._conclude()

    def _prepare(self) -> None:
        job, ready, errands = self.job, self.pool.ready, self._errands
        is_time = job is not None and job.state in (JobState.CREATED, JobState.RUNNING)
        if errands.prepared or errands.is_under_way or not ready or not is_time or self.end_state is not None:
            return
        # No earlier epoch has prepared, else the registry's spec, which this one was launched with, says no.
        spec = self.setup.spec
        prepare = Prepare(
            self.setup.app_id, self.setup.epoch, spec.fresh, spec.replay_from_ms, spec.savepoint
        )
        errands.prepare(ready[0], prepare)
        self.changed()

    def answered(self, answer: Answered) -> None:
        """An executor has prepared, or concluded, or could not."""
        if answer.what == GO_BACK:
            self._way_back.answered(answer)
            return
        errand = self._errands.answered(answer)
        if errand is None or self.job is None or self.end_state is not None:
            return
        self.changed()
        match answer.answer:
            case Prepared() as prepared:
                for notice in prepared.notices:
                    self.note(ErrorView("notice", notice))
                if prepared.finished:
                    self.end(ApplicationState.SUCCEEDED)
                else:
                    self._open()
            case Concluded():
                self._perform_job(self.job.concluded())
            case PrepareFailed(error, retryable):
                self.note(error)
                self._perform_job(self.job.fail(error, self.setup.clock_ms(), retryable=retryable))
            case _:
                # It died over it, or does not answer: another one shall try.
                what, member = errand
                self.stop_executor(member.id, f"it did not {what}: {answer.why}")
                self._prepare()
                self._conclude()

    def has_prepared(self) -> bool:
        """Whether an executor has prepared the application."""
        return self._errands.prepared is not None

    def clock_to_report(self) -> int | None:
        """What the clock service wants to be persisted, else the clock."""
        if self._clock is None or self.end_state is ApplicationState.SUCCEEDED:
            return self.clock()
        return self._clock.to_report()

    def reported(self) -> None:
        """The registry has the clock, and perhaps what it had to know before fragments are deployed."""
        if self._clock is not None and self._clock.reported() and self.end_state is None:
            self.report()
        self._open()

    def _open(self) -> None:
        job, prepared = self.job, self._errands.prepared
        if job is None or prepared is None or self.end_state is not None:
            return
        if self.setup.spec.begins_anew and not self.is_known_prepared:
            self.report()  # `reported` goes on
            return
        if job.state is JobState.CREATED:
            self._perform_job(job.start(eager=prepared.resumed))
        if len(self.pool.ready) >= len(self.pool.wanted):
            self._perform_job(job.open())
        elif not job.is_open:
            self.wake("patience", 0, PATIENCE_MS)

    # ---- while it runs

    def received(self, message: Message) -> None:
        """What executors say."""
        match message:
            case FragmentChanged():
                self.context.reply(Known(self._fragment_changed(message)))
            case ExecutorReport() if message.epoch == self.setup.epoch:
                self._take_report(message)
            case ClockNews(effect) if self._clock is not None:
                if self._clock.take(effect):
                    self.report()
                self.changed()
            case WaitClock():
                self._wait_clock()
            case FlowTold(epoch, word):
                if epoch == self.setup.epoch:
                    self._relay(word.to, message)
            case _:
                if not self._checkpoints.received(message):
                    self.context.unhandled(message)

    def _relay(self, fragment: str, message: Message) -> None:
        """Hand a word to the executor that runs, or ran, a fragment; what gets lost is said again."""
        execution = None if self.job is None else self.job.execution(fragment)
        if execution is not None and execution.executor is not None:
            self._tell(execution.executor, message)

    def _wait_clock(self) -> None:
        if self._clock is not None:
            self._clock.forward()
        elif self.context.sender is not None:
            self.context.reply(ClockSeen(self.clock(), is_reached=False))  # who waits asks again

    def _fragment_changed(self, message: FragmentChanged) -> bool:
        job, progress = self.job, self._progress
        execution = None if job is None else job.execution(message.fragment)
        if job is None or progress is None or execution is None or execution.attempt != message.attempt:
            return False
        if message.report is not None:
            self._take_report(message.report)
        failed = message.outcome is FragmentOutcome.FAILED
        if failed and message.error is not None and message.error.code == RESTORE_NEEDED:
            if self.end_state is None:
                self._way_back.begin(message.error.what)
        elif failed and execution.state is ExecutionState.FINISHED:
            self._fail_finished(message.error, retryable=message.retryable)
        error = message.error
        if failed or message.outcome is FragmentOutcome.CANCELED:
            error = error or ErrorView("fragment", f"fragment {message.fragment} stopped without being told")
        if failed and error is not None and not execution.is_terminal:
            progress.failed(message.fragment, error)
            self.note(error)
        known, effects = job.changed(
            message.fragment,
            message.attempt,
            message.executor_id,
            _EVENTS[message.outcome],
            self.setup.clock_ms(),
            error=error,
            retryable=message.retryable,
        )
        if known and message.outcome is FragmentOutcome.RUNNING:
            do_all_run = all(e.state in _RUN for e in job.executions)
            self._checkpoints.runs(message.fragment, message.attempt, self._planned, do_all_run=do_all_run)
        if known and execution.is_terminal:
            progress.close(message.fragment, message.attempt)
        self._perform_job(effects)
        return known

    def _fail_finished(self, error: ErrorView | None, *, retryable: bool) -> None:
        """What a fragment has given to sinks cannot be published: all begin again."""
        error = error or ErrorView("fragment", "a fragment that had finished is gone")
        self.note(error)
        assert self.job is not None
        self._perform_job(self.job.fail(error, self.setup.clock_ms(), retryable=retryable))

    def _take_report(self, report: ExecutorReport) -> None:
        if self.job is None or self._progress is None:
            return
        if self._clock is not None:
            self._clock.heard(report)
        for fragment in self._progress.take(report):
            self._perform_job(self.job.data_came(fragment))
        self.changed()

    def executor_lost(self, member: Member, why: str) -> None:
        """Its fragments have failed; they go on elsewhere, or when another one is there."""
        if self.job is None or self._progress is None:
            return
        error = ErrorView("executor-lost", f"executor {member.id} is gone: {why}")
        before = [e for e in self.job.executions if e.is_placed and e.executor == member.id]
        had_finished = [e for e in self.job.executions if e.executor == member.id and _has_finished(e)]
        effects = self.job.executor_lost(ExecutorId(member.id), error, self.setup.clock_ms())
        for execution in before:
            self._progress.close(execution.fragment, execution.attempt)
        self._perform_job(effects)
        if had_finished and self._checkpoints.owes:
            self._fail_finished(error, retryable=True)

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        """Go on with those there are; without any the job has failed."""
        if self.job is None or self.pool.members:
            return
        self._perform_job(self.job.fail(error, self.setup.clock_ms(), retryable=retryable))

    def stopping(self, why: str) -> None:
        """Cancel the job: fragments stop at their next batch boundary."""
        self.setup.log(f"is asked to stop: {why}")
        if self.job is None:
            self.end(ApplicationState.KILLED)
        else:
            self._perform_job(self.job.cancel(self.setup.clock_ms()))

    def woken(self, what: str, number: int) -> None:
        """A delay is over."""
        if self.job is None or self.end_state is not None:
            return
        if what == GO_BACK:
            self._way_back.ask()
        elif what == "job":
            self._perform_job(self.job.job_due(number))
            self.refill()
            self._prepare()
            self._open()
        elif what == "patience" and self._errands.prepared:
            self._perform_job(self.job.open())
        elif what.startswith("fragment "):
            self._perform_job(self.job.fragment_due(what.removeprefix("fragment "), number))

    def beat(self) -> None:
        """Tell again what was not acted upon; end executors that do not stop their fragments."""
        if self.job is None:
            return
        self._perform_job(self.job.unanswered())
        if self.job.state not in (JobState.FAILING, JobState.CANCELLING):
            self._cancel_since_ms = 0
            return
        self._cancel_since_ms = self._cancel_since_ms or self.now_ms
        if self.now_ms - self._cancel_since_ms < self.config[keys.CANCEL_TIMEOUT]:
            return
        stuck = {e.executor for e in self.job.executions if e.state is ExecutionState.CANCELING}
        for executor in sorted(executor for executor in stuck if executor is not None):
            self.stop_executor(executor, "it did not stop its fragments in time")

    # ---- effects of the job

    def _perform_job(self, effects: list[JobEffect]) -> None:
        for effect in effects:
            match effect:
                case DeployAttempt(fragment, attempt, executor):
                    if self._clock is not None:
                        self._clock.restarted(fragment, attempt)
                    self._checkpoints.moved(fragment, attempt, executor)
                    self._tell(executor, Deploy(fragment, attempt, self.setup.epoch))
                case CancelAttempt(fragment, attempt, executor, drain):
                    self._tell(executor, CancelFragment(fragment, attempt, drain))
                case WakeFragment(fragment, attempt, delay_ms):
                    self.wake(f"fragment {fragment}", attempt, delay_ms)
                    self.report()
                case WakeJob(restart, delay_ms):
                    self.wake("job", restart, delay_ms)
                case NoteTheEnd():
                    self._conclude()
                case JobChanged(state):
                    self._job_changed(state)
        if effects:
            self.changed()

    def _tell(self, executor: str, message: Message) -> None:
        member = self.pool.find(executor)
        if member is not None and member.executor is not None:
            member.executor.tell(message, self.context.me)

    def _tell_others(self, executor: str, message: Message) -> None:
        for member in self.pool.ready:
            if member.id != executor:
                self._tell(member.id, message)

    def _job_changed(self, state: JobState) -> None:
        assert self.job is not None
        if state in _ENDS:
            error = self.job.error if state is JobState.FAILED else None
            self.end(_ENDS[state], cast("ErrorView | None", error))

    def _conclude(self) -> None:
        job, progress, ready = self.job, self._progress, self.pool.ready
        if job is None or progress is None or not job.executions or job.state is not JobState.RUNNING:
            return
        is_time = all(e.state is ExecutionState.FINISHED for e in job.executions)
        if not is_time or not ready or self._errands.is_under_way or self.end_state is not None:
            return
        if not self._checkpoints.is_all_published(self._conclude):
            return
        took_ms = max(0, self.setup.clock_ms() - self.started_ms)
        message = Conclude(self.setup.epoch, progress.counts(), self._outputs(), took_ms, FINAL_CLOCK_MS)
        self._errands.conclude(ready[0], message)
        self.changed()

    # ---- what it says of itself

    def status(self) -> JobStatus:
        """What followers see."""
        job = self.job
        status = self.base_status(ToldState.CREATED if job is None else ToldState(job.state.value))
        prepared = self._errands.prepared
        if self._progress is None:
            return status
        return msgspec.structs.replace(
            status,
            life=1 if prepared is None else prepared.life,
            replay_from_ms=None if prepared is None else prepared.replay_from_ms,
            skipped=self._progress.skipped(),
            lost=self._progress.lost(),
            fragments=self._progress.views(self.pool.find, self._stall),
            outputs=self._outputs(),
            counts=self._progress.counts(),
            accumulators=self._progress.accumulators(),
            fraction=self._progress.fraction(),
            printed=self._errands.printed,
            checkpoints=self._checkpoints.figures,
            checkpoints_now_ms=self.now_ms,
        )

    def _outputs(self) -> tuple[OutputView, ...]:
        prepared = self._errands.prepared
        return () if prepared is None or self._progress is None else self._progress.outputs(prepared.outputs)

    def waiting_for(self) -> str | None:
        """What keeps the application from processing, or from its end; None while it processes."""
        job = self.job
        if job is None:
            return waiting_reasons.PLAN
        match job.state:
            case JobState.RESTARTING:
                return waiting_reasons.RESTART
            case JobState.FAILING | JobState.CANCELLING:
                return waiting_reasons.fragments([e for e in job.executions if not e.is_terminal])
        if self._errands.is_under_way:
            return self._errands.waiting_for()
        if self._errands.prepared is None or not self.pool.ready:
            return waiting_reasons.executors(self.pool)
        if not job.executions or job.is_open:
            return None
        return (
            waiting_reasons.NOTED if job.state is JobState.CREATED else waiting_reasons.executors(self.pool)
        )

    def restarts(self) -> bytes | None:
        """Restart strategies go on counting with the next application master, unless this was the end."""
        if self.job is None:
            return super().restarts()
        return msgspec.msgpack.encode(self.job.saved() if self.end_state is None else {})

    def clock(self) -> int | None:
        """The smallest clock of all fragments, as the registry knows it; it never goes back."""
        if self.end_state is ApplicationState.SUCCEEDED:
            return FINAL_CLOCK_MS  # whoever comes after this one finds all fragments at their end
        return super().clock() if self._clock is None else self._clock.clock_ms

    def _stall(self, fragment: str) -> tuple[int, str | None]:
        return (0, None) if self._clock is None else self._clock.stall(fragment)


def _has_finished(execution: Execution) -> bool:
    return execution.state is ExecutionState.FINISHED
