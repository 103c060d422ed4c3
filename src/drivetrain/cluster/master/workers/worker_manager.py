"""The leader's worker manager: registers, refuses and loses workers.

Invariants:
1. No two registered workers have the same name or the same id.
2. Scheduler and applications learn of each worker before they learn what it holds, and once that it is gone.

Called by `/user/master` (forwarded registrations, reports, `GetWorkers`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from drivetrain.actor import ActorRef, Message, Terminated
from drivetrain.cluster.guarded import answer
from drivetrain.cluster.master.leader_actor import LeaderActor
from drivetrain.cluster.master.master_messages import (
    FreeSlots,
    GetFreeSlots,
    Leadership,
    WorkerDown,
    WorkerReported,
    WorkerUp,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import GetWorkers, Workers, WorkerView
from drivetrain.cluster.messages.leadership import Leader, NotLeader
from drivetrain.cluster.messages.registration import (
    HeldSlots,
    RegisterWorker,
    WorkerInfo,
    WorkerRefused,
    WorkerRegistered,
    WorkerReport,
)
from drivetrain.core.cluster.worker_clocks import ClockVerdict, WorkerClocks
from drivetrain.version import VERSION

log = logging.getLogger("drivetrain.cluster")

_VIEW_BYTES: Final = 1_000


@dataclass(slots=True)
class _Worker:
    info: WorkerInfo
    worker: ActorRef
    registered_ms: int
    held: tuple[HeldSlots, ...]
    leaves: bool = False
    cpu: float = 0.0
    memory_free: int = 0


class WorkerManager(LeaderActor):
    """The workers of the leader of `term`; `wall_ms` reads the wall clock."""

    def __init__(
        self,
        settings: MasterSettings,
        term: int,
        leadership: Leadership,
        wall_ms: Callable[[], int],
        scheduler: ActorRef,
        applications: ActorRef,
    ) -> None:
        self._settings: Final = settings
        self.leading_term = self._term = term
        self._leadership: Final = leadership
        self._wall_ms: Final = wall_ms
        self._scheduler: Final = scheduler
        self._applications: Final = applications
        self._workers: dict[str, _Worker] = {}
        self._clocks: Final = WorkerClocks(settings.max_clock_difference_ms)
        self._askers: deque[tuple[ActorRef, str | None]] = deque()

    def leave(self) -> None:
        """Tell the workers to find another leader."""
        for worker in self._workers.values():
            worker.worker.tell(NotLeader(Leader(self._term, None, None)))

    def act(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case RegisterWorker():
                self._register(message)
            case WorkerReport():
                self._report(message)
            case GetWorkers(after):
                self._list(after)
            case FreeSlots(free):
                self._answer_list(free)
            case Terminated():
                for worker_id, worker in list(self._workers.items()):
                    if worker.worker == message.actor:
                        self._lose(worker_id, f"the worker is gone ({message.cause.value})")
            case _:
                self.context.unhandled(message)

    def _register(self, message: RegisterWorker) -> None:
        info = message.info
        refusal = self._refusal(message)
        if refusal is not None:
            log.warning("refused the worker %s on %s: %s", info.name, info.host, refusal.why)
            self.context.reply(refusal)
            return
        known = self._workers.get(info.worker_id)
        if known is not None and known.worker != message.worker:
            self.context.unwatch(known.worker)
            known = None
        if known is None:
            log.info("the worker %s on %s has registered with %d slots", info.name, info.host, info.slots)
            self.context.watch(message.worker)
        registered_ms = self._wall_ms() if known is None else known.registered_ms
        self._workers[info.worker_id] = _Worker(
            info, message.worker, registered_ms, message.held, message.leaves
        )
        up = WorkerUp(
            info.worker_id, info.name, info.host, info.slots, message.worker, message.held, message.leaves
        )
        self._scheduler.tell(up)
        self._applications.tell(up)
        self.context.reply(WorkerRegistered(info.worker_id, self._term, already=known is not None))

    def _refusal(self, message: RegisterWorker) -> WorkerRefused | None:
        info = message.info
        if info.version != VERSION:
            return WorkerRefused(
                "version",
                f"the worker runs version {info.version}, the masters run {VERSION}",
                "install the same version of Drivetrain on all machines",
            )
        refusal = self._judge_clock(message)
        if refusal is not None:
            return refusal
        for worker_id, other in list(self._workers.items()):
            if worker_id == info.worker_id or other.info.name != info.name:
                continue
            here, there = message.worker.path.address, other.worker.path.address
            if (here.host, here.port) == (there.host, there.port):
                self._lose(worker_id, "another process has taken its place")
                continue
            return WorkerRefused(
                "name-taken",
                f"a worker named {info.name} is registered already, on {other.info.host}",
                "give every worker a name of its own; one that has died is forgotten within seconds",
            )
        return None

    def _judge_clock(self, message: RegisterWorker) -> WorkerRefused | None:
        info = message.info
        apart_ms, most_ms = info.clock_ms - self._wall_ms(), self._settings.max_clock_difference_ms
        was_registered = message.was_registered or info.worker_id in self._workers
        verdict, is_new = self._clocks.judge(info.worker_id, apart_ms, was_registered=was_registered)
        what = (
            f"the clocks of the worker and of the leader are {abs(apart_ms)} ms apart, more than {most_ms} ms"
        )
        if verdict is ClockVerdict.REFUSE:
            return WorkerRefused(
                "clock",
                what,
                "synchronise the clocks of all machines, for example with NTP, or raise "
                "master.max-clock-difference",
            )
        if verdict is ClockVerdict.WARN and is_new:
            log.warning("%s on %s keeps running, but %s", info.name, info.host, what)
        if verdict is ClockVerdict.SUSPECT_LEADER and is_new:
            log.error(
                "the clock of this machine, %s, is probably wrong: those of most workers are about %d ms "
                "apart from it; synchronise it, for example with NTP",
                self._settings.me,
                apart_ms,
            )
        return None

    def _report(self, message: WorkerReport) -> None:
        worker = self._workers.get(message.worker_id)
        if worker is None:
            # It was declared dead, or has not registered with this leader: it must register.
            if self.context.sender is not None:
                self.context.reply(NotLeader(Leader(self._term, self._settings.me, None)))
            return
        worker.cpu, worker.memory_free = message.cpu, message.memory_free
        if (worker.held, worker.leaves) != (message.held, message.leaves):
            if message.leaves and not worker.leaves:
                log.info("the worker %s on %s leaves", worker.info.name, worker.info.host)
            worker.held, worker.leaves = message.held, message.leaves
            holds = WorkerReported(message.worker_id, message.held, message.leaves)
            self._scheduler.tell(holds)
            self._applications.tell(holds)

    def _lose(self, worker_id: str, why: str) -> None:
        worker = self._workers.pop(worker_id)
        self._clocks.forget(worker_id)
        log.warning("lost the worker %s on %s: %s", worker.info.name, worker.info.host, why)
        self.context.unwatch(worker.worker)
        down = WorkerDown(worker_id, f"its worker {worker.info.name} is lost: {why}")
        self._scheduler.tell(down)
        self._applications.tell(down)

    def _list(self, after: str | None) -> None:
        """Ask the scheduler for the free slots, then answer."""
        if self.context.sender is not None:
            self._askers.append((self.context.sender, after))
            self._scheduler.tell(GetFreeSlots(), self.context.me)

    def _answer_list(self, free: dict[str, int]) -> None:
        if not self._askers:
            return
        asker, after = self._askers.popleft()
        left = sorted(w.info.name for w in self._workers.values() if after is None or w.info.name > after)
        by_name = {w.info.name: w for w in self._workers.values()}
        page: list[WorkerView] = []
        size = 0
        for name in left:
            worker = by_name[name]
            size += _VIEW_BYTES + sum(len(held.allocation_id) for held in worker.held)
            if page and size > self._settings.chunk_bytes:
                break
            page.append(_view(worker, free.get(worker.info.worker_id, 0)))
        following = page[-1].name if len(page) < len(left) else None
        answer(asker, Workers(tuple(page), following))


def _view(worker: _Worker, free: int) -> WorkerView:
    info = worker.info
    return WorkerView(
        info.worker_id,
        info.name,
        info.host,
        info.slots,
        free,
        worker.registered_ms,
        worker.cpu,
        worker.memory_free,
        worker.worker,
        tuple(sorted(held.allocation_id for held in worker.held)),
    )
