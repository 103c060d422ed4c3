"""Which request gets a worker's slots: by priority, then first come, first served.

Problem. Requests for slots arrive in any order and more than once, answers get lost, leaders change, and
workers come and go with whatever they hold. No slot may be given away twice; small requests must not starve a
large one; and a request that can never be met must be refused rather than wait.

Design. Workers report what they hold; that is the truth. In addition the scheduler keeps *allocations* that
were promised and not launched yet: one is freed when its worker does not report it within `launch_within_ms`.
Waiting requests are tried in the order of priority, then arrival, whenever slots may have become free. A
request that does not fit now keeps later ones off the workers that it could run on, so it gets the next slots
there; requests for other workers pass it, and so do requests for no slots, which take nothing away. An
allocation's id begins with the request's id, so a new leader finds the allocations of repeated requests among
what the workers hold.

A worker that leaves gets no request any more, but a request that only it could meet waits: it may come back.

Invariants:
1. Slots are promised only when they are free at that moment; more than a worker offers is taken only if the
   worker itself reports an allocation that had been given up (a late launch).
2. A request has at most one allocation at a time; a repeated request gets the same answer.
3. No request waits that fits on a worker which no earlier request of at least its priority waits for; a
   request for no slots waits for nobody.
4. An allocation id is never used twice.

Called by `drivetrain.cluster.master.workers.scheduler`; waiting requests are timed out by `expire`.
Source: Gearpump's PriorityScheduler; reservations as "EASY backfilling" without run times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from drivetrain.core.cluster.slot_policies import POLICIES, Preference, WorkerLoad
from drivetrain.errors import InternalError

LAUNCH_WITHIN_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A request; `rank` is its priority, the smallest first. `worker` is the id or name of the only worker
    that will do, None for any."""

    request_id: str
    app_id: str
    epoch: int
    slots: int
    rank: int = 1
    policy: str = "spread"
    hosts: tuple[str, ...] = ()
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """An allocation that was launched on a worker."""

    allocation_id: str
    app_id: str
    slots: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Effect: inform the requester that it has slots on a worker."""

    request: SlotRequest
    allocation_id: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Effect: the requester gets none; `code` is `too-many-slots`, `no-slots` or `no-policy`."""

    request: SlotRequest
    code: str
    why: str


SlotEffect = Allocate | Refuse


@dataclass(slots=True)
class _Worker:
    worker_id: str
    name: str
    host: str
    slots: int
    order: int
    is_overfull: bool = False
    is_leaving: bool = False
    held: dict[str, Holding] = field(default_factory=dict)
    promised: dict[str, _Promise] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(h.slots for h in self.held.values()) + sum(p.request.slots for p in self.promised.values())

    @property
    def load(self) -> WorkerLoad:
        return WorkerLoad(self.name, self.host, self.slots, self.used, len(self.held) + len(self.promised))


@dataclass(frozen=True, slots=True)
class _Promise:
    request: SlotRequest
    until_ms: int


