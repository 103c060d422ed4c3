"""The worker: offers slots, launches processes in them, and reports which run.

Problem: leaders come and go while processes run here, and whichever process fails, none may keep running that
is no longer needed.

Design: the actor passes each message to the part that it concerns: the connection to the leader
(`leader_registration`), the launches (`launches`), or the logs. A `Launcher` runs the processes themselves.

A worker that is asked to end *leaves*: it reports that, so that the leader sends nothing more, asks its
processes to finish their batches and hand over, and ends when the last has ended, or `worker.drain-timeout`
has passed.

Invariants: those of its parts, and: without a leader for `worker.leader-timeout` the worker ends, with all
its processes.

Started by `serve_worker`, and by simulations with another launcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from drivetrain.actor import Failure, Message, Terminated
from drivetrain.cluster.guarded import GuardedActor, is_own
from drivetrain.cluster.messages.launching import EndEpoch, Launch, ReadLog, StopProcess
from drivetrain.cluster.messages.registration import HeldSlots
from drivetrain.cluster.worker.launch_requests import LaunchEnvironment, Launcher
from drivetrain.cluster.worker.launches import Launches
from drivetrain.cluster.worker.leader_registration import LeaderRegistration, LeaderTimeoutError, MachineLoad
from drivetrain.cluster.worker.worker_messages import (
    BackgroundWorkDone,
    CleanUpDue,
    DrainExpired,
    LaunchEnded,
    LaunchNotStarted,
    LaunchStarted,
    LeaveRequested,
    LogRead,
    OwnerExpired,
)
from drivetrain.cluster.worker.worker_settings import WorkerSettings
from drivetrain.errors import UnavailableError

log: Final = logging.getLogger("drivetrain.worker")

TIDY_MS: Final = 60_000
_MOST_LOG_BYTES: Final = 1024 * 1024


class Worker(GuardedActor):
    """The worker's actor; `clock_ms` is this machine's wall clock, `on_end` gets the reason for its end."""

    def __init__(
        self,
        settings: WorkerSettings,
        masters: Sequence[str],
        launcher: Launcher,
        machine: MachineLoad,
        clock_ms: Callable[[], int],
        on_end: Callable[[UnavailableError], None],
    ) -> None:
        self._settings: Final = settings
        self._masters: Final = tuple(masters)
        self._launcher: Final = launcher
        self._machine: Final = machine
        self._clock_ms: Final = clock_ms
        self._on_end: Final = on_end
        self._id = ""
        self.is_leaving = False
        self._leader: LeaderRegistration | None = None

    async def pre_start(self) -> None:
        """Clean up after an earlier worker, then look for the leader."""
        context, settings = self.context, self._settings
        self._id = f"{context.system.rng.getrandbits(64):016x}"
        me = context.me
        cleaned = await self._launcher.open(self._id, lambda *end: me.tell(LaunchEnded(*end)))
        if cleaned:
            log.warning("cleaned up after an earlier worker: %s", ", ".join(cleaned))
        leader = self._leader = LeaderRegistration(
            context,
            self._id,
            settings,
            self._masters,
            self._machine,
            self._clock_ms,
            lambda: self._launches.held,
            self._end,
        )
        surroundings = LaunchEnvironment(
            worker_id=self._id,
            worker_name=settings.name,
            worker=str(me.path),
            masters=self._masters,
            host=settings.host,
            search=leader.link.search,
        )
        self._launches = Launches(context, self._launcher, settings.slots, surroundings, leader.report)
        leader.start()
        context.timers.start_periodic("tidy", CleanUpDue(), interval_ms=TIDY_MS)

    async def post_stop(self) -> None:
        """End all launched processes."""
        await self._launcher.close()

    def act(self, message: Message) -> None:
        """Handle one message."""
        assert self._leader is not None  # made before the first message
        if self._leader.handle(message):
            return
        match message:
            case Launch():
                self._launches.launch(message)
            case StopProcess(launch_id, grace_ms):
                self._launches.stop(launch_id, grace_ms)
            case EndEpoch(app_id, epoch):
                self._launches.end_epoch(app_id, epoch)
            case ReadLog():
                self._read_log(message)
            case Terminated(actor):
                self._launches.owner_gone(actor)
            case _:
                self._receive_own(message)

    def _receive_own(self, message: Message) -> None:
        match message:
            case LaunchStarted() | LaunchNotStarted() | LaunchEnded():
                self._launches.take(message)
                self._end_if_left()
            case LeaveRequested():
                self._leave()
            case DrainExpired():
                log.warning("ending before all processes have handed over: %s", _named(self._launches.held))
                self.context.stop()
            case OwnerExpired(owner):
                self._launches.end_ownerless(owner)
            case CleanUpDue():
                self.context.pipe_to_self(
                    self._launcher.tidy(),
                    lambda _: BackgroundWorkDone(None),
                    lambda error: BackgroundWorkDone(repr(error)),
                )
            case LogRead(asker, answer):
                asker.tell(answer, self.context.me)
            case BackgroundWorkDone(failure):
                if failure is not None:
                    log.warning("%s", failure)
            case _:
                self.context.unhandled(message)

    def ends_with(self, message: Message, error: Exception) -> bool:
        """Whether a broken invariant, in handling a message of its own, ends the worker and its processes."""
        return is_own(message) and super().ends_with(message, error)

    def check(self) -> None:
        """Verify the invariants of the launches and of the registration; raises InternalError."""
        if self._leader is not None:
            self._leader.check()
            self._launches.check()

    @property
    def worker_id(self) -> str:
        """The id of this worker process."""
        return self._id

    @property
    def is_registered(self) -> bool:
        """Whether the leader has registered this worker."""
        return self._leader is not None and self._leader.is_registered

    def _leave(self) -> None:
        """Hand over what runs here, then end; a repetition changes nothing."""
        if self.is_leaving:
            return
        self.is_leaving = True
        assert self._leader is not None
        self._leader.leave()  # first, so that nothing is sent here that has just been refused
        drain_ms = self._settings.drain_timeout_ms
        if not self._launches.is_empty:
            log.info("draining for at most %d s: %s", drain_ms // 1000, _named(self._launches.held))
        self._launches.leave(drain_ms)
        self.context.timers.start_once("drain", DrainExpired(), delay_ms=drain_ms)
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self.is_leaving and self._launches.is_empty:
            self.context.stop()

    def _end(self, why: LeaderTimeoutError) -> None:
        self._on_end(why)
        self.context.stop()

    def _read_log(self, message: ReadLog) -> None:
        asker = self.context.sender
        if asker is None:
            return
        max_bytes = min(max(1, message.max_bytes), _MOST_LOG_BYTES)
        missing = Failure("no-log", f"this worker has no such log of {message.app_id}", self._settings.name)
        self.context.pipe_to_self(
            self._launcher.read_log(message.app_id, message.process, message.offset, max_bytes),
            lambda chunk: LogRead(asker, missing if chunk is None else chunk),
            lambda error: LogRead(asker, Failure("no-log", str(error), self._settings.name)),
        )


def _named(held: Sequence[HeldSlots]) -> str:
    return ", ".join(f"{each.kind} of {each.app_id}" for each in held) or "nothing"
