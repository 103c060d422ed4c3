"""Phrases for what an application waits for, to follow "waiting for".

Called by the application masters for `JobStatus.waiting_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drivetrain.cluster.app_master.executors.executor_pool import ExecutorPool, Member, MemberState
from drivetrain.core.job.fragment_execution import Execution

LEADER: Final = "the leading master"
PLAN: Final = "the application to be loaded and planned"
NOTED: Final = "the masters to note that the earlier state is forgotten"
RESTART: Final = "the time to start all fragments again"


def executors(pool: ExecutorPool) -> str | None:
    """The reason why executors are missing: slots, their start, or the delay before the next attempt."""
    members = list(pool.members.values())
    requested = [member for member in members if member.state is MemberState.REQUESTED]
    launching = [member for member in members if member.state is MemberState.LAUNCHING]
    missing = len(pool.wanted) - len(members)
    phrases = []
    if requested:
        phrases.append(f"slots for {_executors(len(requested))}{_on([member.place for member in requested])}")
    if launching:
        phrases.append(f"{_executors(len(launching))} to start{_on(_workers(launching))}")
    if missing > 0 and not pool.is_ending:
        phrases.append(f"the next attempt to get {_executors(missing)}")
    return " and ".join(phrases) or None


def preparation(member: Member, *, is_first: bool) -> str:
    """For an executor that prepares the application; `is_first` when Spark has to start there."""
    where = _on(_workers([member]))
    if is_first:
        return f"Spark to start{where} and the application to be prepared"
    return f"the application to be prepared{where}"


def conclusion(member: Member) -> str:
    """For an executor that records the end of the application."""
    return f"the end to be noted{_on(_workers([member]))}"


def fragments(running: Sequence[Execution]) -> str | None:
    """For fragments that must stop before the job ends or starts again."""
    names = sorted(execution.fragment for execution in running)
    if not names:
        return None
    return f"fragment {names[0]} to stop" if len(names) == 1 else f"{len(names)} fragments to stop"


def _executors(count: int) -> str:
    return "1 executor" if count == 1 else f"{count} executors"


def _workers(members: Sequence[Member]) -> list[str | None]:
    return [None if m.allocation is None else m.allocation.worker_name for m in members]


def _on(workers: Sequence[str | None]) -> str:
    """The phrase "on worker …" after a space; empty unless all workers are known."""
    names = sorted({worker for worker in workers if worker is not None})
    if not names or None in workers:
        return ""
    if len(names) == 1:
        return f" on worker {names[0]}"
    return f" on workers {', '.join(names[:-1])} and {names[-1]}"
