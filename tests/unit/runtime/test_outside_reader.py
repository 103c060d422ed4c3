"""What a producer and another application that reads its channel tell each other, in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.core.channel.channel_log import Segment
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import InputError
from drivetrain.runtime.channel.outside_reader import DroppedMessages, OutsideReader
from drivetrain.runtime.channel.store import ChannelStore


def channel(directory: Path, entries: int) -> ChannelStore:
    """A channel of entries of ten messages."""
    store = ChannelStore(str(directory / "channel"), fragment="shop")
    for number in range(entries):
        path = f"segments/{number}.arrow"
        store.files.write(path, b"x")
        store.append(number, [Segment(path, 10, 1, 0, number, number)], number)
    return store


def test_dropped_entries_keep_their_place_and_clock_and_are_counted_once(tmp_path: Path) -> None:
    store = channel(tmp_path, 4)
    reader = OutsideReader(store)
    assert reader.drop([0, 1]) == [0, 1]
    assert reader.drop([0, 1]) == [0, 1]
    entries = ChannelStore(store.uri).entries(0)
    assert [(e.number, e.clock_ms, e.rows, e.dropped) for e in entries] == [
        (0, 0, 0, 10),
        (1, 1, 0, 10),
        (2, 2, 10, 0),
        (3, 3, 10, 0),
    ]
    assert sorted(store.files.names("segments")) == ["2.arrow", "3.arrow"]
    assert OutsideReader(ChannelStore(store.uri)).dropped() == DroppedMessages(20, 2)


def test_what_a_batch_is_planned_to_take_stays(tmp_path: Path) -> None:
    store = channel(tmp_path, 4)
    OutsideReader(ChannelStore(store.uri)).plan(2)
    producer = OutsideReader(store)
    assert producer.planned() == 2
    assert producer.drop([0, 1, 2]) == [2]
    assert producer.dropped() == DroppedMessages(10, 3)


def test_while_a_reader_plans_nothing_is_dropped(tmp_path: Path) -> None:
    store = channel(tmp_path, 2)
    planning = OutsideReader(ChannelStore(store.uri))
    planning._lock.wait()
    assert OutsideReader(store).drop([0]) == []
    planning._lock.release()
    assert OutsideReader(store).drop([0]) == [0]


def test_a_producer_that_dies_after_it_has_dropped_is_followed_by_one_that_counts(tmp_path: Path) -> None:
    store = channel(tmp_path, 2)

    def die(point: CrashPoint) -> None:
        if point is CrashPoint.ENTRY_DROPPED:
            raise KeyboardInterrupt

    with armed(die), pytest.raises(KeyboardInterrupt):
        OutsideReader(store).drop([0])
    after = OutsideReader(ChannelStore(store.uri, fragment="shop"))
    assert after.dropped() == DroppedMessages()
    assert after.count() == after.count() == DroppedMessages(10, 1)


def test_a_damaged_count_is_an_error_and_an_empty_plan_is_none(tmp_path: Path) -> None:
    store = channel(tmp_path, 1)
    (tmp_path / "channel" / "planned").write_bytes(b"")
    (tmp_path / "channel" / "dropped").write_bytes(b"12")
    reader = OutsideReader(store)
    assert reader.planned() == 0
    with pytest.raises(InputError, match="number of dropped messages"):
        reader.dropped()
