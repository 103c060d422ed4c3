"""The executors of one application: requested, launched, registered, lost, replaced.

Problem: getting an executor involves a leader, a worker and a process, each of which may die, refuse or stay
silent; and an executor that was abandoned must end, or it would hold slots and locks.

Design: each wanted executor is a member with a state; methods are events and return effects. `tick` repeats
unanswered requests, which have ids and are harmless to repeat. A lost member is replaced at once if it was
ready, else after the delay of a restart strategy; `tick` keeps stopping its process until the worker reports
its end, or is gone itself, or `_STOP_TRIES` are used up.

    REQUESTED ──allocated──▶ LAUNCHING ──registered──▶ READY
        │ refused                │ failed, exited, silent   │ exited, lost
        ▼                        ▼                          ▼
      gone: `ReportUnavailable`      gone, replaced             gone: `ReportMemberLost`, replaced

Invariants, checked by `check()`:
1. There are never more members than wanted.
2. An executor that registers is a member with that launch, or refused.
3. Every process that may live is a member's, or is being stopped.

Called by `app_master`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from drivetrain.actor import ActorRef
from drivetrain.cluster.messages.resources import SlotsAllocated
from drivetrain.core.job.restarts import RestartStrategy
from drivetrain.errors import InternalError


class MemberState(StrEnum):
    """The state of an executor, as its application master sees it."""

    REQUESTED = "requested"
    LAUNCHING = "launching"
    READY = "ready"


@dataclass(slots=True)
class Member:
    """One executor. `place` is the worker that it must run on, None for any; ids and references as known."""

    request_id: str
    place: str | None = None
    state: MemberState = MemberState.REQUESTED
    allocation: SlotsAllocated | None = None
    executor: ActorRef | None = None
    pid: int | None = None
    since_ms: int = 0
    spark_master: str | None = None

    @property
    def id(self) -> str:
        """The executor's id: that of its launch, or before the launch that of the request."""
        return self.request_id if self.allocation is None else self.allocation.allocation_id

    @property
    def host(self) -> str:
        """The host that it runs on; empty until known."""
        return "" if self.allocation is None else self.allocation.host


@dataclass(frozen=True, slots=True)
class AskForSlots:
    """Effect: ask the leader for slots."""

    request_id: str
    place: str | None


@dataclass(frozen=True, slots=True)
class CancelSlots:
    """Effect: cancel the request at the leader."""

    request_id: str


@dataclass(frozen=True, slots=True)
class LaunchExecutor:
    """Effect: let the worker start the executor."""

    allocation: SlotsAllocated


@dataclass(frozen=True, slots=True)
class StopExecutor:
    """Effect: let the worker end the process."""

    launch_id: str
    worker: ActorRef


@dataclass(frozen=True, slots=True)
class ReportMemberLost:
    """Effect: an executor that was ready is gone."""

    member: Member
    why: str


@dataclass(frozen=True, slots=True)
class ReportUnavailable:
    """Effect: no executor for `place` is available; `retryable` unless that can never change."""

    place: str | None
    code: str
    why: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class ScheduleFill:
    """Effect: call `fill` after `delay_ms`."""

    delay_ms: int


PoolEffect: TypeAlias = (
    AskForSlots
    | CancelSlots
    | LaunchExecutor
    | StopExecutor
    | ReportMemberLost
    | ReportUnavailable
    | ScheduleFill
)


@dataclass(slots=True)
class _Leftover:
    worker: ActorRef
    tries: int = 0


_STOP_TRIES: Final = 30


