"""The application master of a streaming application: drives its job on its executors.

Problem: an application is loaded, prepared, run on executors that come and go, and concluded, while messages
from all of them arrive in any order.

Design: each hook of the base class passes its event to the part that it concerns. After registration, a
thread loads and plans the user's file; from then on there are the job with its executors (`running_job`), the
steps done once for the whole application (`application_lifecycle`), and the status (`stream_status`).
The parts for checkpoints and for the return to one exist from the beginning.

Invariant: no executor is requested, and no executor's message has an effect, before the application is
loaded.

Called by `__main__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from drivetrain.actor import Failure, Message
from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master import ApplicationMaster
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, RunAction, Setup
from drivetrain.cluster.app_master.executors.executor_pool import Member
from drivetrain.cluster.app_master.stream.application_changes import ApplicationChanges
from drivetrain.cluster.app_master.stream.application_clock import ClockUpdate
from drivetrain.cluster.app_master.stream.application_configuration import ApplicationConfiguration
from drivetrain.cluster.app_master.stream.application_lifecycle import AGAIN, PATIENCE, ApplicationLifecycle
from drivetrain.cluster.app_master.stream.application_subscriptions import ApplicationSubscriptions
from drivetrain.cluster.app_master.stream.change_compiler import Bring, ChangeCompiler, bring_from_masters
from drivetrain.cluster.app_master.stream.checkpoint_relay import CheckpointPort, CheckpointTraffic
from drivetrain.cluster.app_master.stream.executor_stacks import ask_for_stacks
from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.app_master.stream.restore_request import GO_BACK, RestoreRequest
from drivetrain.cluster.app_master.stream.running_job import FRAGMENT, JOB, RunningJob
from drivetrain.cluster.app_master.stream.stored_versions import StoredVersions
from drivetrain.cluster.app_master.stream.stream_status import status_of, waiting_for
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ChangeGraph,
    GetChange,
    GetVersions,
    GiveUpChange,
    ScaleFragment,
)
from drivetrain.cluster.messages.executing import (
    EndExecutor,
    ExecutorReport,
    FragmentChanged,
    FragmentChangedReply,
)
from drivetrain.cluster.messages.flow import RelayedFlowMessage
from drivetrain.cluster.messages.following import ErrorView, GetThreads, JobState, JobStatus
from drivetrain.cluster.messages.registration import AppMasterRegistered, AppMasterReport
from drivetrain.config.catalog import application as keys
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.history import History, HistoryKeeper
from drivetrain.core.job.job import Job
from drivetrain.core.job.job_status import moment_of
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.clock_actor import ClockReply, WaitForClock
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.state_place import is_remote

LoadPlan = Callable[[], PlannedApplication]


_ABOUT_CHANGES: Final = (
    ChangeGraph,
    ScaleFragment,
    ChangeConfiguration,
    GiveUpChange,
    GetChange,
    GetVersions,
)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The parts that exist once the application is loaded."""

    running: RunningJob
    duties: ApplicationLifecycle
    changes: ApplicationChanges
    configuration: ApplicationConfiguration
    subscriptions: ApplicationSubscriptions

    def received(self, message: Message) -> bool:
        """Handle a message about changes; False for any other message."""
        return self.changes.received(message) or self.configuration.received(message)


