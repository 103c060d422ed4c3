"""What a source's store keeps for replays, where a replay begins in it, and when it is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.replay.replay import ReplayError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import indexed_by
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.prepare.source_store import Retention, first_entry, note_index


def store_of(path: Path, *ranges: tuple[int, int], column: str | None = "ts") -> ChannelStore:
    """A store whose entries hold messages of these ranges of time, 100 bytes each; all of it was read."""
    store = ChannelStore(str(path), fragment="ingest", durable=False)
    note_index(store, column)
    for number, (low, high) in enumerate(ranges):
        store.files.write(f"segments/{number}", b"x")
        store.append(number, [Segment(f"segments/{number}", 1, 100, 0, low, high)], number)
    store.record_position("reader", len(ranges))
    return store


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=6),
    st.integers(0, 80),
    st.integers(0, 700),
)
def test_a_replay_begins_before_all_that_can_be_young_enough_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], from_ms: int, keep_bytes: int
) -> None:
    ranges = [(low, low + width) for low, width in spans]
    store = store_of(tmp_path_factory.mktemp("store"), *ranges)
    Retention(keep_bytes, 10**9).trim(store)
    is_gone = any(high >= from_ms for _, high in ranges[: store.start()])
    try:
        first = first_entry(store, from_ms, "ts", "source")
    except ReplayError:
        assert is_gone
        return
    assert not is_gone
    assert all(high < from_ms for _, high in ranges[:first])
    assert store.start() <= first < store.length()
    assert first == len(ranges) - 1 or ranges[first][1] >= from_ms


def test_what_was_not_read_is_kept_whatever_the_limits(tmp_path: Path) -> None:
    store = store_of(tmp_path, (0, 1), (2, 3), (4, 5))
    store.record_position("reader", 1)
    Retention(0, 0).trim(store)
    assert store.start() == 1


def test_entries_are_kept_within_both_limits(tmp_path: Path) -> None:
    store = store_of(tmp_path, (0, 1), (2, 3), (4, 5), (6, 7))
    Retention(10**9, 10**9).trim(store)
    assert store.start() == 0
    Retention(150, 10**9).trim(store)
    assert store.start() == 2
    Retention(10**9, -1000).trim(store)
    assert store.start() == 3  # the last entry always stays
    assert first_entry(store, 6, "ts", "source") == 3
    with pytest.raises(ReplayError, match=r"no longer stored") as refused:
        first_entry(store, 5, "ts", "source")
    assert "1970-01-01T00:00:00.005" in str(refused.value)


def test_nothing_is_deleted_before_it_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, (0, 1), (2, 3))

    def dies(_: object) -> int:
        raise OSError("killed here")

    monkeypatch.setattr(store, "trim", dies)
    with pytest.raises(OSError, match="killed"):
        Retention(0, 0).trim(store)
    with pytest.raises(ReplayError):  # too careful, but nothing is missed
        first_entry(ChannelStore(str(tmp_path)), 1, "ts", "source")


def test_without_an_index_a_replay_begins_with_the_oldest_and_is_refused_once_some_are_gone(
    tmp_path: Path,
) -> None:
    store = store_of(tmp_path, (0, 1), (2, 3), (4, 5), column=None)
    assert first_entry(store, 4, None, "source") == 0
    Retention(150, 10**9).trim(store)
    with pytest.raises(ReplayError, match="no longer stored"):
        first_entry(store, 4, None, "source")


def test_an_index_of_two_columns_is_none(tmp_path: Path) -> None:
    store = store_of(tmp_path, (0, 1), (2, 3))
    assert first_entry(store, 2, "ts", "source") == 1
    note_index(store, TS)
    assert first_entry(store, 2, "ts", "source") == 0
    note_index(store, "ts")
    assert first_entry(store, 2, "ts", "source") == 0


def test_an_empty_store_is_read_from_its_beginning(tmp_path: Path) -> None:
    store = ChannelStore(str(tmp_path), fragment="ingest")
    note_index(store, "ts")
    assert first_entry(store, 2, "ts", "source") == 0


def test_a_segment_is_indexed_by_a_column_of_timestamps_or_of_milliseconds() -> None:
    segment = Segment("s", 2, 1, 0, 7, 9)
    moments = [dt.datetime(1970, 1, 1, 0, 0, n, tzinfo=dt.UTC) for n in (3, 1, 2)]
    by_time = indexed_by(segment, pa.array(moments, pa.timestamp("us", "UTC")))
    assert (by_time.min_ts_ms, by_time.max_ts_ms) == (1000, 3000)
    by_number = indexed_by(segment, pa.array([5, None, 4], pa.int64()))
    assert (by_number.min_ts_ms, by_number.max_ts_ms) == (4, 5)
    assert indexed_by(segment, pa.array([None], pa.int64())) == segment
