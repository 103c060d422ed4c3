"""Who is wrong when clocks differ: the worker, or the leader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.cluster.worker_clocks import ClockVerdict, WorkerClocks

LIMIT_MS = 10_000
FAR_MS = 3_600_000


def test_a_new_worker_whose_clock_is_far_off_is_refused_and_one_that_was_registered_is_kept() -> None:
    clocks = WorkerClocks(LIMIT_MS)
    assert clocks.judge("fine", LIMIT_MS, was_registered=False) == (ClockVerdict.FINE, True)
    assert clocks.judge("new", FAR_MS, was_registered=False) == (ClockVerdict.REFUSE, True)
    assert clocks.judge("old", -FAR_MS, was_registered=True) == (ClockVerdict.WARN, True)
    assert clocks.judge("old", -FAR_MS, was_registered=True) == (ClockVerdict.WARN, False)


@pytest.mark.parametrize("with_leader", [0, 1, 3])
def test_a_leader_from_which_most_machines_differ_suspects_itself(with_leader: int) -> None:
    clocks = WorkerClocks(LIMIT_MS)
    for number in range(with_leader):
        clocks.judge(f"with {number}", number, was_registered=False)
    for number in range(with_leader + 1):
        verdict, _ = clocks.judge(f"apart {number}", FAR_MS + number, was_registered=False)
        assert verdict is ClockVerdict.REFUSE
    verdict, _ = clocks.judge("one more", FAR_MS, was_registered=False)
    assert verdict is ClockVerdict.SUSPECT_LEADER
    # Those that differ from the leader and from each other prove nothing.
    assert clocks.judge("alone", -FAR_MS, was_registered=False)[0] is ClockVerdict.REFUSE


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-3, 3), st.booleans())))
def test_a_registered_worker_is_never_refused_and_few_differences_are_kept(
    events: list[tuple[str, int, bool]],
) -> None:
    clocks = WorkerClocks(LIMIT_MS, most=4)
    for worker, apart, was_registered in events:
        verdict, _ = clocks.judge(worker, apart * LIMIT_MS, was_registered=was_registered)
        assert verdict is not ClockVerdict.REFUSE or not was_registered
        assert (verdict is ClockVerdict.FINE) == (abs(apart) <= 1)
        assert len(clocks) <= 4
    for worker in "abcdefgh":
        clocks.forget(worker)
    assert len(clocks) == 0