class StreamAppMaster(ApplicationMaster):
    """`load` returns the planned application; it is called in a thread, and may raise."""

    are_hooks_ours = True

    def __init__(self, setup: Setup, load: LoadPlan) -> None:
        super().__init__(setup)
        self._load: Final = load

    def pre_start(self) -> None:
        """Create the parts that need no application, and start the base."""
        self._loaded: _Loaded | None = None
        self._history = HistoryKeeper()
        port = CheckpointPort(
            self._relay,
            self._tell_others,
            self.note,
            self.changed,
            self.clock,
            lambda: self.end_state is not None,
            self.fail,
        )
        self._checkpoints = CheckpointTraffic(self.context, self.setup, self.config, port)
        self._restore_request = RestoreRequest(
            self.setup, lambda: self.link.leader, self.ask, lambda ms: self.wake(GO_BACK, 0, ms)
        )
        super().pre_start()

    async def post_stop(self) -> None:
        """Release the state, if it is in an object store."""
        await self._checkpoints.close(has_ended=self.pool.is_empty)

    @property
    def job(self) -> Job | None:
        """The job; None before the application is loaded."""
        return None if self._loaded is None else self._loaded.running.job

    def started(self, registered: AppMasterRegistered) -> None:
        """Load the application."""
        self.context.pipe_to_self(
            self.context.blocking(self._load),
            lambda planned: RunAction(functools.partial(self._begin, planned)),
            lambda error: RunAction(functools.partial(self.end, ApplicationState.FAILED, error_view(error))),
        )

    def recovered(self) -> None:
        """Take the steps that the handler of a refused message may have left undone."""
        if self._loaded is not None and self.end_state is None:
            self._loaded.duties.take_up()

    def _begin(self, planned: PlannedApplication) -> None:
        if self.end_state is not None:
            return
        running = RunningJob(self, planned, self._checkpoints, self._restore_request.begin, self._conclude)
        me = Preparer(self.setup.app_id, self.setup.epoch, str(self.context.me.path))
        keep = self._checkpoints.keep if is_remote(self.config) else None
        stored = StoredVersions(planned, self.config, me, keep)
        proposed = ChangeCompiler(self, running.job, stored, self.bring_code())
        changes = ApplicationChanges(self, running, stored, proposed, self._changed)
        duties = ApplicationLifecycle(
            self, running, self._checkpoints, lambda: changes.is_known, lambda: changes.is_changing
        )
        subscriptions = ApplicationSubscriptions(
            self, stored.subscriptions, changes.ask, lambda: stored.can_change and not changes.is_changing
        )
        configuration = ApplicationConfiguration(self, stored)
        self._loaded = _Loaded(running, duties, changes, configuration, subscriptions)
        for _ in range(self.config[keys.EXECUTORS]):
            self.want_executor(self.setup.together_on)

    def bring_code(self) -> Bring:
        """The function that fetches the archive of another version."""
        return bring_from_masters(self)

    def _changed(self) -> None:
        self._checkpoints.note_change()
        self._take_up()

    def _take_up(self) -> None:
        if self._loaded is not None and self.end_state is None:
            self._loaded.duties.take_up()

    def _conclude(self) -> None:
        if self._loaded is not None:
            self._loaded.duties.conclude()

    # ---- executors

    def executor_joined(self, member: Member) -> None:
        """An executor is ready for fragments, once the application is prepared."""
        if self._loaded is None:
            return
        self._loaded.running.executor_joined(member)
        self._loaded.duties.take_up()

    def executor_lost(self, member: Member, why: str) -> None:
        """Fail the executor's fragments; they continue elsewhere, or once another executor is ready."""
        if self._loaded is not None:
            self._loaded.running.executor_lost(member, why)

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        """Continue with the other executors; without any, fail the job."""
        if self._loaded is not None and not self.pool.members:
            self._loaded.running.fail(error, retryable=retryable)

    def received(self, message: Message) -> None:
        """Handle messages of executors and of the clock service."""
        loaded = self._loaded
        match message:
            case FragmentChanged():
                known = loaded is not None and loaded.running.fragment_changed(message)
                self.context.reply(FragmentChangedReply(known))
            case ExecutorReport() if message.epoch == self.setup.epoch:
                if self.pool.find(message.executor_id) is None:
                    self._end_lost(message)
                elif loaded is not None:
                    loaded.running.take_report(message)
            case ClockUpdate(effect) if loaded is not None:
                if loaded.running.clock.take(effect):
                    self.report()
                self.changed()
            case WaitForClock():
                self._wait_clock()
            case GetThreads():
                ask_for_stacks(self, message)
            case RelayedFlowMessage(epoch, flow_message):
                if epoch == self.setup.epoch:
                    self._relay(flow_message.to, message)
            case _:
                self._received_of_parts(message)

    def _received_of_parts(self, message: Message) -> None:
        """Handle messages about changes and about checkpoints."""
        if self._loaded is not None and self._loaded.received(message):
            return
        if isinstance(message, _ABOUT_CHANGES):
            self._answer(UnavailableError("the application has not begun", remedy="try again"))
        elif not self._checkpoints.received(message):
            self.context.unhandled(message)

    def _end_lost(self, report: ExecutorReport) -> None:
        """End an executor that was replaced because its worker was out of reach, but that still lives.

        It holds the locks of its fragments, for which their next attempts wait.
        """
        if self.context.sender is not None:
            why = f"{report.executor_id} was abandoned and replaced"
            self.context.sender.tell(EndExecutor(self.setup.epoch, why), self.context.me)

    def answered(self, answer: AskOutcome) -> None:
        """Handle an executor's answer to a request, or the leader's to a restart request."""
        if answer.what == GO_BACK:
            self._restore_request.answered(answer)
        elif self._loaded is not None:
            self._loaded.duties.answered(answer)
            if self.has_prepared() and self.end_state is None:
                self._loaded.changes.begin()

    def _answer(self, error: DrivetrainError) -> None:
        if self.context.sender is not None:
            self.context.reply(Failure(error.code, error.what, self.setup.app_id, error.remedy))

    def _wait_clock(self) -> None:
        if self._loaded is not None:
            self._loaded.running.clock.forward()
        elif self.context.sender is not None:
            self.context.reply(ClockReply(self.clock(), is_reached=False))  # the client asks again

    def _relay(self, fragment: str, message: Message) -> None:
        if self._loaded is not None:
            self._loaded.running.relay(fragment, message)

    def _tell_others(self, executor: str, message: Message) -> None:
        for member in self.pool.ready:
            if member.id != executor and member.executor is not None:
                member.executor.tell(message, self.context.me)

    # ---- time, and the end

    def woken(self, what: str, number: int) -> None:
        """Take the step that a delay was for."""
        if self._loaded is None or self.end_state is not None:
            return
        running, duties = self._loaded.running, self._loaded.duties
        if what == GO_BACK:
            self._restore_request.ask()
        elif what == JOB:
            running.perform(running.job.job_due(number))
            self.refill()
            duties.prepare()
            duties.open()
        elif what == AGAIN:
            duties.prepare_again()
        elif what == PATIENCE:
            duties.patience_over()
        elif what.startswith(FRAGMENT):
            running.perform(running.job.fragment_due(what.removeprefix(FRAGMENT), number))

    def beat(self) -> None:
        """Repeat unanswered messages; end executors that do not stop their fragments."""
        if self._loaded is not None:
            self._loaded.running.beat()
            self._loaded.changes.beat()
            if self.has_prepared() and self.end_state is None:
                self._loaded.subscriptions.beat()
            now_ms = self.setup.clock_ms()
            if self._history.is_due(now_ms):
                self._history.note(moment_of(self.status()))

    def stopping(self, why: str) -> None:
        """Cancel the job: fragments stop at their next batch boundary."""
        self.setup.log(f"is asked to stop: {why}")
        if self._loaded is None:
            self.end(ApplicationState.KILLED)
        else:
            self._loaded.running.cancel()

    # ---- for the registry and followers

    def history(self) -> History:
        """The history of the last quarter of an hour."""
        return self._history.history()

    def has_prepared(self) -> bool:
        """Whether an executor has prepared the application."""
        return self._loaded is not None and self._loaded.duties.requests.prepared is not None

    def reported(self) -> None:
        """The registry has the clock and the new state, so that fragments may be deployed."""
        if self._loaded is None:
            return
        if self._loaded.running.clock.reported() and self.end_state is None:
            self.report()
        self._loaded.duties.open()

    def clock(self) -> int | None:
        """The smallest clock of all fragments that is in the registry; it never goes back."""
        if self.end_state is ApplicationState.SUCCEEDED:
            return FINAL_CLOCK_MS  # a later application master finds all fragments finished
        return super().clock() if self._loaded is None else self._loaded.running.clock.clock_ms

    def clock_to_report(self) -> int | None:
        """The clock that the clock service wants persisted, else the clock."""
        if self._loaded is None or self.end_state is ApplicationState.SUCCEEDED:
            return self.clock()
        return self._loaded.running.clock.to_report()

    def restarts(self) -> bytes | None:
        """State from which the next application master continues counting restarts; empty at the end."""
        if self.job is None:
            return super().restarts()
        return msgspec.msgpack.encode(self.job.saved() if self.end_state is None else {})

    def make_report(self) -> AppMasterReport:
        """Build the report for the registry, with the version of the graph once its trial is over."""
        report = super().make_report()
        known = 0 if self._loaded is None else self._loaded.changes.settled_version
        return msgspec.structs.replace(report, graph_version=known) if known else report

    def status(self) -> JobStatus:
        """The status for followers."""
        if self._loaded is None:
            return self.base_status(JobState.CREATED)
        loaded = self._loaded
        return status_of(self, loaded.running, loaded.duties, self._checkpoints, loaded.changes.in_words)

    def waiting_for(self) -> str | None:
        """The reason why the application cannot process or end yet; None while it processes."""
        if self._loaded is None:
            return waiting_reasons.PLAN
        return waiting_for(self, self._loaded.running, self._loaded.duties)
