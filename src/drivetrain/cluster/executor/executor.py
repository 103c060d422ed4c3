"""The executor's actor: connects an application master to the threads that use Spark.

Problem: Spark blocks for seconds, and an actor must not; messages to the application master get lost; and
nothing may keep running here after the application master is gone or was replaced.

Design: the actor keeps its attempts by fragment, and their threads send it local messages. Outcomes
(`FragmentChanged`) enter a queue, from which each is sent until the application master answers; the last
figures are sent before each outcome, so that they arrive first. Preparing and concluding run in threads, too,
and are answered when they are done.

Invariants:
1. Outcomes of one executor reach the application master in order, each repeated until it answers
   `FragmentChangedReply`.
2. A fragment has one active attempt here; a newer one waits until the older has stopped.
3. Messages of another epoch change nothing.
4. The executor ends when its application master is gone, has another epoch, or sends `EndExecutor`, and when
   Spark is lost.

Called by `__main__`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from drivetrain.actor import ActorRef, Failure, Message, Terminated
from drivetrain.cluster.executor.attempt_thread import run_in_thread
from drivetrain.cluster.executor.change_checks import checked
from drivetrain.cluster.executor.executor_registration import register
from drivetrain.cluster.executor.failure_views import error_of, is_retryable, why_it_ends
from drivetrain.cluster.executor.fragment_attempt import Attempt, AttemptChanged
from drivetrain.cluster.executor.report_outbox import STALE_EPOCH, Outbox
from drivetrain.cluster.executor.spark_work import SparkWork
from drivetrain.cluster.executor.thread_stacks import stacks_of
from drivetrain.cluster.guarded import GuardedActor, is_own
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.messages.changing import (
    CheckScaling,
    CheckVersion,
    LeavePermitted,
    VersionReport,
    VersionReports,
    VersionsChanged,
)
from drivetrain.cluster.messages.checkpoints import CheckpointCommand, FragmentMoved, checkpoint_answer
from drivetrain.cluster.messages.executing import (
    CancelFragment,
    Conclude,
    Concluded,
    Deploy,
    EndExecutor,
    ExecutorReport,
    FragmentChanged,
    FragmentOutcome,
    Prepare,
    PrepareFailed,
    RegisterExecutor,
)
from drivetrain.cluster.messages.flow import RelayedFlowMessage
from drivetrain.cluster.messages.following import GetThreads
from drivetrain.core.checkpoint.transaction import Command, ParticipantEvent
from drivetrain.core.cluster.record_limits import cut
from drivetrain.core.flow.flow import FlowMessage
from drivetrain.runtime.error_views import error_view
from drivetrain.spark.flow.flow_actor import FlowController, FlowMessageReceived
from drivetrain.spark.run.fragment_driver import FragmentDriver
from drivetrain.spark.session import lost_java

_FLUSH_S: Final = 3.0
_PRINTED_CHARACTERS: Final = 64_000

log = logging.getLogger(__name__)


class _Registered(Message, frozen=True, tag="dt.local.executor-registered"):
    report_interval_ms: int


class _Report(Message, frozen=True, tag="dt.local.executor-report"):
    pass


class _WorkDone(Message, frozen=True, tag="dt.local.executor-done"):
    """Work in the background has ended; `broken` is the reason when it failed unexpectedly."""

    broken: str | None = None


class _Flushed(Message, frozen=True, tag="dt.local.executor-flushed"):
    """The application master has answered all outcomes, or (`end`) never will."""

    end: str | None = None


class DrainRequested(Message, frozen=True, tag="dt.local.executor-end-now"):
    """From the process: a signal asks to drain and end."""

    why: str


class Executor(GuardedActor):
    """`/user/executor`. `end` is called once with the exit code, when all of its attempts are over.

    `start` runs the steps of an attempt, by default in a thread.
    """

    def __init__(
        self,
        launch: LaunchFile,
        work: SparkWork,
        app_master: ActorRef,
        end: Callable[[int], None],
        start: Callable[[Attempt], None] = run_in_thread,
    ) -> None:
        self._launch = launch
        self._work, self._app_master = work, app_master
        self._end, self._start = end, start
        self._attempts: dict[str, Attempt] = {}
        self._waiting: dict[str, Deploy] = {}
        self._cancelled: dict[str, int] = {}  # by fragment, the newest attempt that must not start
        self._exit_code: int | None = None
        self._outbox = Outbox(app_master, lambda change: self._drop(change.fragment, change.attempt))

    def pre_start(self) -> None:
        """Register until it succeeds; flow control starts at once, before any of its messages."""
        self._work.checkpoint_ways = (self._send_command, self._answer_checkpoint)
        self._work.tell_seen = self._tell_seen
        system, me = self.context.system, self.context.me
        self._work.copies.report = lambda error: system.tell_threadsafe(me, _WorkDone(str(error)))
        self._flow = self.context.spawn(lambda: FlowController(self._work.flow, self._forward), "flow")
        launch = self._launch
        who = launch.launch_id, launch.app_id, launch.epoch
        request = RegisterExecutor(*who, me, os.getpid(), launch.host)
        self.context.pipe_to_self(
            register(self._app_master, request),
            lambda answer: _Registered(answer.report_interval_ms),
            lambda error: DrainRequested(f"not registered: {error}"),
        )

    def ends_with(self, message: Message, error: Exception) -> bool:
        """Fail on errors in handling the executor's own messages and the application master's end."""
        return is_own(message) or isinstance(message, Terminated)

    def act(self, message: Message) -> None:  # noqa: C901 - one line for each kind of message
        """Handle one message."""
        sender = self.context.sender
        match message:
            case _Registered(report_interval_ms):
                self.context.watch(self._app_master)
                self.context.timers.start_periodic("report", _Report(), interval_ms=report_interval_ms)
            case _Report():
                self._report()
                if lost_java.java_has_ended() and all(a.is_over for a in self._attempts.values()):
                    self._begin_to_end(70, "Spark has ended", drain=False)
            case RelayedFlowMessage(epoch, flow_message):
                if epoch == self._launch.epoch:
                    self._flow.tell(FlowMessageReceived(flow_message, is_relayed=True))
            case CheckpointCommand(epoch, fragment, input, command):
                if epoch == self._launch.epoch:
                    self._work.take_command(fragment, input, command)
            case FragmentMoved(epoch, fragment):
                attempt = self._attempts.get(fragment)
                if epoch == self._launch.epoch and attempt is not None and attempt.is_over:
                    attempt.retire()
            case VersionsChanged(epoch):
                if epoch == self._launch.epoch and self._work.versions is not None:
                    self._work.versions.look_again()
            case LeavePermitted():
                self._let_leave(message)
            case Prepare() | Deploy() | Conclude() | CheckVersion() | CheckScaling() | EndExecutor() if (
                message.epoch != self._launch.epoch
            ):
                self._refuse(message.epoch)
            case Prepare():
                self._in_background(self._answer(sender, partial(self._prepare, message), running=False))
            case Deploy():
                self._deploy(message)
            case CancelFragment():
                self._cancel(message)
            case CheckVersion() | CheckScaling():
                check = partial(checked, self._work, message, self._drivers())
                self._in_background(self._answer(sender, check, running=False))
            case Conclude():
                self._in_background(self._answer(sender, partial(self._conclude, message), running=True))
            case GetThreads():
                self._in_background(self._answer(sender, stacks_of(self._launch), running=True))
            case EndExecutor(why=why) | DrainRequested(why):
                self._begin_to_end(0, why, drain=True)
            case AttemptChanged():
                self._changed(message)
            case _Flushed(end):
                if end is not None:
                    self._outbox.close()
                    self._begin_to_end(0, end, drain=False)
                self._flush()
            case _WorkDone(broken):
                if broken is not None:
                    self._begin_to_end(70, broken, drain=False)
            case Terminated():
                self._begin_to_end(0, "the application master is gone", drain=False)
            case _:
                self.context.unhandled(message)

    def _forward(self, message: FlowMessage) -> None:
        """Relay a message for a fragment elsewhere: the application master knows its executor."""
        self._app_master.tell(RelayedFlowMessage(self._launch.epoch, message), self.context.me)

    def _send_command(self, fragment: str, input: str, command: Command) -> None:
        """Send a checkpoint command to a fragment that does not run here. From any thread."""
        message = CheckpointCommand(self._launch.epoch, fragment, input, command)
        self.context.system.tell_threadsafe(self._app_master, message)

    def _answer_checkpoint(self, event: ParticipantEvent) -> None:
        """Send an event to the coordinator of checkpoints. From any thread."""
        self.context.system.tell_threadsafe(self._app_master, checkpoint_answer(self._launch.epoch, event))

    def _tell_seen(self, seen: VersionReport) -> None:
        """Send what an attempt has seen of the versions. From any thread."""
        message = VersionReports(self._launch.launch_id, self._launch.epoch, (seen,))
        self.context.system.tell_threadsafe(self._app_master, message)

    def _refuse(self, epoch: int) -> None:
        why = f"this executor is of epoch {self._launch.epoch}, not {epoch}"
        log.warning("refused: %s", why)
        if self.context.sender is not None:
            self.context.reply(Failure(STALE_EPOCH, why))

    # -- preparing and concluding -------------------------------------------------------------------------

    def _prepare(self, message: Prepare) -> Message:
        return self._work.prepare(
            fresh=message.fresh, replay_from_ms=message.replay_from_ms, savepoint=message.savepoint
        )

    def _conclude(self, message: Conclude) -> Message:
        return Concluded(cut(self._work.conclude(message), _PRINTED_CHARACTERS) or "")

    async def _answer(self, asker: ActorRef | None, work: Callable[[], Message], *, running: bool) -> None:
        """Answer with what `work` returns, in a thread, or with its error: often one of the user's code."""
        answer: Message
        try:
            answer = await self.context.system.run_blocking(work)
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is the answer
            answer = _failed(raised, running=running)
        if asker is not None:
            asker.tell(answer)

    def _in_background(self, work: Awaitable[None]) -> None:
        self.context.pipe_to_self(
            work,
            lambda _: _WorkDone(),
            lambda error: _WorkDone(f"{type(error).__name__}: {error}"),
        )

    # -- fragments ----------------------------------------------------------------------------------------

    def _deploy(self, message: Deploy) -> None:
        if self._exit_code is not None:
            return  # the application master will learn that this executor has ended
        before = self._attempts.get(message.fragment)
        if before is not None and before.number >= message.attempt:
            return  # a repeated message
        if self._cancelled.get(message.fragment, -1) >= message.attempt:
            return  # its cancellation arrived first
        if before is not None and not before.is_over:
            before.cancel(drain=False)
            self._waiting[message.fragment] = message
            return
        system, me = self.context.system, self.context.me
        attempt = Attempt(
            message.fragment,
            message.attempt,
            self._work,
            lambda changed: system.tell_threadsafe(me, changed),
            before,
        )
        self._attempts[message.fragment] = attempt
        self._start(attempt)

    def _cancel(self, message: CancelFragment) -> None:
        attempt, number = self._attempts.get(message.fragment), message.attempt
        if attempt is not None and attempt.number >= number:
            if attempt.number == number and not attempt.is_over:
                attempt.cancel(drain=message.drain)
        elif self._cancelled.get(message.fragment, -1) < number:
            # It has not started here, and never will.
            self._cancelled[message.fragment] = number
            self._waiting.pop(message.fragment, None)
            self._queue(AttemptChanged(message.fragment, number, FragmentOutcome.CANCELED))

    def _let_leave(self, message: LeavePermitted) -> None:
        attempt = self._attempts.get(message.fragment)
        is_meant = attempt is not None and attempt.number == message.attempt
        if message.epoch == self._launch.epoch and attempt is not None and is_meant:
            attempt.permit_leave()

    def _drivers(self) -> dict[str, FragmentDriver]:
        return {a.fragment: a.driver for a in self._attempts.values() if a.driver is not None}

    def _drop(self, fragment: str, number: int) -> None:
        """Cancel an attempt that the application master does not know."""
        attempt = self._attempts.get(fragment)
        if attempt is not None and attempt.number == number:
            attempt.cancel(drain=False)

    def _changed(self, message: AttemptChanged) -> None:
        attempt = self._attempts.get(message.fragment)
        report = None
        if attempt is not None and attempt.number == message.attempt:
            report = self._report()
            attempt.is_over = message.outcome is not FragmentOutcome.RUNNING
        if message.error is not None:
            log.error(
                "fragment %s failed: %s\n%s",
                message.fragment,
                message.error.what,
                message.error.user_traceback or message.error.got or "",
            )
        self._queue(message, report)
        waiting = self._waiting.pop(message.fragment, None)
        if waiting is not None:
            if attempt is not None and not attempt.is_over:
                self._waiting[message.fragment] = waiting
            else:
                self._deploy(waiting)
        if message.lost:
            self._begin_to_end(70, why_it_ends(message.error), drain=False)
        self._end_if_over()

    # -- reporting -----------------------------------------------------------------------------------------

    def _report(self) -> ExecutorReport:
        active = [a for a in self._attempts.values() if not a.is_over]
        disk = next((a.disk for a in active if a.disk is not None), (None, None))
        report = ExecutorReport(
            self._launch.launch_id,
            self._launch.epoch,
            tuple(p for a in active if (p := a.progress) is not None),
            {a.fragment: counted for a in active if (counted := a.accumulators())},
            *disk,
        )
        self._app_master.tell(report, self.context.me)
        seen = tuple(a.seen for a in self._attempts.values() if a.seen is not None and not a.is_over)
        if seen:
            message = VersionReports(self._launch.launch_id, self._launch.epoch, seen)
            self._app_master.tell(message, self.context.me)
        return report

    def _queue(self, message: AttemptChanged, report: ExecutorReport | None = None) -> None:
        """Queue an outcome, together with the final report, as the one sent before may be lost."""
        self._outbox.put(
            FragmentChanged(
                self._launch.launch_id,
                message.fragment,
                message.attempt,
                message.outcome,
                message.error,
                message.retryable,
                report,
            )
        )
        self._flush()

    def _flush(self) -> None:
        if self._outbox and not self._outbox.is_sending:
            self._outbox.is_sending = True  # set at once, not when the loop starts the coroutine
            self.context.pipe_to_self(self._outbox.send_all(), _Flushed, lambda error: _Flushed(str(error)))
        self._end_if_over()

    # -- the end ------------------------------------------------------------------------------------------

    def _begin_to_end(self, exit_code: int, why: str, *, drain: bool) -> None:
        if self._exit_code is None:
            self._exit_code = exit_code
            log.info("ending: %s", why)
            self._waiting.clear()
        for attempt in self._attempts.values():
            attempt.cancel(drain=drain)
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._exit_code is None or not all(a.is_over for a in self._attempts.values()):
            return
        if self._outbox and not self.context.timers.is_running("flush"):
            self.context.timers.start_once(
                "flush", _Flushed("no answer from the application master"), delay_ms=_FLUSH_S * 1000
            )
        if not self._outbox:
            self._end(self._exit_code)


def _failed(raised: Exception, *, running: bool) -> PrepareFailed:
    error = error_of(raised)
    log.error("%s", error)
    return PrepareFailed(error_view(error), is_retryable(error, running=running))