class SlotScheduler:
    """The scheduler of one leader; `life` makes its allocation ids differ from those of other leaders."""

    def __init__(self, life: str, *, launch_within_ms: int = LAUNCH_WITHIN_MS) -> None:
        self._life: Final = life
        self._launch_within_ms: Final = launch_within_ms
        self._workers: dict[str, _Worker] = {}
        self._waiting: dict[str, tuple[int, SlotRequest]] = {}
        self._allocated: dict[str, tuple[str, str]] = {}  # request -> (worker, allocation)
        self._arrivals = 0
        self._workers_seen = 0
        self._last_allocation = 0

    # ---- state

    @property
    def waiting(self) -> list[SlotRequest]:
        """The requests that wait, in the order in which they are served."""
        return [request for _, request in sorted(self._waiting.values(), key=_line)]

    def is_waiting(self, request_id: str) -> bool:
        """Whether this request waits."""
        return request_id in self._waiting

    def free(self, worker_id: str) -> int:
        """How many slots of a worker may be given; 0 for an unknown worker, and for one that leaves."""
        worker = self._workers.get(worker_id)
        return 0 if worker is None or worker.is_leaving else max(0, worker.slots - worker.used)

    def where(self, allocation_id: str) -> str | None:
        """The worker that holds, or was promised for, an allocation."""
        for worker in self._workers.values():
            if allocation_id in worker.held or allocation_id in worker.promised:
                return worker.worker_id
        return None

    # ---- workers

    def worker_registered(
        self,
        worker_id: str,
        name: str,
        host: str,
        slots: int,
        held: Iterable[Holding],
        now_ms: int,
        *,
        leaves: bool = False,
    ) -> list[SlotEffect]:
        """A worker has registered, perhaps again; one that `leaves` is about to end."""
        worker = self._workers.get(worker_id)
        if worker is None:
            self._workers_seen += 1
            worker = _Worker(worker_id, name, host, slots, self._workers_seen)
            self._workers[worker_id] = worker
        worker.is_leaving = worker.is_leaving or leaves
        effects, _ = self._take_holdings(worker, held)
        return [*effects, *self._serve(now_ms)]

    def worker_reported(
        self, worker_id: str, held: Iterable[Holding], now_ms: int, *, leaves: bool = False
    ) -> list[SlotEffect]:
        """A worker reports what it holds now, and whether it leaves; no effect for an unknown worker."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return []
        worker.is_leaving = worker.is_leaving or leaves
        effects, has_freed = self._take_holdings(worker, held)
        return [*effects, *(self._serve(now_ms) if has_freed or effects else [])]

    def worker_lost(self, worker_id: str) -> list[Holding]:
        """A worker is lost: returns what was held or promised there, which is lost too."""
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return []
        lost = list(worker.held.values())
        lost += [Holding(a, p.request.app_id, p.request.slots) for a, p in worker.promised.items()]
        for request_id, (where, _) in list(self._allocated.items()):
            if where == worker_id:
                del self._allocated[request_id]
        return lost

    # ---- requests

    def request(self, request: SlotRequest, now_ms: int) -> list[SlotEffect]:
        """Handle a request: it is allocated, refused, or waits (without an effect)."""
        if request.request_id in self._waiting:
            return []
        allocated = self._allocated.get(request.request_id)
        if allocated is not None:
            worker_id, allocation_id = allocated
            return [Allocate(request, allocation_id, worker_id)]
        refusal = self._refusal(request)
        if refusal is not None:
            return [refusal]
        self._arrivals += 1
        self._waiting[request.request_id] = (self._arrivals, request)
        return self._serve(now_ms)

    def cancel(self, request_id: str, now_ms: int) -> list[SlotEffect]:
        """The requester has withdrawn the request: it no longer waits, and promised slots are free.

        Slots that its worker already holds stay held until the worker reports otherwise.
        """
        if self._waiting.pop(request_id, None) is None:
            worker_id, allocation_id = self._allocated.pop(request_id, ("", ""))
            worker = self._workers.get(worker_id)
            if worker is None or worker.promised.pop(allocation_id, None) is None:
                return []
        return self._serve(now_ms)

    def release_application(
        self, app_id: str, now_ms: int, *, below_epoch: int | None = None
    ) -> list[SlotEffect]:
        """Forget an application's requests and promises, or only those of older epochs."""
        ids = [r.request_id for _, r in self._waiting.values() if _is_of(r, app_id, below_epoch)]
        ids += [
            promise.request.request_id
            for worker in self._workers.values()
            for promise in worker.promised.values()
            if _is_of(promise.request, app_id, below_epoch)
        ]
        return [effect for request_id in ids for effect in self.cancel(request_id, now_ms)]

    def expire(self, request_id: str, now_ms: int) -> list[SlotEffect]:
        """A request has waited too long: it is refused, if it still waits."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is None:
            return []
        request = waiting[1]
        return [Refuse(request, "no-slots", self._why_waiting(request)), *self._serve(now_ms)]

    def time_passed(self, now_ms: int) -> list[SlotEffect]:
        """Free the slots that were promised and not launched in time."""
        freed = False
        for worker in self._workers.values():
            for allocation_id, promise in list(worker.promised.items()):
                if now_ms >= promise.until_ms:
                    del worker.promised[allocation_id]
                    self._allocated.pop(promise.request.request_id, None)
                    freed = True
        return self._serve(now_ms) if freed else []

    def check(self) -> None:
        """Verify the invariants; raise `InternalError` naming the first broken."""
        for worker in self._workers.values():
            if worker.used > worker.slots and not worker.is_overfull:
                raise InternalError(f"invariant 1: {worker.used} of {worker.slots} slots", where=worker.name)
            for allocation_id, promise in worker.promised.items():
                known = self._allocated.get(promise.request.request_id)
                if known != (worker.worker_id, allocation_id):
                    raise InternalError(f"invariant 2: {allocation_id} is promised, but {known} is known")
        both = self._waiting.keys() & self._allocated.keys()
        if both:
            raise InternalError(f"invariant 2: {sorted(both)} have slots and wait")
        if self._next_allocation() is not None:
            raise InternalError("invariant 3: a request waits that fits")

    # ---- internals

    def _take_holdings(self, worker: _Worker, held: Iterable[Holding]) -> tuple[list[SlotEffect], bool]:
        """Record a worker's report; returns answers to served requests, and whether slots may be free now."""
        effects: list[SlotEffect] = []
        now_held = {holding.allocation_id: holding for holding in held}
        before = worker.used
        for allocation_id in worker.held.keys() - now_held.keys():
            request_id = request_of(allocation_id)
            if self._allocated.get(request_id) == (worker.worker_id, allocation_id):
                del self._allocated[request_id]
        worker.held = now_held
        for allocation_id in now_held:
            worker.promised.pop(allocation_id, None)
            request_id = request_of(allocation_id)
            self._allocated.setdefault(request_id, (worker.worker_id, allocation_id))
            waiting = self._waiting.pop(request_id, None)
            if waiting is not None:
                effects.append(Allocate(waiting[1], allocation_id, worker.worker_id))
        worker.is_overfull = worker.used > worker.slots
        return effects, worker.used < before

    def _serve(self, now_ms: int) -> list[SlotEffect]:
        effects: list[SlotEffect] = []
        while (found := self._next_allocation()) is not None:
            request, worker = found
            del self._waiting[request.request_id]
            self._last_allocation += 1
            allocation_id = f"{request.request_id}-{self._life}-{self._last_allocation}"
            worker.promised[allocation_id] = _Promise(request, now_ms + self._launch_within_ms)
            self._allocated[request.request_id] = (worker.worker_id, allocation_id)
            effects.append(Allocate(request, allocation_id, worker.worker_id))
        return effects

    def _next_allocation(self) -> tuple[SlotRequest, _Worker] | None:
        """The first waiting request that fits on a worker for which no earlier request waits."""
        if not self._waiting:
            return None
        open_workers = dict(self._workers)
        for request in self.waiting:
            # What needs no slots may belong to what an earlier request waits for the end of.
            workers = open_workers if request.slots else self._workers
            able = [worker for worker in workers.values() if self._could_run(request, worker)]
            room = [worker for worker in able if request.slots <= max(0, worker.slots - worker.used)]
            if room:
                policy = POLICIES[request.policy]
                wish = Preference(request.app_id, request.slots, request.hosts)
                return request, min(room, key=lambda worker: (policy(wish, worker.load), worker.order))
            for worker in able:
                open_workers.pop(worker.worker_id, None)
        return None

    def _could_run(self, request: SlotRequest, worker: _Worker) -> bool:
        is_able = request.slots <= worker.slots and not worker.is_leaving
        return is_able and request.worker in (None, worker.worker_id, worker.name)

    def _refusal(self, request: SlotRequest) -> Refuse | None:
        if request.policy not in POLICIES:
            return Refuse(
                request, "no-policy", f"there is no policy {request.policy!r}: " + ", ".join(POLICIES)
            )
        asked = [w for w in self._workers.values() if request.worker in (None, w.worker_id, w.name)]
        most = max((worker.slots for worker in asked), default=None)
        if most is not None and request.slots > most:
            whose = (
                "no worker has" if request.worker is None else f"the worker {request.worker} does not have"
            )
            return Refuse(request, "too-many-slots", f"{whose} {request.slots} slots; the most is {most}")
        return None

    def _why_waiting(self, request: SlotRequest) -> str:
        if not self._workers:
            return "no worker is registered"
        asked = [w for w in self._workers.values() if request.worker in (None, w.worker_id, w.name)]
        if not asked:
            return f"the worker {request.worker} is not registered"
        free = max(max(0, worker.slots - worker.used) for worker in asked)
        return f"{request.slots} slots are wanted, the most free ones of one worker are {free}"


def request_of(allocation_id: str) -> str:
    """The id of the request that an allocation answers."""
    return allocation_id.rsplit("-", 2)[0]


def _line(entry: tuple[int, SlotRequest]) -> tuple[int, int]:
    arrival, request = entry
    return (request.rank, arrival)


def _is_of(request: SlotRequest, app_id: str, below_epoch: int | None) -> bool:
    return request.app_id == app_id and (below_epoch is None or request.epoch < below_epoch)
