"""The shell around the pool of executors: exchanges messages with the leader, workers and executors.

Design: messages of the leader, of workers and of executors become events of `ExecutorPool`; this module
performs its effects. It calls the application master (`ExecutorUser`) for decisions that only it can make.

When the process is asked to end, the application master hands over: every executor finishes its batch and
ends, then it stops without a report, and the leader starts the next one elsewhere.

Invariants: those of `executor_pool`; an executor of another application or epoch is refused.

Called by `app_master`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from drivetrain.actor import ActorRef, Context, Failure, Message, Terminated
from drivetrain.cluster.access.system_names import request_prefix
from drivetrain.cluster.app_master.app_master_messages import HandOverRequested, Setup, Wake
from drivetrain.cluster.app_master.executors.executor_pool import (
    AskForSlots,
    CancelSlots,
    ExecutorPool,
    LaunchExecutor,
    Member,
    PoolEffect,
    ReportMemberLost,
    ReportUnavailable,
    ScheduleFill,
    StopExecutor,
)
from drivetrain.cluster.app_master.registrar import STALE_EPOCH, Registrar
from drivetrain.cluster.messages.executing import EndExecutor, ExecutorRegistered, RegisterExecutor
from drivetrain.cluster.messages.following import ErrorView, ExecutorView
from drivetrain.cluster.messages.launching import (
    Launch,
    Launched,
    LaunchFailed,
    ProcessExited,
    ProcessKind,
    ReadLog,
    StopProcess,
)
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots, SlotsAllocated, SlotsRefused
from drivetrain.config.catalog import application as keys
from drivetrain.core.job.restarts import RestartKind, RestartPolicy, RestartStrategy

EXECUTOR_REPORT_MS: Final = 500
_TAIL: Final = 1_500
_REMEDY: Final = (
    "start more workers, give them more slots, or ask for fewer: app.executors, app.executor-slots"
)


class ExecutorUser(Protocol):
    """The methods of its application master that the shell needs."""

    @property
    def now_ms(self) -> int:
        """A clock that never goes back."""

    def executor_joined(self, member: Member) -> None:
        """An executor registered."""

    def executor_lost(self, member: Member, why: str) -> None:
        """An executor that had joined is gone."""

    def no_executor(self, place: str | None, error: ErrorView, retryable: bool) -> None:
        """No executor is available."""

    def call_hook(self, hook: Callable[[], None]) -> None:
        """Call one of the three hooks above; an exception in a user's hook fails the application."""

    def note(self, error: ErrorView) -> None:
        """Record an error for followers."""

    def changed(self) -> None:
        """Something that followers see has changed."""

    def abandon(self, why: str) -> None:
        """Stop: another application master has the application."""


