"""How much a channel keeps for another application, and what is dropped."""

from __future__ import annotations

import random

import pytest

from drivetrain.core.channel.outside_quota import OutsidePolicy, OutsideQuota
from drivetrain.errors import InternalError


def filled(policy: OutsidePolicy, entries: int) -> OutsideQuota:
    """An account of entries of ten messages and a hundred bytes each, one every second."""
    room = OutsideQuota(policy)
    for number in range(entries):
        room.added(10, 100, number * 1000)
    return room


def test_without_a_limit_of_age_a_producer_waits_when_too_much_is_unread_and_drops_nothing() -> None:
    room = filled(OutsidePolicy(keep_bytes=300), 3)
    assert room.must_wait
    assert room.to_drop(0, now_ms=10**9) == []
    room.passed(1)
    assert not room.must_wait
    assert (room.unread_rows, room.unread_bytes) == (20, 200)
    room.check()


def test_with_one_it_drops_what_is_too_old_and_what_is_too_much_and_never_waits() -> None:
    room = filled(OutsidePolicy(keep_bytes=10_000, drop_after_ms=2_500), 5)
    assert not room.must_wait
    assert room.to_drop(0, now_ms=4_000) == [0, 1]
    full = filled(OutsidePolicy(keep_bytes=300, drop_after_ms=10**9), 5)
    assert not full.must_wait
    assert full.to_drop(0, now_ms=0) == [0, 1, 2], "until less than that is unread"


def test_what_a_batch_is_planned_to_take_is_never_dropped() -> None:
    room = filled(OutsidePolicy(keep_bytes=10_000, drop_after_ms=1), 4)
    assert room.to_drop(3, now_ms=10**6) == [3]
    with pytest.raises(InternalError, match="invariant 2"):
        room.dropped(2)
    room.dropped(3)
    assert (room.unread_rows, room.unread_bytes) == (30, 300)
    with pytest.raises(InternalError, match="invariant 2"):
        room.dropped(3)


def test_entries_without_messages_are_not_dropped() -> None:
    room = OutsideQuota(OutsidePolicy(keep_bytes=0, drop_after_ms=1))
    room.added(0, 0, 0)
    room.added(5, 50, 0)
    assert room.to_drop(0, now_ms=10**6) == [1]


def test_no_limit_of_bytes_never_makes_a_producer_wait() -> None:
    assert not filled(OutsidePolicy(keep_bytes=0), 100).must_wait


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_keep_the_sums_and_what_is_planned(seed: int) -> None:
    random_ = random.Random(seed)
    room = OutsideQuota(OutsidePolicy(random_.choice([0, 300, 1000]), random_.choice([None, 50, 500])))
    planned = position = now_ms = 0
    gone: set[int] = set()
    for _ in range(300):
        now_ms += random_.randrange(30)
        match random_.randrange(4):
            case 0:
                room.added(random_.randrange(3), random_.randrange(200), now_ms)
            case 1:
                planned = random_.randint(planned, room.end)
            case 2:
                position = random_.randint(position, max(position, planned))
                room.passed(position)
            case _:
                for number in room.to_drop(planned, now_ms):
                    assert number >= planned
                    assert number not in gone
                    room.dropped(number)
                    gone.add(number)
        room.check()
