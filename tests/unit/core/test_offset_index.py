"""Where a replay begins, against a naive model that keeps every message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.replay.offset_index import UNKNOWN_MS, OffsetIndex
from drivetrain.errors import InternalError

P = ("t", 0)


def told(index: OffsetIndex, times: list[int | None], start: int, end: int) -> None:
    known = [ms for ms in times[start:end] if ms is not None]
    index.record(P, start, end, max(known, default=None))


@given(
    st.lists(st.none() | st.integers(0, 60), max_size=60),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.booleans()), max_size=60),
    st.integers(4, 6),
    st.integers(0, 61),
)
def test_no_message_at_or_after_a_time_lies_before_where_its_replay_begins(
    times: list[int | None], moves: list[tuple[int, int, bool]], limit: int, from_ms: int
) -> None:
    """Batches follow each other, run again, are missed, and begin again further back."""
    index = OffsetIndex(limit)
    index.begin(P, 0)
    at = 0
    for back_to, size, is_told in moves:
        if back_to < at and back_to % 5 == 0:
            at = back_to  # a new life
        end = min(len(times), at + size)
        if is_told:
            told(index, times, at, end)
            index.check()
        at = end
    start = index.start(P, from_ms)
    assert start is not None
    assert all(ms is None or ms < from_ms for ms in times[:start])


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.integers(0, 1000), st.integers(1, 7))
def test_with_room_for_all_a_replay_begins_less_than_a_batch_before_its_first_message(
    times: list[int], from_ms: int, size: int
) -> None:
    index = OffsetIndex(1000)
    for start in range(0, len(times), size):
        told(index, list(times), start, min(len(times), start + size))
    first = next((n for n, ms in enumerate(times) if ms >= from_ms), len(times))
    begin = index.start(P, from_ms)
    assert begin is not None
    assert first - size < begin <= first


def test_what_nobody_told_of_may_be_of_any_time_until_a_replay_runs_over_it() -> None:
    index = OffsetIndex()
    index.begin(P, 0)
    assert index.record(P, 0, 10, 5)
    assert index.record(P, 20, 30, 6)
    assert index.partitions[P].steps == [(10, 5), (30, UNKNOWN_MS)]
    assert index.start(P, 10**15) == 10
    assert not index.record(P, 0, 10, 5), "known already"
    assert index.record(P, 10, 25, 8)
    assert index.partitions[P].steps == [(25, 8)] or index.partitions[P].steps == [(10, 5), (25, 8)]
    assert index.start(P, 9) == 25


def test_steps_are_bounded_and_the_newest_stay_exact() -> None:
    index = OffsetIndex(8)
    for n in range(1000):
        index.record(P, n, n + 1, n)
        index.check()
    assert index.start(P, 999) == 999
    assert index.start(P, 0) == 0


def test_a_topic_that_is_another_one_is_forgotten_and_what_is_impossible_is_refused() -> None:
    index = OffsetIndex()
    index.begin(P, 3)
    index.begin(P, 0)
    assert index.start(P, 0) == 3
    index.forget("t")
    assert index.start(P, 0) is None
    for start, end in ((5, 4), (-1, 4)):
        with pytest.raises(InternalError):
            index.record(P, start, end, 0)
    assert index.start(P, 0) is None, "an illegal call changes nothing"
    with pytest.raises(InternalError):
        OffsetIndex(3)
