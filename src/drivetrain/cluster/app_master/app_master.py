"""Application masters: what every kind of them does, and the base class for those that users write.

Problem: whoever runs an application on a cluster must register, keep executors, tell followers, report, and
end cleanly, through the loss of any message and of any other process. Only what the executors *do* differs.

Design: `ApplicationMaster` is the actor `/user/app-master`. It joins its line to the leader (`registrar`),
its executors (`executors`) and its `followers`, and calls hooks; a subclass says how many executors there
are, what they are told, and when the application is over (`end`). Streaming applications are one subclass
(`stream_app_master`). A custom one is a class in the user's file, with the actor class of its executors in
`executor` (see `custom_executor`) and its settings, with defaults, in `settings`:

    class Shell(ApplicationMaster):
        executor = ShellExecutor
        settings = {"command": "hostname"}

Hooks run one at a time, as handlers of the actor. A hook of the user's that raises fails the application with
its error.

Invariants:
1. The end is in the registry before the actor stops, unless the leader says that another one took over.
2. When the end is reported, every executor was told to stop, and its worker said that it has, or is gone.
3. Who follows is told the final status.
4. No message of another process ends the application by being wrong, see `message_boundary`.

Called by `__main__`. The hooks' order: `started`, then any, then `stopping` at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from drivetrain.actor import Actor, ActorRef, Message, Terminated
from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.ask_failures import code_of
from drivetrain.cluster.app_master.executors.executor_pool import ExecutorPool, Member
from drivetrain.cluster.app_master.executors.executor_requests import Executors
from drivetrain.cluster.app_master.followers import Followers
from drivetrain.cluster.app_master.last_status import encode_within
from drivetrain.cluster.app_master.message_boundary import MessageBoundary
from drivetrain.cluster.app_master.own_messages import Answered, Beat, Call, Setup, Wake
from drivetrain.cluster.app_master.registrar import Registrar
from drivetrain.cluster.error_views import error_view
from drivetrain.cluster.leader import LeaderLink
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import (
    ErrorView,
    Follow,
    GetStatus,
    JobState,
    JobStatus,
    Status,
    StopApplication,
    Unfollow,
)
from drivetrain.cluster.messages.registration import AppMasterRegistered, AppMasterReport
from drivetrain.config import Config
from drivetrain.core.cluster.record_limits import RecordLimits

BEAT_MS: Final = 1_000
FOLLOW_MS: Final = 250
GRACE_MS: Final = 8_000
"""How long executors may take to end by themselves before their workers end them."""
END_MS: Final = 30_000
"""How long to wait for workers to say that executors have ended."""
_LATEST_ERRORS: Final = 20


class ApplicationMaster(Actor):
    """The base of all application masters; see the module."""

    settings: ClassVar[Mapping[str, str]] = {}
    """Names and defaults of what `--set` may say; a custom application reads them with `setting`."""
    are_hooks_ours: ClassVar[bool] = False
    """Whether the hooks are Drivetrain's own: one that raises is a defect then, not the application's end."""
    executor: ClassVar[type[Actor] | None] = None
    """The actor class of a custom application's executors, a `CustomExecutor`."""

    def __init__(self, setup: Setup) -> None:
        self.setup: Final = setup
        self.config: Final[Config] = setup.config

    def pre_start(self) -> None:
        """Begin: look for the leader."""
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
        self.context.timers.start_periodic("beat", Beat(), interval_ms=BEAT_MS)
        self.context.timers.start_periodic("follow", Wake("follow"), interval_ms=FOLLOW_MS)

    # ---- for subclasses: hooks

    def started(self, registered: AppMasterRegistered) -> None:
        """The leader says go; called once."""

    def executor_joined(self, member: Member) -> None:
        """An executor registered; `member.executor` is its actor."""

    def executor_lost(self, member: Member, why: str) -> None:
        """An executor that had joined is gone; another one follows by itself."""

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        """There is no executor to be had; by default the application fails when it has none at all."""
        if not self.pool.ready:
            self.end(ApplicationState.FAILED, error)

    def received(self, message: Message) -> None:
        """A message that the base does not know; `self.context.sender` is who sent it."""
        self.context.unhandled(message)

    def stopping(self, why: str) -> None:
        """Somebody wants the application to end; by default it does, at once."""
        self.end(ApplicationState.KILLED)

    def status(self) -> JobStatus:
        """What followers see."""
        return self.base_status(JobState.RUNNING)

    def restarts(self) -> bytes | None:
        """What the next application master of this application must know."""
        return None if self.registered is None else self.registered.restarts

    def has_prepared(self) -> bool:
        """Whether the application's state has begun, so that `fresh` must not be obeyed again.

        By default it has once `started` was called.
        """
        return self.registered is not None

    def clock(self) -> int | None:
        """The application's event-time clock in ms."""
        if self.setup.spec.replay_from_ms is not None:
            return self.setup.spec.replay_from_ms  # what the registry knows is of the life before
        return None if self.registered is None else self.registered.clock_ms

    def clock_to_report(self) -> int | None:
        """The clock that the next report says; by default the application's clock."""
        return self.clock()

    def reported(self) -> None:
        """The leader has taken a report."""

    def recovered(self) -> None:
        """A message of another process was refused; put right what its handling has left half done."""

    def beat(self) -> None:
        """Called about once a second, until the end."""

    def waiting_for(self) -> str | None:
        """What the application waits for, in words that fit behind "waiting for"; by default executors."""
        return None if self.pool.ready else waiting_reasons.executors(self.pool)

    # ---- for subclasses: what they can do

    @property
    def now_ms(self) -> int:
        """A clock that does not go back."""
        return int(self.context.system.loop.time() * 1000)

    @property
    def pool(self) -> ExecutorPool:
        """The executors: `ready` are those that take work."""
        return self._executors.pool

    @property
    def link(self) -> LeaderLink:
        """The line to the leader; `link.leader` is its actor, None while there is none."""
        return self._registrar.link

    @property
    def registered(self) -> AppMasterRegistered | None:
        """What the leader said when this application master registered; None before."""
        return self._registrar.registered

    @property
    def is_known_prepared(self) -> bool:
        """Whether the registry knows that the application's state has begun; see `has_prepared`."""
        return self._registrar.is_known_prepared

    def setting(self, name: str) -> str:
        """The value of one of `settings`, as `--set` gave it."""
        return self.setup.spec.settings.get(name, self.settings[name])

    def want_executor(self, worker: str | None = None) -> None:
        """Have one more executor, on the worker of that name or anywhere; it is replaced when lost."""
        self._executors.want(worker)

    def stop_executor(self, executor_id: str, why: str) -> None:
        """Give an executor up: its process is ended, and another takes its place."""
        self._executors.stop(executor_id, why)

    def refill(self) -> None:
        """Ask for missing executors now."""
        self._executors.refill()

    def report(self) -> None:
        """Tell the leader now how it stands, unless that is under way."""
        self._registrar.report()

    def ask(self, what: str, number: int, whom: ActorRef, message: Message, timeout_ms: int) -> None:
        """Ask without waiting: the outcome comes to `answered`."""
        self.context.pipe_to_self(
            whom.ask(message, timeout_ms=timeout_ms),
            lambda answer: Answered(what, number, answer),
            lambda error: Answered(what, number, None, code_of(error), str(error)),
        )

    def answered(self, answer: Answered) -> None:
        """The outcome of an `ask`."""

    def woken(self, what: str, number: int) -> None:
        """A delay that `wake` began is over."""

    def wake(self, what: str, number: int, delay_ms: int) -> None:
        """Have `woken(what, number)` called later; `what` does not begin with a word of the base."""
        self.context.timers.start_once(f"{what}/{number}", Wake(what, number), delay_ms=delay_ms)

    def changed(self) -> None:
        """Followers are to be told soon."""
        self._followers.is_behind = True

    def note(self, error: ErrorView) -> None:
        """Remember an error among the latest, recovered from or not."""
        self.errors = [*self.errors, error][-_LATEST_ERRORS:]
        self.setup.log(f"{error.code}: {error.what}")
        self.changed()

    def base_status(self, state: JobState) -> JobStatus:
        """A status with all that the base knows."""
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
        """The application is over: stop the executors, then report, then stop. Only the first call counts."""
        if self.end_state is not None:
            return
        self.end_state, self._end_error = state, error
        self._end_since_ms = self.now_ms
        if error is not None:
            self.note(error)
        self._executors.end(state.value)
        self.changed()
        self._go_on_ending()

    # ---- messages

    def receive(self, message: Message) -> None:
        """Handle one message; see `message_boundary` for what becomes of an exception."""
        self.boundary.take(message, self._handle)

    def call_hook(self, hook: Callable[[], None]) -> None:
        """Call a hook because of another process."""
        self.boundary.call_hook(hook)

    def fail(self, error: Exception) -> None:
        """The application has failed with this; it is noted also after the end."""
        view = error_view(error)
        if self.end_state is not None:
            self.note(view)
        self.end(ApplicationState.FAILED, view)

    def _handle(self, message: Message) -> None:  # noqa: C901 - a table of messages
        if self._registrar.handle(message):
            return
        if isinstance(message, Terminated):
            self._followers.forget(message.actor)
        if self._executors.handle(message):
            self._go_on_ending()
            return
        match message:
            case Beat():
                self._beat()
            case Wake("follow"):
                self._followers.tell(self.status)
            case Wake(what, number):
                self.woken(what, number)
            case Answered():
                self.call_hook(lambda: self.answered(message))
            case Call(action):
                action()
            case GetStatus():
                self.context.reply(Status(self.status()))
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
        """The leader, perhaps a new one, says go."""
        if is_first:
            self.call_hook(lambda: self.started(registered))
            self.changed()
        self._executors.ask_again()

    def make_report(self) -> AppMasterReport:
        """What the registry is to know now."""
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
        """Stop without a word in the registry: somebody else has it."""
        if self._is_stopping:
            return
        self.setup.log(f"stops: {why}")
        if self.end_state is None:
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
        self._go_on_ending()

    def _is_quiet(self) -> bool:
        return self.pool.is_empty or self.now_ms - self._end_since_ms > END_MS

    def _go_on_ending(self) -> None:
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
