"""Placement: the warm one, the emptiest, the near one."""

from __future__ import annotations

from drivetrain.core.job.fragment_execution import ExecutorId
from drivetrain.core.job.placement import ReadyExecutor, choose, preferred_hosts

X, Y, Z = (
    ReadyExecutor(ExecutorId(name), slots, f"host-{name}") for name, slots in (("x", 1), ("y", 2), ("z", 2))
)


def test_the_executor_that_had_it_wins_over_all() -> None:
    assert choose([X, Y], {X.id: 9}, previous=X.id, preferred={"host-y"}) == "x"


def test_a_lost_executor_is_not_chosen() -> None:
    assert choose([Y], {}, previous=X.id) == "y"
    assert choose([], {}, previous=X.id) is None


def test_the_fewest_fragments_per_slot_then_the_near_one_then_the_first() -> None:
    assert choose([X, Y], {X.id: 1, Y.id: 1}) == "y"
    assert choose([Y, Z], {}, preferred={"host-z"}) == "z"
    assert choose([Y, Z], {}) == "y"


def test_preferred_is_the_input_with_the_fewest_hosts_and_one_with_more_than_eight_is_ignored() -> None:
    wide = frozenset(f"h{n}" for n in range(9))
    assert preferred_hosts([wide]) == frozenset()
    assert preferred_hosts([wide, frozenset("ab"), frozenset("c")]) == frozenset("c")
