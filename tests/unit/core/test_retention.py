"""What a channel keeps: counted, and full only while its subscriber can make room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.channel.retention import Limits, Retention
from drivetrain.errors import InternalError


def kept(limits: Limits, *sizes: int) -> Retention:
    """A channel with an entry of each size, one a second."""
    retention = Retention(limits)
    for number, size in enumerate(sizes):
        retention.added(size, number * 1_000)
    return retention


def test_a_channel_is_full_at_its_bytes_until_it_is_trimmed() -> None:
    retention = kept(Limits(bytes=100), 60, 40)
    assert retention.excess(0, 0) == "100 bytes"
    retention.trimmed(1)
    assert retention.excess(1, 0) is None


def test_a_channel_is_full_when_its_oldest_unread_entry_is_too_old() -> None:
    retention = kept(Limits(age_ms=5_000), 1, 1, 1)
    assert retention.excess(0, 4_999) is None
    assert retention.excess(0, 5_000) == "a batch that has been unread for 5000 ms"
    assert retention.excess(1, 5_000) is None
    assert retention.excess(1, 6_000) is not None


def test_a_channel_that_is_read_is_not_full_whatever_it_keeps() -> None:
    retention = kept(Limits(bytes=1, age_ms=1), 1_000)
    assert retention.excess(1, 1_000_000) is None
    retention.check()


def test_a_barrier_alone_is_nothing_to_read() -> None:
    retention = kept(Limits(bytes=1, age_ms=5_000), 1_000)
    retention.added(0, 1_000, is_barrier=True)
    retention.added(0, 2_000, is_barrier=True)
    assert retention.excess(1, 1_000_000) is None
    retention.check()
    retention.added(0, 3_000)
    assert retention.excess(1, 3_000) == "1000 bytes"
    late = kept(Limits(age_ms=5_000), 1)
    late.added(0, 1_000, is_barrier=True)
    late.added(1, 3_000)
    assert late.excess(1, 7_999) is None, "the batch behind the barrier is young"
    assert late.excess(1, 8_000) == "a batch that has been unread for 5000 ms"


def test_what_never_was_cannot_be_trimmed() -> None:
    with pytest.raises(InternalError):
        kept(Limits(), 1).trimmed(2)


@given(st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 10))))
def test_the_bytes_kept_are_those_of_the_entries_that_are_left(steps: list[tuple[int, int]]) -> None:
    retention = Retention(Limits(bytes=500))
    sizes: list[int] = []
    start = 0
    for size, trimmed in steps:
        retention.added(size, 0)
        sizes.append(size)
        start = min(len(sizes), start + trimmed)
        retention.trimmed(start)
        retention.check()
        assert retention.kept_bytes == sum(sizes[start:])
        assert retention.end == len(sizes)
