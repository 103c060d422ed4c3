"""The base class of all application masters, including those that users write.

Problem: every application master must register, keep executors running, update followers, report, and end
cleanly, despite the loss of any message and of any other process. Only the work of the executors differs.

Design: `ApplicationMaster` is the actor `/user/app-master`. It combines its connection to the leader
(`registrar`), its executors (`executors`) and its `followers`, and calls hooks; a subclass decides how many
executors there are, what they do, and when the application is over (`end`). Streaming applications are one
subclass (`stream_app_master`). A custom one is a class in the user's file, with the actor class of its
executors in `executor` (see `custom_executor`) and its settings, with defaults, in `settings`:

    class Shell(ApplicationMaster):
        executor = ShellExecutor
        settings = {"command": "hostname"}

Hooks run one at a time, as handlers of the actor. When a user's hook raises, the application fails with its
error.

Invariants:
1. The end is in the registry before the actor stops, unless the leader reports that another application
   master took over.
2. When the end is reported, every executor's process has ended or its worker is gone, or `END_MS` have
   passed.
3. Followers get the final status.
4. No faulty message of another process ends the application, see `message_boundary`.

Called by `__main__`. The hooks' order: `started`, then any, then `stopping` at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from drivetrain.actor import Actor, ActorRef, Message, Terminated
from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, RunAction, Setup, Tick, Wake
from drivetrain.cluster.app_master.ask_failures import code_of
from drivetrain.cluster.app_master.executors.executor_pool import ExecutorPool, Member
from drivetrain.cluster.app_master.executors.executor_requests import Executors
from drivetrain.cluster.app_master.followers import Followers
from drivetrain.cluster.app_master.last_status import encode_within
from drivetrain.cluster.app_master.message_boundary import MessageBoundary
from drivetrain.cluster.app_master.registrar import Registrar
from drivetrain.cluster.leader import LeaderLink
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import (
    ErrorView,
    Follow,
    GetHistory,
    GetStatus,
    HistoryReport,
    JobState,
    JobStatus,
    Status,
    StopApplication,
    Unfollow,
)
from drivetrain.cluster.messages.registration import AppMasterRegistered, AppMasterReport
from drivetrain.config import Config
from drivetrain.core.cluster.record_limits import RecordLimits
from drivetrain.core.job.history import History
from drivetrain.runtime.error_views import error_view

BEAT_MS: Final = 1_000
FOLLOW_MS: Final = 250
GRACE_MS: Final = 8_000
"""How long executors may take to end before their workers end them."""
END_MS: Final = 30_000
"""How long to wait for workers to report that executors have ended."""
_LATEST_ERRORS: Final = 20


class ApplicationMaster(Actor):
    """The base of all application masters; see the module."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Names and defaults of the settings for `--set`; a custom application reads them with `setting`."""
    are_hooks_ours: ClassVar[bool] = False
    """Whether the hooks are Drivetrain's own: their exceptions are defects that end no application."""
    executor: ClassVar[type[Actor] | None] = None
    """The actor class of a custom application's executors, a `CustomExecutor`."""

    def __init__(self, setup: Setup) -> None:
        self.setup: Final = setup
        self.config: Final[Config] = setup.config

    def pre_start(self) -> None:
        """Start looking for the leader."""
        self.started_ms = self.setup.clock_ms()
        self.errors: list[ErrorView] = []
        self.end_state: ApplicationState | None = None
        self._end_error: ErrorView | None = None
        self._end_since_ms = 0
        self._is_stopping = False
        self.boundary = MessageBoundary(self, self.context, are_hooks_ours=self.are_hooks_ours)
        self._followers = Followers(self.context)
        self._registrar = Registrar(self.setup, self.context, self)
        self._executors = Executors(self.setup, self.context, self._registrar, self)
        self._registrar.start()
        self.context.timers.start_periodic("beat", Tick(), interval_ms=BEAT_MS)
        self.context.timers.start_periodic("follow", Wake("follow"), interval_ms=FOLLOW_MS)

    # ---- for subclasses: hooks

    def started(self, registered: AppMasterRegistered) -> None:
        """Called once, when the leader has registered this application master."""

    def executor_joined(self, member: Member) -> None:
        """Called when an executor has registered; `member.executor` is its actor."""

    def executor_lost(self, member: Member, why: str) -> None:
        """Called when an executor that had joined is gone; it is replaced automatically."""

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        """Called when no executor is available; by default the application fails when it has none at all."""
        if not self.pool.ready:
            self.end(ApplicationState.FAILED, error)

    def received(self, message: Message) -> None:
        """Called with each message that the base does not handle; `self.context.sender` is its sender."""
        self.context.unhandled(message)

    def stopping(self, why: str) -> None:
        """Called when a user or the leader ends the application; by default it ends at once."""
        self.end(ApplicationState.KILLED)

    def status(self) -> JobStatus:
        """The status for followers."""
        return self.base_status(JobState.RUNNING)

    def history(self) -> History:
        """The history of the last quarter of an hour; empty by default."""
        return History()

    def restarts(self) -> bytes | None:
        """State of restart strategies for the next application master of this application."""
        return None if self.registered is None else self.registered.restarts

    def has_prepared(self) -> bool:
        """Whether the application's new state exists, so that `fresh` must not take effect again.

        By default it does once `started` was called.
        """
        return self.registered is not None

    def clock(self) -> int | None:
        """The application's event-time clock in ms."""
        if self.setup.spec.replay_from_ms is not None:
            return self.setup.spec.replay_from_ms  # the registry's clock is of the previous life
        return None if self.registered is None else self.registered.clock_ms

    def clock_to_report(self) -> int | None:
        """The clock for the next report; by default the application's clock."""
        return self.clock()

    def reported(self) -> None:
        """Called when the registry has a report."""

    def recovered(self) -> None:
        """Called when a message of another process was refused; repair what its handler left half done."""

    def beat(self) -> None:
        """Called about once a second, until the end."""

    def waiting_for(self) -> str | None:
        """The reason why the application waits, as words to follow "waiting for"; by default executors."""
        return None if self.pool.ready else waiting_reasons.executors(self.pool)

    # ---- for subclasses: what they can do

    @property
    def now_ms(self) -> int:
        """A clock that never goes back."""
        return int(self.context.system.loop.time() * 1000)

    @property
    def pool(self) -> ExecutorPool:
        """The executors; those in `ready` can work."""
        return self._executors.pool

    @property
    def link(self) -> LeaderLink:
        """The link to the leader; `link.leader` is its actor, None while there is none."""
        return self._registrar.link

    @property
    def registered(self) -> AppMasterRegistered | None:
        """The leader's answer to the first registration; None before."""
        return self._registrar.registered

    @property
    def is_known_prepared(self) -> bool:
        """Whether the registry records that the application's new state exists; see `has_prepared`."""
        return self._registrar.is_known_prepared

    def setting(self, name: str) -> str:
        """The value of one of `settings`, as `--set` gave it."""
        return self.setup.spec.settings.get(name, self.settings[name])

    def want_executor(self, worker: str | None = None) -> None:
        """Add an executor, on the worker of that name or on any; it is replaced when lost."""
        self._executors.want(worker)

    def stop_executor(self, executor_id: str, why: str) -> None:
        """End an executor's process and replace the executor."""
        self._executors.stop(executor_id, why)

    def refill(self) -> None:
        """Request missing executors now."""
        self._executors.refill()

    def report(self) -> None:
        """Send a report to the leader now, unless one is under way."""
        self._registrar.report()

    def ask(self, what: str, number: int, whom: ActorRef, message: Message, timeout_ms: int) -> None:
        """Ask without waiting; `answered` gets the outcome."""
        self.context.pipe_to_self(
            whom.ask(message, timeout_ms=timeout_ms),
            lambda answer: AskOutcome(what, number, answer),
            lambda error: AskOutcome(what, number, None, code_of(error), str(error)),
        )

    def answered(self, answer: AskOutcome) -> None:
        """Called with the outcome of an `ask`."""

    def woken(self, what: str, number: int) -> None:
        """Called when a delay that `wake` began is over."""

    def wake(self, what: str, number: int, delay_ms: int) -> None:
        """Call `woken(what, number)` after a delay; `what` must not be `fill`, `follow` or `registration`."""
        self.context.timers.start_once(f"{what}/{number}", Wake(what, number), delay_ms=delay_ms)

    def changed(self) -> None:
        """Send followers the status soon."""
        self._followers.is_behind = True

    def note(self, error: ErrorView) -> None:
        """Add an error to the latest ones, recovered from or not."""
        self.errors = [*self.errors, error][-_LATEST_ERRORS:]
        self.setup.log(f"{error.code}: {error.what}")
        self.changed()

    def base_status(self, state: JobState) -> JobStatus:
        """A status with everything that the base knows."""
        final = _JOB_STATES.get(self.end_state) if self.end_state is not None else None
        awaited = None
        if self.end_state is None:
            awaited = waiting_reasons.LEADER if self.registered is None else self.waiting_for()
        return JobStatus(
            app_id=self.setup.app_id,
            epoch=self.setup.epoch,
            state=final or state,
            started_ms=self.started_ms,
            now_ms=self.setup.clock_ms(),
            clock_ms=self.clock(),
            executors=self._executors.views(),
            error=self._end_error,
            waiting_for=awaited,
            errors=tuple(self.errors),
        )

    def end(self, state: ApplicationState, error: ErrorView | None = None) -> None:
        """End the application: stop the executors, report, then stop. Only the first call counts."""
        if self.end_state is not None or (self._executors.hands_over and state is ApplicationState.FAILED):
            return  # what fails while it hands over continues elsewhere
        self.end_state, self._end_error = state, error
        self._end_since_ms = self.now_ms
        if error is not None:
            self.note(error)
        self._executors.end(state.value)
        self.changed()
        self._continue_end()

    # ---- messages

    def receive(self, message: Message) -> None:
        """Handle one message; `message_boundary` handles exceptions."""
        self.boundary.take(message, self._handle)

    def call_hook(self, hook: Callable[[], None]) -> None:
        """Call a hook on behalf of another process."""
        self.boundary.call_hook(hook)

    def fail(self, error: Exception) -> None:
        """End the application with this error; after the end, only record it."""
        view = error_view(error)
        if self.end_state is not None:
            self.note(view)
        self.end(ApplicationState.FAILED, view)

    def _handle(self, message: Message) -> None:  # noqa: C901 - a table of messages
        if self._registrar.handle(message):
            return
        if isinstance(message, Terminated):
            self._followers.forget(message.actor)
        if self._executors.hand_over(message) or self._executors.handle(message):
            self._continue_end()
            return
        match message:
            case Tick():
                self._beat()
            case Wake("follow"):
                self._followers.tell(self.status)
            case Wake(what, number):
                self.woken(what, number)
            case AskOutcome():
                self.call_hook(lambda: self.answered(message))
            case RunAction(action):
                action()
            case GetStatus():
                self.context.reply(Status(self.status()))
            case GetHistory():
                self.context.reply(HistoryReport(self.history()))
            case Follow(follower):
                self._followers.add(follower, self.status())
            case Unfollow(follower):
                self._followers.forget(follower)
            case StopApplication(epoch, why) if epoch >= self.setup.epoch:
                if self.end_state is None:
                    self.call_hook(lambda: self.stopping(why))
            case _:
                self.call_hook(lambda: self.received(message))

    # ---- the leader

    def leader_accepted(self, registered: AppMasterRegistered, *, is_first: bool) -> None:
        """A leader, perhaps a new one, has registered this application master."""
        if is_first:
            self.call_hook(lambda: self.started(registered))
            self.changed()
        self._executors.ask_again()

    def make_report(self) -> AppMasterReport:
        """Build the report for the registry."""
        is_end = self.end_state is not None and self._is_quiet()
        return AppMasterReport(
            self.setup.app_id,
            self.setup.epoch,
            self.end_state if is_end and self.end_state is not None else ApplicationState.ACTIVE,
            self.clock_to_report(),
            0 if self.registered is None else self.registered.graph_version,
            self._end_error.what if is_end and self._end_error is not None else None,
            encode_within(self.status(), RecordLimits().result_bytes) if is_end else None,
            self.restarts(),
            self.has_prepared(),
        )

    def report_taken(self, *, is_end: bool) -> None:
        """The registry has a report."""
        self.call_hook(self.reported)
        if is_end:
            self._stop()

    def abandon(self, why: str) -> None:
        """Stop without a report: another application master has the application."""
        if self._is_stopping:
            return
        self.setup.log(f"stops: {why}")
        if self.end_state is None and not self._executors.hands_over:
            self.end_state = ApplicationState.FAILED
            self._end_error = ErrorView("abandoned", why)
        self.pool.end()
        self._executors.stop_all()
        self._stop()

    # ---- the end

    def _beat(self) -> None:
        self._registrar.beat()
        self._executors.beat()
        if self.end_state is None:
            self.beat()
        self._continue_end()

    def _is_quiet(self) -> bool:
        return self.pool.is_empty or self.now_ms - self._end_since_ms > END_MS

    def _continue_end(self) -> None:
        if self.end_state is None or self._is_stopping:
            return
        if self._is_quiet():
            self.report()
        elif self.now_ms - self._end_since_ms > GRACE_MS:
            self._executors.stop_all()

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            self._followers.is_behind = True
            self._followers.tell(self.status)
            self.context.stop()


_JOB_STATES: Final = {
    ApplicationState.SUCCEEDED: JobState.FINISHED,
    ApplicationState.FAILED: JobState.FAILED,
    ApplicationState.KILLED: JobState.CANCELED,
}
