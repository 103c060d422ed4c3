"""What an application is said to wait for: truthful, and with singular and plural right."""

from __future__ import annotations

import random
from typing import Any

import pytest

from drivetrain.cluster.app_master import waiting_reasons
from drivetrain.cluster.app_master.executors.executor_pool import ExecutorPool
from drivetrain.cluster.messages.resources import SlotsAllocated
from drivetrain.core.job.fragment_execution import Execution, FragmentId
from drivetrain.core.job.restarts import RestartKind, RestartPolicy, RestartStrategy

SOMEBODY: Any = "a reference"


def pool(*places: str | None) -> ExecutorPool:
    policy = RestartPolicy(RestartKind.FAILURE_RATE, attempts=9, delay_ms=500)
    made = ExecutorPool("app", RestartStrategy(policy, random.Random(0)), start_timeout_ms=10_000)
    for place in places:
        made.want(place, 0)
    return made


def give(made: ExecutorPool, number: int, worker: str, *, is_ready: bool = False) -> None:
    made.allocated(SlotsAllocated(f"app-{number}", f"l{number}", worker, worker, "host", SOMEBODY, 1), 0)
    if is_ready:
        assert made.registered(f"l{number}", SOMEBODY, 1)


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ((None,), "slots for 1 executor"),
        ((None, None), "slots for 2 executors"),
        (("w1",), "slots for 1 executor on worker w1"),
        (("w2", "w1"), "slots for 2 executors on workers w1 and w2"),
        (("w1", None), "slots for 2 executors"),
    ],
)
def test_slots(places: tuple[str | None, ...], told: str) -> None:
    assert waiting_reasons.executors(pool(*places)) == told


def test_executors_that_start_are_not_slots_any_more() -> None:
    made = pool(None, None, None)
    give(made, 1, "w1")
    assert waiting_reasons.executors(made) == "slots for 2 executors and 1 executor to start on worker w1"
    give(made, 2, "w1")
    give(made, 3, "w2")
    assert waiting_reasons.executors(made) == "3 executors to start on workers w1 and w2"
    assert made.registered("l3", SOMEBODY, 3)
    assert waiting_reasons.executors(made) == "2 executors to start on worker w1"


def test_nothing_when_all_are_there_or_none_are_wanted() -> None:
    made = pool(None)
    give(made, 1, "w1", is_ready=True)
    assert waiting_reasons.executors(made) is None
    assert waiting_reasons.executors(pool()) is None


def test_the_delay_before_a_lost_one_is_replaced() -> None:
    made = pool(None, None)
    give(made, 1, "w1", is_ready=True)
    give(made, 2, "w2")
    made.gone("l2", "it failed", 0, ended=True)
    assert waiting_reasons.executors(made) == "the next attempt to get 1 executor"
    made.fill(1_000)
    assert waiting_reasons.executors(made) == "slots for 1 executor"


def test_preparing_names_the_worker_and_spark_only_before_it_runs() -> None:
    made = pool(None)
    give(made, 1, "w1", is_ready=True)
    first = waiting_reasons.preparation(made.ready[0], is_first=True)
    assert first == "Spark to start on worker w1 and the application to be prepared"
    again = waiting_reasons.preparation(made.ready[0], is_first=False)
    assert again == "the application to be prepared on worker w1"


def test_fragments_that_stop() -> None:
    made = [Execution(FragmentId(name), 1) for name in ("count", "join")]
    assert waiting_reasons.fragments(made) == "2 fragments to stop"
    assert waiting_reasons.fragments(made[:1]) == "fragment count to stop"
    assert waiting_reasons.fragments([]) is None