@dataclass
class ExecutorPool:
    """Keeps an executor per wanted place; `prefix` makes request ids unique across application masters."""

    prefix: str
    strategy: RestartStrategy
    start_timeout_ms: int
    wanted: list[str | None] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    leftovers: dict[str, _Leftover] = field(default_factory=dict)
    is_ending: bool = False
    _requests: int = 0

    # ---- members

    @property
    def ready(self) -> list[Member]:
        """The executors that can work, the oldest first."""
        return [m for m in self.members.values() if m.state is MemberState.READY]

    @property
    def is_empty(self) -> bool:
        """Whether no executor process can be alive."""
        return not self.leftovers and all(m.allocation is None for m in self.members.values())

    def find(self, launch_id: str) -> Member | None:
        """The member of that launch."""
        return next((m for m in self.members.values() if m.allocation and m.id == launch_id), None)

    # ---- events

    def want(self, place: str | None, now_ms: int) -> list[PoolEffect]:
        """Add an executor, on the worker `place` or on any."""
        self.wanted.append(place)
        return self.fill(now_ms)

    def fill(self, now_ms: int) -> list[PoolEffect]:
        """Request the missing executors."""
        if self.is_ending:
            return []
        missing = list(self.wanted)
        for member in self.members.values():
            missing.remove(member.place)
        effects: list[PoolEffect] = []
        for place in missing:
            self._requests += 1
            member = Member(f"{self.prefix}-{self._requests}", place, since_ms=now_ms)
            self.members[member.request_id] = member
            effects.append(AskForSlots(member.request_id, place))
        return effects

    def allocated(self, given: SlotsAllocated, now_ms: int) -> list[PoolEffect]:
        """Slots were allocated for a request."""
        member = self.members.get(given.request_id)
        if member is None or self.is_ending:
            return [CancelSlots(given.request_id)]
        if member.allocation is None:
            member.allocation, member.state, member.since_ms = given, MemberState.LAUNCHING, now_ms
            return [LaunchExecutor(given)]
        return []

    def refused(self, request_id: str, code: str, why: str) -> list[PoolEffect]:
        """A request for slots was refused."""
        member = self.members.get(request_id)
        if member is None or member.state is not MemberState.REQUESTED:
            return []
        del self.members[request_id]
        return [ReportUnavailable(member.place, code, why, retryable=code == "no-slots")]

    def registered(self, launch_id: str, executor: ActorRef, pid: int) -> bool:
        """An executor registers; False when it is not, or no longer, a member."""
        member = self.find(launch_id)
        if member is None or self.is_ending or member.executor not in (None, executor):
            return False
        member.executor, member.pid, member.state = executor, pid, MemberState.READY
        return True

    def launched(self, launch_id: str, pid: int) -> None:
        """The process was started."""
        member = self.find(launch_id)
        if member is not None:
            member.pid = pid

    def gone(self, launch_id: str, why: str, now_ms: int, *, ended: bool) -> list[PoolEffect]:
        """An executor can no longer be used; `ended` when its process is known to have ended."""
        if ended:
            self.leftovers.pop(launch_id, None)
        member = self.find(launch_id)
        return [] if member is None else self._lose(member, why, now_ms, ended=ended)

    def worker_gone(self, worker: ActorRef, now_ms: int) -> list[PoolEffect]:
        """A worker has ended or is out of reach: all processes that it started die with it."""
        for launch_id in [i for i, left in self.leftovers.items() if left.worker == worker]:
            del self.leftovers[launch_id]
        effects: list[PoolEffect] = []
        for member in list(self.members.values()):
            if member.allocation is not None and member.allocation.worker == worker:
                effects += self._lose(
                    member, f"worker {member.allocation.worker_name} is gone", now_ms, ended=True
                )
        return effects

    def stop(self, launch_id: str, why: str, now_ms: int) -> list[PoolEffect]:
        """Drop an executor and end its process."""
        return self.gone(launch_id, why, now_ms, ended=False)

    def end(self) -> list[PoolEffect]:
        """No more executors are needed: cancel requests, and stop replacing."""
        self.is_ending = True
        waiting = [m.request_id for m in self.members.values() if m.allocation is None]
        for request_id in waiting:
            del self.members[request_id]
        return [CancelSlots(request_id) for request_id in waiting]

    def stop_all(self, now_ms: int) -> list[PoolEffect]:
        """End all remaining executors."""
        effects: list[PoolEffect] = []
        for member in list(self.members.values()):
            effects += self._lose(member, "the application ends", now_ms, ended=False)
        return effects

    def tick(self, now_ms: int) -> list[PoolEffect]:
        """Time has passed: repeat unanswered requests, and drop executors that did not register in time."""
        effects: list[PoolEffect] = []
        for launch_id, left in list(self.leftovers.items()):
            left.tries += 1
            if left.tries > _STOP_TRIES:
                del self.leftovers[launch_id]  # its worker does not know it
            else:
                effects.append(StopExecutor(launch_id, left.worker))
        for member in list(self.members.values()):
            if member.allocation is None:
                effects.append(AskForSlots(member.request_id, member.place))
            elif member.state is MemberState.LAUNCHING:
                if now_ms - member.since_ms > self.start_timeout_ms:
                    effects += self._lose(member, "it did not register in time", now_ms, ended=False)
                elif member.pid is None:
                    effects.append(LaunchExecutor(member.allocation))
        return effects

    def _lose(self, member: Member, why: str, now_ms: int, *, ended: bool) -> list[PoolEffect]:
        del self.members[member.request_id]
        effects: list[PoolEffect] = []
        if member.allocation is not None and not ended:
            self.leftovers[member.id] = _Leftover(member.allocation.worker)
            effects.append(StopExecutor(member.id, member.allocation.worker))
        if self.is_ending:
            return effects
        if member.state is MemberState.READY:
            effects.append(ReportMemberLost(member, why))
        delay_ms = self.strategy.next_delay_ms(now_ms)
        if delay_ms is None:
            effects.append(ReportUnavailable(member.place, "executors-fail", why, retryable=True))
        else:
            # An executor that was ready had started, which took seconds: only failed starts wait.
            effects.append(ScheduleFill(0 if member.state is MemberState.READY else delay_ms))
        return effects

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if len(self.members) > len(self.wanted):
            raise InternalError(f"pool invariant 1: {len(self.members)} of {len(self.wanted)} members")
        for member in self.members.values():
            if member.id in self.leftovers:
                raise InternalError("pool invariant 3: used and being stopped", where=member.id)
            if (member.state is MemberState.REQUESTED) != (member.allocation is None):
                raise InternalError("pool: a state without its allocation", where=member.id)
