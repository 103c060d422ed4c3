"""A worker's connection to the leader: it registers with every leader, and reports.

Problem: leaders come and go while processes run here, and one may have dropped this worker by mistake.

Design: `core.cluster.registration` decides when to register, `leader.LeaderLink` with which master. Every
report names all held slots, so that a lost one does no harm, and the worker registers again regularly, so
that a leader that dropped it gets it back.

Invariants:
1. Nothing is reported before the worker is registered.
2. Without a leader for `worker.leader-timeout`, `ended` is called with the reason.

Called by the `Worker` actor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from drivetrain.actor import ActorFailedError, ActorRef, Context, Failure, Message
from drivetrain.cluster.leader import LeaderLink
from drivetrain.cluster.messages.registration import (
    HeldSlots,
    RegisterWorker,
    WorkerInfo,
    WorkerRefused,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.cluster.worker.machine_load import Load
from drivetrain.cluster.worker.worker_messages import RegistrationAnswered, ReportDue, WakeRegistration
from drivetrain.cluster.worker.worker_settings import WorkerSettings
from drivetrain.core.cluster.registration import (
    Accepted,
    End,
    Event,
    LeaderFound,
    LeaderLost,
    Refused,
    Register,
    Registered,
    Registration,
    Tick,
)
from drivetrain.errors import UnavailableError
from drivetrain.version import VERSION

log: Final = logging.getLogger("drivetrain.worker")

RENEWAL_MS: Final = 10_000


class LeaderTimeoutError(UnavailableError):
    """The worker has ended, as no master has registered it for too long."""

    code = "leader-timeout"


class MachineLoad(Protocol):
    """Reads the load of the machine."""

    def read(self) -> Load:
        """The load since the last call."""


class LeaderRegistration:
    """Registers and reports the worker `worker_id`, in the actor whose `context` is given; `start` it first.

    `held` returns the held slots, `clock_ms` this machine's wall clock.
    """

    def __init__(
        self,
        context: Context,
        worker_id: str,
        settings: WorkerSettings,
        masters: Sequence[str],
        machine: MachineLoad,
        clock_ms: Callable[[], int],
        held: Callable[[], tuple[HeldSlots, ...]],
        ended: Callable[[LeaderTimeoutError], None],
    ) -> None:
        self._context: Final = context
        self._id: Final = worker_id
        self._settings: Final = settings
        self._masters: Final = tuple(masters)
        self._machine: Final = machine
        self._clock_ms: Final = clock_ms
        self._held: Final = held
        self._ended: Final = ended
        self._was_registered = False
        self._leaves = False
        self._renewed_ms = 0
        self._core: Final = Registration(settings.leader_timeout_ms, self._now_ms)
        self.link: Final = LeaderLink(
            context, self._masters, lambda _term, master: self._step(LeaderFound(master)), self._leader_lost
        )

    def start(self) -> None:
        """Look for the leader, register and report periodically."""
        self.link.start()
        self._step(Tick())
        interval_ms = self._settings.report_interval_ms
        self._context.timers.start_periodic("report", ReportDue(), interval_ms=interval_ms)

    @property
    def is_registered(self) -> bool:
        """Whether the leader has registered this worker."""
        return self._core.is_registered

    def handle(self, message: Message) -> bool:
        """Handle a message about the leader or from it; False for any other message."""
        if self.link.handle(message):
            return True
        match message:
            case RegistrationAnswered(attempt, answer):
                self._answered(attempt, answer)
            case WakeRegistration():
                self._step(Tick())
            case ReportDue():
                self.report()
            case WorkerRefused() | Failure():
                self.link.look_again()  # answers a report or a renewal: the leader has dropped this worker
            case WorkerRegistered():
                pass  # the answer to a renewal
            case _:
                return False
        return True

    def leave(self) -> None:
        """Report from now on that this worker leaves, to this leader and to each later one."""
        self._leaves = True
        self.report()

    def report(self) -> None:
        """Send the leader the held slots and the machine's load; register again when it is time."""
        leader = self.link.leader
        if leader is None or not self.is_registered:
            return
        if self._now_ms - self._renewed_ms >= RENEWAL_MS:
            self._renewed_ms = self._now_ms
            leader.tell(self._registering(), self._context.me)
        load = self._machine.read()
        report = WorkerReport(self._id, self._held(), load.cpu, load.memory_free, self._leaves)
        leader.tell(report, self._context.me)

    def check(self) -> None:
        """Verify the invariants of the core; raises InternalError."""
        self._core.check()

    @property
    def _now_ms(self) -> int:
        return int(self._context.system.loop.time() * 1000)

    def _leader_lost(self, why: str) -> None:
        log.warning("lost the leading master: %s", why)
        self._step(LeaderLost())

    def _step(self, event: Event) -> None:
        for effect in self._core.step(event, self._now_ms):
            match effect:
                case Register():
                    self._register(effect)
                case Registered():
                    self._was_registered = True
                    log.info("registered with %s", self.link.leader)
                    self._renewed_ms = self._now_ms
                    self.report()
                case End(unregistered_ms, why):
                    self._end(unregistered_ms, why)
        wake_ms = self._core.wake_ms
        if wake_ms is not None:
            delay_ms = max(0, wake_ms - self._now_ms)
            self._context.timers.start_once("wake", WakeRegistration(), delay_ms=delay_ms)

    def _register(self, effect: Register) -> None:
        leader = effect.leader
        assert isinstance(leader, ActorRef)
        self._context.pipe_to_self(
            leader.ask(self._registering(), timeout_ms=effect.timeout_ms),
            lambda answer: RegistrationAnswered(effect.attempt, answer),
            lambda error: RegistrationAnswered(
                effect.attempt,
                Failure(error.failure_code, error.what) if isinstance(error, ActorFailedError) else None,
            ),
        )

    def _registering(self) -> RegisterWorker:
        settings = self._settings
        info = WorkerInfo(
            worker_id=self._id,
            name=settings.name,
            host=settings.host,
            slots=settings.slots,
            version=VERSION,
            clock_ms=self._clock_ms(),
        )
        return RegisterWorker(info, self._context.me, self._held(), self._was_registered, self._leaves)

    def _answered(self, attempt: int, answer: Message | None) -> None:
        match answer:
            case WorkerRegistered(worker_id) if worker_id == self._id:
                self._step(Accepted(attempt))
            case WorkerRefused(_, why, remedy):
                log.error("the leading master refuses this worker: %s (%s)", why, remedy)
                self._step(Refused(attempt, f"{why} ({remedy})"))
            case None | Failure():
                pass  # no answer, or a temporary failure: the attempt's deadline decides
            case _:
                self.link.look_again()

    def _end(self, unregistered_ms: int, why: str | None) -> None:
        self._ended(
            LeaderTimeoutError(
                f"this worker has had no leading master for {unregistered_ms // 1000} s, and ends",
                where=", ".join(self._masters),
                got=why or "no master leads, or none can be reached",
                remedy="check cluster.masters and start masters; worker.leader-timeout is the longest wait",
            )
        )
