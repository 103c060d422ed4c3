"""The worker: offers slots, launches what it is told to, and says what lives.

Problem: leaders come and go while processes run here; messages are lost or doubled; whoever told us to launch
may be dead by now, or be a dead leader that does not know it. The slots must be counted once, and nothing may
run that nobody wants.

Design: the actor keeps one entry per launch and leaves the processes to a `Launcher`. Registering follows
`core.cluster.registration`, finding the leader `leader.LeaderLink`. Every report names all that is held, so
that one that was lost does no harm, and the worker registers again now and then, so that a leader that
dropped it in error has it back.

Invariants:
1. The slots of all entries are at most those offered. An entry holds its slots from `Launch` until everything
of it has ended.
2. A launch id is launched once: sent again, the answer is given again.
3. For an application, nothing is launched with a lower epoch than was seen here, and what runs with a lower
one is killed; of applications that run nothing here, those that were seen last are remembered.
4. The owner of a launch is told `Launched` and then `ProcessExited`, or `LaunchFailed`, each once per launch
and again when the launch is sent again.
5. Without a leader for `worker.leader-timeout` the worker ends, with all it has launched.

Started by `serve_worker`, and by simulations with another launcher.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from drivetrain.actor import ActorFailedError, ActorRef, Failure, Message, Terminated
from drivetrain.cluster.guarded import GuardedActor
from drivetrain.cluster.leader import LeaderLink
from drivetrain.cluster.messages.launching import (
    Launch,
    Launched,
    LaunchFailed,
    ProcessExited,
    ProcessKind,
    ReadLog,
    StopProcess,
)
from drivetrain.cluster.messages.registration import (
    HeldSlots,
    RegisterWorker,
    WorkerInfo,
    WorkerRefused,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.cluster.worker.launch_requests import Launcher, LaunchError, Surroundings
from drivetrain.cluster.worker.machine_load import Load
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
from drivetrain.errors import InternalError, UnavailableError
from drivetrain.version import VERSION

log: Final = logging.getLogger("drivetrain.worker")

RENEWAL_MS: Final = 10_000
OWNERLESS_MS: Final = 20_000
TIDY_MS: Final = 60_000
_MOST_LOG_BYTES: Final = 1024 * 1024
_REMEMBERED: Final = 1_000


class LeaderTimeoutError(UnavailableError):
    """No master has had this worker for so long that it has ended."""

    code = "leader-timeout"


class MachineLoad(Protocol):
    """Reads how busy the machine is."""

    def read(self) -> Load:
        """The load since the last call."""


class _Answered(Message, frozen=True, tag="dt.local.worker.answered"):
    attempt: int
    answer: Message | None


class _Wake(Message, frozen=True, tag="dt.local.worker.wake"):
    pass


class _Report(Message, frozen=True, tag="dt.local.worker.report"):
    pass


class _Tidy(Message, frozen=True, tag="dt.local.worker.tidy"):
    pass


class _Started(Message, frozen=True, tag="dt.local.worker.started"):
    launch_id: str
    pid: int


class _NotStarted(Message, frozen=True, tag="dt.local.worker.not-started"):
    launch_id: str
    code: str
    why: str
    remedy: str | None


class _Ended(Message, frozen=True, tag="dt.local.worker.ended"):
    launch_id: str
    status: int
    log: str


class _Ownerless(Message, frozen=True, tag="dt.local.worker.ownerless"):
    owner: ActorRef


class _LogRead(Message, frozen=True, tag="dt.local.worker.log-read"):
    asker: ActorRef
    answer: Message


class _Done(Message, frozen=True, tag="dt.local.worker.done"):
    failure: str | None


class _Entry:
    """A launch: `pid` once it is started, `ended` when its end was told before its start."""

    def __init__(self, launch: Launch) -> None:
        self.launch: Final = launch
        self.pid: int | None = None
        self.ended: _Ended | None = None

    @property
    def held(self) -> HeldSlots:
        launch = self.launch
        return HeldSlots(launch.launch_id, launch.app_id, launch.slots, launch.kind.value)


class Worker(GuardedActor):
    """See the module; `clock_ms` is this machine's wall clock, `on_end` is told why the worker has ended."""

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
        self._tell_end: Final = on_end
        self._entries: Final[dict[str, _Entry]] = {}
        self._over: Final[dict[str, Message]] = {}
        self._epochs: Final[dict[str, int]] = {}  # those touched last at the end
        self._was_registered = False
        self._renewed_ms = 0
        self._id = ""
        self._registration = Registration(settings.leader_timeout_ms, 0)  # begins in pre_start

    async def pre_start(self) -> None:
        """Clean up after an earlier worker, then look for the leader."""
        context = self.context
        self._id = f"{context.system.rng.getrandbits(64):016x}"
        me = context.me
        cleaned = await self._launcher.open(self._id, lambda *end: me.tell(_Ended(*end)))
        if cleaned:
            log.warning("cleaned up after an earlier worker: %s", ", ".join(cleaned))
        self._registration = Registration(self._settings.leader_timeout_ms, self._now_ms())
        self._link = LeaderLink(
            context,
            self._masters,
            lambda _term, master: self._step(LeaderFound(master)),
            self._leader_lost,
        )
        self._link.start()
        self._step(Tick())
        context.timers.start_periodic("report", _Report(), interval_ms=self._settings.report_interval_ms)
        context.timers.start_periodic("tidy", _Tidy(), interval_ms=TIDY_MS)

    async def post_stop(self) -> None:
        """End everything that was launched."""
        await self._launcher.close()

    def act(self, message: Message) -> None:
        """Handle one message."""
        if self._link.handle(message):
            return
        match message:
            case Launch():
                self._launch(message)
            case StopProcess(launch_id, grace_ms):
                self._stop(launch_id, grace_ms)
            case ReadLog():
                self._read_log(message)
            case Terminated(actor):
                self.context.timers.start_once(
                    f"ownerless {actor.path}", _Ownerless(actor), delay_ms=OWNERLESS_MS
                )
            case WorkerRefused() | Failure():
                self._link.look_again()  # the answer to a report or a renewal: it does not have us any more
            case WorkerRegistered():
                pass  # the answer to a renewal
            case _:
                self._receive_own(message)

    def _receive_own(self, message: Message) -> None:
        match message:
            case _Started() | _NotStarted() | _Ended():
                self._launch_changed(message)
            case _Answered(attempt, answer):
                self._answered(attempt, answer)
            case _Wake():
                self._step(Tick())
            case _Report():
                self._report()
            case _Tidy():
                self.context.pipe_to_self(
                    self._launcher.tidy(), lambda _: _Done(None), lambda error: _Done(repr(error))
                )
            case _LogRead(asker, answer):
                asker.tell(answer, self.context.me)
            case _Ownerless(owner):
                self._end_ownerless(owner)
            case _Done(failure):
                if failure is not None:
                    log.warning("%s", failure)
            case _:
                self.context.unhandled(message)

    def check(self) -> None:
        """Verify invariant 1 and those of the registration; raises InternalError."""
        self._registration.check()
        if self._used > self._settings.slots:
            raise InternalError("worker invariant 1: more slots held than offered", where=self._settings.name)

    @property
    def worker_id(self) -> str:
        """The id of this life of the worker."""
        return self._id

    @property
    def is_registered(self) -> bool:
        """Whether a leader has this worker."""
        return self._registration.is_registered

    # ---- the leader

    def _now_ms(self) -> int:
        return int(self.context.system.loop.time() * 1000)

    def _leader_lost(self, why: str) -> None:
        log.warning("lost the leading master: %s", why)
        self._step(LeaderLost())

    def _step(self, event: Event) -> None:
        for effect in self._registration.step(event, self._now_ms()):
            match effect:
                case Register():
                    self._register(effect)
                case Registered():
                    self._was_registered = True
                    log.info("registered with %s", self._link.leader)
                    self._renewed_ms = self._now_ms()
                    self._report()
                case End(unregistered_ms, why):
                    self._end(unregistered_ms, why)
        wake_ms = self._registration.wake_ms
        if wake_ms is not None:
            self.context.timers.start_once("wake", _Wake(), delay_ms=max(0, wake_ms - self._now_ms()))

    def _register(self, effect: Register) -> None:
        leader = effect.leader
        assert isinstance(leader, ActorRef)
        self.context.pipe_to_self(
            leader.ask(self._registering(), timeout_ms=effect.timeout_ms),
            lambda answer: _Answered(effect.attempt, answer),
            lambda error: _Answered(
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
        return RegisterWorker(info, self.context.me, self._held, self._was_registered)

    def _answered(self, attempt: int, answer: Message | None) -> None:
        match answer:
            case WorkerRegistered(worker_id) if worker_id == self._id:
                self._step(Accepted(attempt))
            case WorkerRefused(_, why, remedy):
                log.error("the leading master refuses this worker: %s (%s)", why, remedy)
                self._step(Refused(attempt, f"{why} ({remedy})"))
            case None | Failure():
                pass  # nothing, or not now: the deadline of the attempt decides
            case _:
                self._link.look_again()

    def _end(self, unregistered_ms: int, why: str | None) -> None:
        self._tell_end(
            LeaderTimeoutError(
                f"this worker has had no leading master for {unregistered_ms // 1000} s, and ends",
                where=", ".join(self._masters),
                got=why or "no master leads, or none can be reached",
                remedy="check cluster.masters and start masters; worker.leader-timeout is the longest wait",
            )
        )
        self.context.stop()

    def _report(self) -> None:
        leader = self._link.leader
        if leader is None or not self.is_registered:
            return
        if self._now_ms() - self._renewed_ms >= RENEWAL_MS:
            self._renewed_ms = self._now_ms()
            leader.tell(self._registering(), self.context.me)
        load = self._machine.read()
        leader.tell(WorkerReport(self._id, self._held, load.cpu, load.memory_free), self.context.me)

    # ---- launches

    @property
    def _held(self) -> tuple[HeldSlots, ...]:
        return tuple(entry.held for entry in self._entries.values())

    @property
    def _used(self) -> int:
        return sum(entry.launch.slots for entry in self._entries.values())

    def _launch(self, launch: Launch) -> None:
        known = self._entries.get(launch.launch_id)
        if known is not None:
            if known.pid is not None:
                launch.owner.tell(Launched(launch.launch_id, self._id, known.pid), self.context.me)
            return
        if launch.launch_id in self._over:
            launch.owner.tell(self._over[launch.launch_id], self.context.me)
            return
        refusal = self._refusal(launch)
        if refusal is not None:
            launch.owner.tell(refusal, self.context.me)
            return
        self._fence(launch.app_id, launch.epoch)
        self._entries[launch.launch_id] = _Entry(launch)
        if launch.kind is ProcessKind.EXECUTOR:
            self.context.watch(launch.owner)
        surroundings = Surroundings(
            worker_id=self._id,
            worker_name=self._settings.name,
            worker=str(self.context.me.path),
            masters=self._masters,
            host=self._settings.host,
            search=self._link.search,
        )
        launch_id = launch.launch_id
        self.context.pipe_to_self(
            self._launcher.launch(launch, surroundings),
            lambda pid: _Started(launch_id, pid),
            lambda error: _not_started(launch_id, error),
        )
        self._report()

    def _refusal(self, launch: Launch) -> LaunchFailed | None:
        if launch.epoch < self._epochs.get(launch.app_id, 0):
            seen = self._epochs[launch.app_id]
            return LaunchFailed(launch.launch_id, "stale-epoch", f"epoch {seen} was seen, not {launch.epoch}")
        free = self._settings.slots - self._used
        # What a newer epoch replaces is killed, but its slots are free only when it is gone.
        if launch.slots < 0 or launch.slots > free:
            return LaunchFailed(
                launch.launch_id, "no-slots", f"{launch.slots} slots are wanted and {free} are free"
            )
        return None

    def _fence(self, app_id: str, epoch: int) -> None:
        self._epochs[app_id] = max(epoch, self._epochs.pop(app_id, 0))
        running = {entry.launch.app_id for entry in self._entries.values()}
        idle = [each for each in self._epochs if each not in running and each != app_id]
        for each in idle[: max(0, len(self._epochs) - _REMEMBERED)]:
            del self._epochs[each]
        for launch_id, entry in self._entries.items():
            if entry.launch.app_id == app_id and entry.launch.epoch < epoch:
                log.warning("killing %s of %s: epoch %s is over", launch_id, app_id, entry.launch.epoch)
                self._stop(launch_id, 0)

    def _stop(self, launch_id: str, grace_ms: int) -> None:
        if launch_id in self._entries:
            self.context.pipe_to_self(
                self._launcher.stop(launch_id, grace_ms),
                lambda _: _Done(None),
                lambda error: _Done(f"{launch_id} cannot be stopped: {error!r}"),
            )

    def _launch_changed(self, message: _Started | _NotStarted | _Ended) -> None:
        entry = self._entries.get(message.launch_id)
        if entry is None:
            return
        launch = entry.launch
        match message:
            case _Started(launch_id, pid):
                log.info("launched %s of %s, process %s", launch.kind.value, launch.app_id, pid)
                entry.pid = pid
                launch.owner.tell(Launched(launch_id, self._id, pid), self.context.me)
                if entry.ended is not None:
                    self._is_over(entry, _exited(launch, entry.ended))
            case _NotStarted(launch_id, code, why, remedy):
                log.warning("%s of %s was not launched: %s", launch.kind.value, launch.app_id, why)
                self._is_over(entry, LaunchFailed(launch_id, code, why, remedy))
            case _Ended() if entry.pid is None:
                entry.ended = message
            case _Ended(_, status, _):
                log.info("process %s of %s has ended: %s", entry.pid, launch.app_id, status)
                self._is_over(entry, _exited(launch, message))

    def _is_over(self, entry: _Entry, message: LaunchFailed | ProcessExited) -> None:
        launch = entry.launch
        del self._entries[launch.launch_id]
        self._over[launch.launch_id] = message
        if len(self._over) > _REMEMBERED:
            del self._over[next(iter(self._over))]
        is_owned = any(other.launch.owner == launch.owner for other in self._entries.values())
        if launch.kind is ProcessKind.EXECUTOR and not is_owned:
            self.context.unwatch(launch.owner)
        launch.owner.tell(message, self.context.me)
        self._report()

    def _end_ownerless(self, owner: ActorRef) -> None:
        for launch_id, entry in self._entries.items():
            if entry.launch.owner == owner and entry.launch.kind is ProcessKind.EXECUTOR:
                log.warning("ending %s: its application master is gone", launch_id)
                self._stop(launch_id, 5_000)

    def _read_log(self, message: ReadLog) -> None:
        asker = self.context.sender
        if asker is None:
            return
        max_bytes = min(max(1, message.max_bytes), _MOST_LOG_BYTES)
        missing = Failure("no-log", f"this worker has no such log of {message.app_id}", self._settings.name)
        self.context.pipe_to_self(
            self._launcher.read_log(message.app_id, message.process, message.offset, max_bytes),
            lambda chunk: _LogRead(asker, missing if chunk is None else chunk),
            lambda error: _LogRead(asker, Failure("no-log", str(error), self._settings.name)),
        )


def _not_started(launch_id: str, error: Exception) -> _NotStarted:
    if isinstance(error, LaunchError):
        return _NotStarted(launch_id, error.failure_code, error.what, error.remedy)
    return _NotStarted(launch_id, "no-process", repr(error), None)


def _exited(launch: Launch, end: _Ended) -> ProcessExited:
    return ProcessExited(launch.launch_id, launch.kind, launch.app_id, end.status, end.log)
