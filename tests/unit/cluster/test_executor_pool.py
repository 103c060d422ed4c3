"""The pool of executors: what is lost is replaced and stopped, what is asked is asked again."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.cluster.app_master.executors.executor_pool import (
    AskForSlots,
    CancelSlots,
    ExecutorPool,
    LaunchExecutor,
    MemberState,
    ReportMemberLost,
    ReportUnavailable,
    ScheduleFill,
    StopExecutor,
)
from drivetrain.cluster.messages.resources import SlotsAllocated
from drivetrain.core.job.restarts import RestartKind, RestartPolicy, RestartStrategy

WORKER: Any = "a reference of a worker"
EXECUTOR: Any = "a reference of an executor"


def pool(attempts: int = 3) -> ExecutorPool:
    policy = RestartPolicy(RestartKind.FAILURE_RATE, attempts=attempts, delay_ms=500)
    return ExecutorPool("app-1", RestartStrategy(policy, random.Random(0)), start_timeout_ms=10_000)


def given_slots(request_id: str, launch_id: str = "l1") -> SlotsAllocated:
    return SlotsAllocated(request_id, launch_id, "w", "w", "host", WORKER, 1)


def ready_pool() -> ExecutorPool:
    made = pool()
    made.want(None, 0)
    made.allocated(given_slots("app-1-1"), 0)
    assert made.registered("l1", EXECUTOR, 7)
    return made


def test_the_way_of_an_executor() -> None:
    made = pool()
    assert made.want("w", 0) == [AskForSlots("app-1-1", "w")]
    assert made.tick(1) == [AskForSlots("app-1-1", "w")]
    slots = given_slots("app-1-1")
    assert made.allocated(slots, 2) == [LaunchExecutor(slots)]
    assert made.allocated(slots, 3) == []
    assert made.tick(4) == [LaunchExecutor(slots)]
    made.launched("l1", 7)
    assert made.tick(5) == []
    assert made.registered("l1", EXECUTOR, 7)
    assert [member.state for member in made.ready] == [MemberState.READY]


def test_an_executor_of_nobody_is_not_taken() -> None:
    made = ready_pool()
    assert not made.registered("l2", EXECUTOR, 7)
    assert not made.registered("l1", "another one", 8)  # type: ignore[arg-type]


def test_slots_that_nobody_waits_for_are_given_back() -> None:
    assert pool().allocated(given_slots("app-1-9"), 0) == [CancelSlots("app-1-9")]


def test_what_is_lost_is_replaced_and_stopped_until_it_has_ended() -> None:
    made = ready_pool()
    member = made.ready[0]
    assert made.gone("l1", "silent", 0, ended=False) == [
        StopExecutor("l1", WORKER),
        ReportMemberLost(member, "silent"),
        ScheduleFill(0),
    ]
    assert not made.is_empty
    assert made.tick(1) == [StopExecutor("l1", WORKER)]
    assert made.gone("l1", "status -9", 2, ended=True) == []
    assert made.is_empty
    assert made.fill(500) == [AskForSlots("app-1-2", None)]


def test_who_does_not_register_in_time_is_given_up() -> None:
    made = pool()
    made.want(None, 0)
    made.allocated(given_slots("app-1-1"), 0)
    assert made.tick(10_001) == [StopExecutor("l1", WORKER), ScheduleFill(500)]


def test_executors_that_fail_too_often_are_not_replaced_for_ever() -> None:
    made = pool(attempts=2)
    made.want(None, 0)
    outcomes = []
    for number in range(1, 4):
        made.fill(number)
        made.allocated(given_slots(f"app-1-{number}", f"l{number}"), number)
        outcomes.append(made.gone(f"l{number}", "it crashed", number, ended=True)[-1])
    expected = ReportUnavailable(None, "executors-fail", "it crashed", retryable=True)
    assert outcomes == [ScheduleFill(500), ScheduleFill(500), expected]


def test_a_refusal_that_never_can_be_met_is_not_retryable() -> None:
    made = pool()
    made.want(None, 0)
    assert made.refused("app-1-1", "too-many-slots", "nobody has 99") == [
        ReportUnavailable(None, "too-many-slots", "nobody has 99", retryable=False)
    ]
    assert made.refused("app-1-1", "no-slots", "late") == []


def test_a_worker_takes_its_executors_along_and_nobody_has_to_be_stopped() -> None:
    made = ready_pool()
    effects = made.worker_gone(WORKER, 0)
    assert [type(effect) for effect in effects] == [ReportMemberLost, ScheduleFill]
    assert made.is_empty


def test_at_the_end_requests_are_taken_back_and_nobody_is_replaced() -> None:
    made = ready_pool()
    made.want(None, 0)
    assert made.end() == [CancelSlots("app-1-2")]
    assert made.stop_all(0) == [StopExecutor("l1", WORKER)]
    assert made.fill(1) == []
    assert made.gone("l1", "status 0", 2, ended=True) == []
    assert made.is_empty


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5)), max_size=60))
def test_any_story_keeps_the_invariants(script: list[tuple[int, int]]) -> None:
    made = pool(attempts=50)
    for now_ms, (kind, which) in enumerate(script):
        launch_id, request_id = f"l{which}", f"app-1-{which}"
        match kind:
            case 0 if len(made.wanted) < 3:
                made.want(None, now_ms)
            case 1:
                made.fill(now_ms)
            case 2:
                made.allocated(given_slots(request_id, launch_id), now_ms)
            case 3:
                made.refused(request_id, "no-slots", "none")
            case 4:
                is_ours = made.find(launch_id) is not None
                assert made.registered(launch_id, EXECUTOR, 1) is is_ours
            case 5:
                made.gone(launch_id, "gone", now_ms, ended=bool(which % 2))
            case 6:
                made.worker_gone(WORKER, now_ms)
            case 7:
                made.tick(now_ms + 10_000 * (which == 0))
            case _:
                made.launched(launch_id, 1)
        made.check()