class Executors:
    """The executors of one application master, in the actor whose context is given."""

    def __init__(self, setup: Setup, context: Context, registrar: Registrar, user: ExecutorUser) -> None:
        self._setup: Final = setup
        self._config: Final = setup.config
        self._context: Final = context
        self._registrar: Final = registrar
        self._user: Final = user
        replacing = RestartPolicy(RestartKind.FAILURE_RATE, attempts=10, delay_ms=500)
        self.pool: Final = ExecutorPool(
            request_prefix(setup.app_id, setup.epoch),
            RestartStrategy(replacing, context.system.rng),
            setup.config[keys.START_TIMEOUT],
        )

        self.hands_over: str | None = None
        """The reason why this application master makes way for another; None while it stays."""

    # ---- requests of the application master

    def want(self, worker: str | None) -> None:
        """Add an executor, on that worker or on any."""
        self._perform(self.pool.want(worker, self._user.now_ms))

    def stop(self, executor_id: str, why: str) -> None:
        """End an executor's process and replace the executor."""
        self._perform(self.pool.stop(executor_id, why, self._user.now_ms))

    def refill(self) -> None:
        """Request missing executors now."""
        self._perform(self.pool.fill(self._user.now_ms))

    def ask_again(self) -> None:
        """Repeat open requests for slots: the leader has changed."""
        for member in self.pool.members.values():
            if member.allocation is None:
                self._ask_for_slots(member.request_id, member.place)

    def end(self, why: str) -> None:
        """Request no more executors, and send `EndExecutor` to the existing ones."""
        self._perform(self.pool.end())
        for member in self.pool.ready:
            assert member.executor is not None
            member.executor.tell(EndExecutor(self._setup.epoch, why), self._context.me)

    def _hand_over(self, why: str) -> None:
        """Let every executor finish its batch and end, for the next application master to continue there."""
        if self.hands_over is None and not self.pool.is_ending:
            self.hands_over = why
            ready = {member.id for member in self.pool.ready}
            self.end(why)
            for starting in [m.id for m in self.pool.members.values() if m.id not in ready]:
                self.stop(starting, why)
        self._look_handed_over()

    def _look_handed_over(self) -> None:
        if self.hands_over is not None and self.pool.is_empty:
            self._user.abandon(self.hands_over)

    def stop_all(self) -> None:
        """Let workers end all remaining executors."""
        self._perform(self.pool.stop_all(self._user.now_ms))

    def beat(self) -> None:
        """Time has passed."""
        self._perform(self.pool.tick(self._user.now_ms))
        self._look_handed_over()

    def views(self) -> tuple[ExecutorView, ...]:
        """The executors for the status."""
        slots = self._config[keys.EXECUTOR_SLOTS]
        return tuple(
            ExecutorView(
                member.id,
                None if member.allocation is None else member.allocation.worker_name,
                None if member.allocation is None else member.allocation.host,
                member.pid,
                slots,
                member.state.value,
                member.spark_master,
            )
            for member in self.pool.members.values()
        )

    # ---- messages

    def hand_over(self, message: Message) -> bool:
        """Handle the request to hand over; False for any other message."""
        if isinstance(message, HandOverRequested):
            self._hand_over(message.why)
        return isinstance(message, HandOverRequested)

    def handle(self, message: Message) -> bool:
        """Handle a message of the leader, a worker or an executor about executors; False for any other."""
        now_ms = self._user.now_ms
        match message:
            case Wake("fill"):
                self.refill()
            case SlotsAllocated():
                self._context.watch(message.worker)
                self._perform(self.pool.allocated(message, now_ms))
            case SlotsRefused(request_id, code, why):
                if code == STALE_EPOCH:
                    self._user.abandon(why)
                else:
                    self._perform(self.pool.refused(request_id, code, why))
            case Launched(launch_id, _, pid):
                self.pool.launched(launch_id, pid)
            case LaunchFailed(launch_id, code, why):
                self._perform(self.pool.gone(launch_id, f"{code}: {why}", now_ms, ended=True))
            case ProcessExited():
                self._exited(message, now_ms)
            case Terminated(actor):
                member = next((m for m in self.pool.members.values() if m.executor == actor), None)
                if member is not None:
                    why = f"it is {message.cause.value}"
                    self._perform(self.pool.gone(member.id, why, now_ms, ended=False))
                self._perform(self.pool.worker_gone(actor, now_ms))
            case RegisterExecutor():
                self._register(message)
            case ReadLog():
                self._read_log(message)
            case _:
                return False
        self._look_handed_over()
        return True

    def _exited(self, message: ProcessExited, now_ms: int) -> None:
        why = f"its process ended with status {message.status}"
        tail = message.log.strip()[-_TAIL:]
        if tail and message.status != 0:
            why = f"{why}; the end of its log:\n{tail}"
        self._perform(self.pool.gone(message.launch_id, why, now_ms, ended=True))

    def _register(self, message: RegisterExecutor) -> None:
        setup, known = self._setup, self.pool.find(message.executor_id)
        is_new = known is not None and known.executor is None
        is_ours = (message.app_id, message.epoch) == (setup.app_id, setup.epoch)
        if not is_ours or not self.pool.registered(message.executor_id, message.executor, message.pid):
            self._context.reply(Failure(STALE_EPOCH, "this application master does not know that executor"))
            return
        self._context.reply(ExecutorRegistered(setup.spec, EXECUTOR_REPORT_MS))
        self._context.watch(message.executor)
        if is_new and known is not None:
            self._user.changed()
            self._user.call_hook(lambda: self._user.executor_joined(known))

    def _read_log(self, message: ReadLog) -> None:
        having = [m for m in self.pool.members.values() if m.allocation is not None]
        member = next((m for m in having if message.process and m.id in message.process), None)
        chosen = member or (having[0] if having else None)
        if chosen is None or chosen.allocation is None:
            self._context.reply(Failure("no-log", "there is no executor"))
        else:
            self._context.forward(chosen.allocation.worker)

    # ---- effects of the pool

    def _perform(self, effects: Sequence[PoolEffect]) -> None:
        me, user, timers = self._context.me, self._user, self._context.timers
        for effect in effects:
            match effect:
                case AskForSlots(request_id, place):
                    self._ask_for_slots(request_id, place)
                case CancelSlots(request_id) if self._registrar.leader is not None:
                    self._registrar.leader.tell(CancelRequest(request_id, self._setup.app_id), me)
                case LaunchExecutor(allocation):
                    allocation.worker.tell(self._launch(allocation, me), me)
                case StopExecutor(launch_id, worker):
                    worker.tell(StopProcess(launch_id), me)
                case ReportMemberLost(member, why):
                    user.note(ErrorView("executor-lost", f"executor {member.id} is gone: {why}"))
                    user.call_hook(partial(user.executor_lost, member, why))
                case ReportUnavailable(place, code, why, retryable):
                    error = ErrorView(code, why, remedy=_REMEDY)
                    user.note(error)
                    timers.start_once("fill", Wake("fill"), delay_ms=self._config[keys.SLOTS_TIMEOUT])
                    user.call_hook(partial(user.no_executor, place, error, retryable))
                case ScheduleFill(delay_ms):
                    timers.start_once("fill", Wake("fill"), delay_ms=delay_ms)
        user.changed()

    def _launch(self, allocation: SlotsAllocated, me: ActorRef) -> Launch:
        setup = self._setup
        return Launch(
            allocation.allocation_id,
            ProcessKind.EXECUTOR,
            setup.app_id,
            setup.epoch,
            setup.spec,
            allocation.slots,
            me,
            str(me.path),
            setup.submission,
        )

    def _ask_for_slots(self, request_id: str, place: str | None) -> None:
        setup, leader = self._setup, self._registrar.leader
        if leader is None or not self._registrar.is_registered:
            return
        request = RequestSlots(
            request_id,
            setup.app_id,
            setup.epoch,
            0 if setup.together_on is not None else self._config[keys.EXECUTOR_SLOTS],
            self._context.me,
            setup.spec.priority,
            self._config[keys.PLACEMENT],
            worker=place,
            timeout_ms=self._config[keys.SLOTS_TIMEOUT],
        )
        leader.tell(request, self._context.me)
