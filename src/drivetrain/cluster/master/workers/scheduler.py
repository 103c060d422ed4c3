"""The scheduler's actor: performs the effects of `core.cluster.slots`, and times requests out.

Design: a new leader allocates nothing until the workers have had `worker_grace_ms` to register with the slots
that they hold; until then requests are stashed. A waiting request is a delayed operation in the purgatory,
which completes when the core has allocated slots for it, and expires into a message to this actor.

Invariants: those of `core.cluster.slots`; a requester gets one answer per allocation, repeated when it
repeats the request.

Called by `/user/master` (through `application_manager`, which checks epochs), and by `worker_manager`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.master.leader_actor import LeaderActor
from drivetrain.cluster.master.master_messages import (
    FreeSlots,
    GetFreeSlots,
    Leadership,
    ReleaseApplication,
    RequestExpired,
    Tick,
    WorkerDown,
    WorkerReported,
    WorkerUp,
)
from drivetrain.cluster.master.master_settings import MasterSettings
from drivetrain.cluster.messages.applications import Priority
from drivetrain.cluster.messages.registration import HeldSlots
from drivetrain.cluster.messages.resources import CancelRequest, RequestSlots, SlotsAllocated, SlotsRefused
from drivetrain.core.cluster.slots import Allocate, Holding, Refuse, SlotEffect, SlotRequest, SlotScheduler
from drivetrain.core.waiting.waiting_operations import DelayedOperation

log = logging.getLogger("drivetrain.cluster")

RANKS: Final = {Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 2}
_GRACE: Final = "grace"


class WaitingRequest(DelayedOperation):
    """A request that waits for slots."""

    __slots__ = ("core", "request_id", "scheduler")

    def __init__(self, request_id: str, timeout_ms: int, core: SlotScheduler, scheduler: ActorRef) -> None:
        super().__init__(timeout_ms)
        self.request_id = request_id
        self.core = core
        self.scheduler = scheduler

    def try_complete(self) -> bool:
        """Complete when the request no longer waits."""
        return not self.core.is_waiting(self.request_id) and self.force_complete()

    def on_complete(self) -> None:
        """Do nothing: the actor has answered, or will answer when it gets `RequestExpired`."""

    def on_expiration(self) -> None:
        """Let the actor refuse the request."""
        self.scheduler.tell(RequestExpired(self.request_id))


class Scheduler(LeaderActor):
    """Allocates the workers' slots for the leader of `term`."""

    def __init__(self, settings: MasterSettings, term: int, leadership: Leadership) -> None:
        self._settings: Final = settings
        self.leading_term = self._term = term
        self._leadership: Final = leadership
        self._core: Final = SlotScheduler(str(term))
        self._workers: dict[str, WorkerUp] = {}
        self._requesters: dict[str, ActorRef] = {}
        self._operations: dict[str, WaitingRequest] = {}
        self._is_open = settings.worker_grace_ms == 0

    def pre_start(self) -> None:
        """Start the grace period for the workers."""
        timers = self.context.timers
        timers.start_periodic("tick", Tick(), interval_ms=1_000)
        if not self._is_open:
            timers.start_once(_GRACE, RequestExpired(_GRACE), delay_ms=self._settings.worker_grace_ms)

    def leave(self) -> None:
        """Cancel all waiting requests."""
        for operation in list(self._operations.values()):
            operation.force_complete()

    def act(self, message: Message) -> None:
        """Handle one message."""
        now_ms = self._leadership.now_ms()
        match message:
            case RequestSlots():
                self._request(message, now_ms)
            case CancelRequest():
                self._perform(self._core.cancel(message.request_id, now_ms))
                self._settle(message.request_id)
            case RequestExpired(request_id):
                if request_id == _GRACE:
                    self._is_open = True
                    self.context.unstash_all()
                else:
                    self._perform(self._core.expire(request_id, now_ms))
            case WorkerUp():
                self._workers[message.worker_id] = message
                held = _holdings(message.held)
                self._perform(
                    self._core.worker_registered(
                        message.worker_id,
                        message.name,
                        message.host,
                        message.slots,
                        held,
                        now_ms,
                        leaves=message.leaves,
                    )
                )
            case WorkerReported():
                holdings, leaves = _holdings(message.held), message.leaves
                self._perform(self._core.worker_reported(message.worker_id, holdings, now_ms, leaves=leaves))
            case WorkerDown():
                self._workers.pop(message.worker_id, None)
                self._core.worker_lost(message.worker_id)
            case ReleaseApplication():
                self._perform(
                    self._core.release_application(message.app_id, now_ms, below_epoch=message.below_epoch)
                )
                for request_id in list(self._operations):
                    self._settle(request_id)
            case Tick():
                self._perform(self._core.time_passed(now_ms))
            case GetFreeSlots():
                self.context.reply(FreeSlots({worker: self._core.free(worker) for worker in self._workers}))
            case _:
                self.context.unhandled(message)

    def _request(self, message: RequestSlots, now_ms: int) -> None:
        if not self._is_open:
            self.context.stash()
            return
        request = SlotRequest(
            message.request_id,
            message.app_id,
            message.epoch,
            message.slots,
            RANKS[message.priority],
            message.policy,
            message.hosts,
            message.worker,
        )
        self._requesters[message.request_id] = message.requester
        was_waiting = message.request_id in self._operations
        self._perform(self._core.request(request, now_ms))
        if self._core.is_waiting(message.request_id) and not was_waiting:
            operation = WaitingRequest(message.request_id, message.timeout_ms, self._core, self.context.me)
            self._operations[message.request_id] = operation
            self.context.system.purgatory.try_complete_else_watch(operation, (self._key(message.request_id),))

    def _perform(self, effects: Iterable[SlotEffect]) -> None:
        if not self._leadership.leads(self._term):
            return  # another master allocates these slots now; this actor is about to stop
        for effect in effects:
            request = effect.request
            requester = self._requesters.get(request.request_id)
            self._settle(request.request_id)
            if requester is None:
                continue
            self._requesters.pop(request.request_id, None)  # a repeated request names the requester again
            match effect:
                case Allocate(_, allocation_id, worker_id):
                    worker = self._workers[worker_id]
                    requester.tell(
                        SlotsAllocated(
                            request.request_id,
                            allocation_id,
                            worker_id,
                            worker.name,
                            worker.host,
                            worker.worker,
                            request.slots,
                        )
                    )
                case Refuse(_, code, why):
                    requester.tell(SlotsRefused(request.request_id, code, why))

    def _settle(self, request_id: str) -> None:
        """Take the request out of the purgatory if it no longer waits."""
        if self._core.is_waiting(request_id):
            return
        self._requesters.pop(request_id, None)
        if request_id in self._operations:
            del self._operations[request_id]
            self.context.system.purgatory.check_and_complete(self._key(request_id))

    def _key(self, request_id: str) -> tuple[str, int, str]:
        return ("master.slots", self.context.me.path.uid, request_id)


def _holdings(held: Iterable[HeldSlots]) -> list[Holding]:
    return [Holding(each.allocation_id, each.app_id, each.slots) for each in held]
