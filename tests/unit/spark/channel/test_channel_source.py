"""What the channel reader plans and yields, without a Spark session."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType

from drivetrain.core.channel.channel_log import Segment, TrimmedError
from drivetrain.core.checkpoint.transaction import Action, Command
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.errors import InputError
from drivetrain.runtime.channel.segments import MessageLossError, write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.source import TASK_BYTES, ChannelReader, _shares, channel_schema
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered

DATA = StructType().add("v", LongType())
UNLIMITED = ReadAllAvailable()
LIMITED = ReadMaxRows(1)  # the engine repeats one limit; the reader keeps to all of its options


def reader(uri: str, schema: StructType = DATA, **options: object) -> ChannelReader:
    return ChannelReader({"uri": uri} | {k: str(v) for k, v in options.items()}, channel_schema(schema))


@pytest.fixture
def store(tmp_path: Path) -> ChannelStore:
    return ChannelStore(str(tmp_path / "channel"), fragment="f")


def at(entry: int) -> dict[str, int]:
    """An offset of a query that has just begun; its clock is where `put` sets it."""
    return {"entry": entry, "clock": (entry - 1) * 1000 if entry else NO_CLOCK_MS, "life": 0}


def put(store: ChannelStore, number: int, *segments: list[int]) -> None:
    """Entry `number` with the clock 1000 × number; a value is its own timestamp in ms."""
    schema = pa.schema([("v", pa.int64()), ("__ts", pa.timestamp("us", tz="UTC"))])
    written = []
    for values in segments:
        stamps = pa.array([v * 1000 for v in values], schema.field(1).type)
        written.append(
            write_segment(store.files, "s", [pa.record_batch([pa.array(values), stamps], schema=schema)])
        )
    store.append(number, written, clock_ms=number * 1000)


def put_barrier(store: ChannelStore, round: int) -> None:
    """A barrier behind what is there."""
    store.append_barrier(Command(Action.PREPARE, round, round, 1))


def rows(source: ChannelReader, start: int, end: int) -> list[tuple[Any, ...]]:
    """(v, ts ms, wm ms, punct) of a planned batch, in no particular order but punctuations last."""
    found = []
    for partition in source.partitions(at(start), at(end)):
        travelled = pickle.loads(pickle.dumps((source, partition)))
        for batch in travelled[0].read(travelled[1]):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            stamps = [columns[name].cast(pa.int64()).to_pylist() for name in ("__ts", "__wm")]
            found += list(zip(columns["v"].to_pylist(), *stamps, columns["__punct"].to_pylist(), strict=True))
    return sorted(((v, ts // 1000, wm // 1000, p) for v, ts, wm, p in found), key=lambda r: (r[3], r[0] or 0))


def test_a_batch_is_its_messages_and_one_punctuation_with_the_last_clock(store: ChannelStore) -> None:
    put(store, 0, [1, 2], [3])
    put(store, 1)
    put(store, 2, [4])
    source = reader(store.uri)
    assert rows(source, 0, 3) == [
        (1, 1, 0, False),
        (2, 2, 0, False),
        (3, 3, 0, False),
        (4, 4, 0, False),
        (None, 2000, watermark_of(2000), True),
    ]
    assert rows(source, 1, 2) == [(None, 1000, watermark_of(1000), True)]
    assert list(source.partitions(at(1), at(1))) == []


def segments(sizes: list[int]) -> list[Segment]:
    return [Segment(str(n), 1, size, 0, 0, 0) for n, size in enumerate(sizes)]


@given(sizes=st.lists(st.integers(1, 4 * TASK_BYTES), max_size=12), tasks=st.integers(1, 6))
def test_segments_are_spread_over_as_many_tasks_as_they_are_worth(sizes: list[int], tasks: int) -> None:
    shares = _shares(segments(sizes), tasks)
    assert sorted(s.path for share in shares for s in share) == sorted(s.path for s in segments(sizes))
    assert len(shares) <= max(1, min(tasks, len(sizes)))
    assert len(shares) == 1 or (all(shares) and sum(sizes) > (len(shares) - 1) * TASK_BYTES)
    loads = [sum(s.bytes for s in share) for share in shares]
    assert max(loads) - min(loads) <= max(sizes, default=0) or len(shares) == 1


def test_a_new_query_starts_at_the_oldest_entry_left(store: ChannelStore) -> None:
    assert reader(store.uri).initialOffset() == at(0)
    for n in range(4):
        put(store, n, [n])
    store.trim({"s": 3})  # type: ignore[dict-item] # a plain name
    assert reader(store.uri).initialOffset() == {"entry": 3, "clock": NO_CLOCK_MS, "life": 0}
    assert reader(store.uri, start=2).initialOffset()["entry"] == 2
    with pytest.raises(TrimmedError):
        reader(store.uri).partitions(at(2), at(4))


def test_limits_cut_between_entries_but_never_starve(store: ChannelStore) -> None:
    for n in range(4):
        put(store, n, [1, 2, 3])
    source = reader(store.uri, maxRows=7)
    assert source.latestOffset(at(0), LIMITED)["entry"] == 2
    assert source.latestOffset(at(3), LIMITED)["entry"] == 4
    assert source.latestOffset(at(0), UNLIMITED)["entry"] == 4
    assert reader(store.uri, maxRows=2).latestOffset(at(0), LIMITED)["entry"] == 1
    size = store.entry(0).bytes
    assert reader(store.uri, maxBytes=3 * size).latestOffset(at(0), LIMITED)["entry"] == 3


def test_a_batch_ends_in_front_of_a_barrier_until_that_is_released(
    store: ChannelStore, tmp_path: Path
) -> None:
    put(store, 0, [1])
    put(store, 1, [2])
    put_barrier(store, 7)
    put(store, 3, [3])
    put_barrier(store, 8)
    put(store, 5, [4])
    held = reader(store.uri, released=tmp_path / "released")
    assert held.latestOffset(at(0), UNLIMITED)["entry"] == 2
    assert held.latestOffset(at(2), UNLIMITED)["entry"] == 2
    publish_clock(tmp_path / "released", 7)
    assert held.latestOffset(at(2), UNLIMITED)["entry"] == 4
    assert rows(held, 2, 4) == [(3, 3, 0, False), (None, 3000, watermark_of(3000), True)]
    assert held.latestOffset(at(4), UNLIMITED)["entry"] == 4
    publish_clock(tmp_path / "released", 8)
    assert held.latestOffset(at(0), UNLIMITED)["entry"] == 6
    assert reader(store.uri).latestOffset(at(0), UNLIMITED)["entry"] == 6


def test_a_reader_with_an_interval_waits_but_not_for_a_barrier_or_the_end(
    store: ChannelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "time", lambda: now_s[0])
    limits = {"windowBatches": 50, "windowRows": 8, "windowBytes": 1 << 20}
    slow = reader(store.uri, intervalMs=60_000, released=tmp_path / "released", **limits)
    put(store, 0, [1])
    assert slow.latestOffset(at(0), UNLIMITED)["entry"] == 1, "the first batch does not wait"
    put(store, 1, [2])
    put(store, 2, [3])
    assert slow.latestOffset(at(1), UNLIMITED) == at(1)
    now_s[0] = 120.0
    assert slow.latestOffset(at(1), UNLIMITED)["entry"] == 3, "another minute of the wall clock has begun"
    put(store, 3, [4])
    assert slow.latestOffset(at(3), UNLIMITED) == at(3)
    put_barrier(store, 7)
    assert slow.latestOffset(at(3), UNLIMITED)["entry"] == 4, "the checkpoint needs what is in front of it"
    publish_clock(tmp_path / "released", 7)
    put(store, 5, [5, 6, 7])
    assert slow.latestOffset(at(4), UNLIMITED) == at(4)
    put(store, 6, [8])
    assert slow.latestOffset(at(4), UNLIMITED)["entry"] == 7, "half of the window is full"
    put(store, 7, [9])
    assert slow.latestOffset(at(7), UNLIMITED) == at(7)
    store.append_clock(FINAL_CLOCK_MS)
    assert slow.latestOffset(at(7), UNLIMITED)["entry"] == 9, "the producer has ended"


def test_a_released_barrier_is_no_batch_by_itself(store: ChannelStore, tmp_path: Path) -> None:
    put(store, 0, [1])
    put_barrier(store, 7)
    put_barrier(store, 8)
    publish_clock(tmp_path / "released", 8)
    held = reader(store.uri, released=tmp_path / "released")
    assert held.latestOffset(at(0), UNLIMITED)["entry"] == 1
    assert held.latestOffset(at(1), UNLIMITED)["entry"] == 1
    put_barrier(store, 9)
    assert held.latestOffset(at(1), UNLIMITED)["entry"] == 1
    put(store, 4, [2])
    assert held.latestOffset(at(1), UNLIMITED)["entry"] == 1
    publish_clock(tmp_path / "released", 9)
    assert held.latestOffset(at(1), LIMITED)["entry"] == 5


def test_available_now_stops_at_what_was_there(store: ChannelStore) -> None:
    put(store, 0, [1])
    source = reader(store.uri)
    source.prepareForTriggerAvailableNow()
    put(store, 1, [2])
    assert source.latestOffset(at(0), UNLIMITED)["entry"] == 1
    assert source.latestOffset(at(1), UNLIMITED)["entry"] == 1
    assert source.reportLatestOffset()["entry"] == 2


def test_a_subscriber_records_what_spark_has_finished(store: ChannelStore) -> None:
    for n in range(3):
        put(store, n, [n])
    source = reader(store.uri, subscriber="s")
    source.latestOffset(at(0), UNLIMITED)
    assert store.positions() == {"s": 0}
    source.latestOffset(at(2), UNLIMITED)
    source.commit(at(1))
    assert store.positions() == {"s": 2}


def test_a_lost_segment_is_a_typed_error_that_names_the_file(store: ChannelStore) -> None:
    put(store, 0, [1])
    path = store.entry(0).segments[0].path
    (Path(store.uri) / path).unlink()
    with pytest.raises(EmbeddedError) as told:
        rows(reader(store.uri), 0, 1)
    lost = recovered(str(told.value))
    assert isinstance(lost, MessageLossError)
    assert path in str(lost)


def test_columns_that_the_channel_does_not_have_are_named(store: ChannelStore) -> None:
    put(store, 0, [1])
    with pytest.raises(InputError, match="expected: w: string"):
        rows(reader(store.uri, StructType().add("w", StringType())), 0, 1)


def test_entries_that_were_planned_and_are_gone_are_a_loss(store: ChannelStore) -> None:
    put(store, 0, [1])
    with pytest.raises(EmbeddedError, match="planned") as raised:
        reader(store.uri).partitions(at(0), at(2))
    assert isinstance(recovered(str(raised.value)), MessageLossError)


def test_a_restart_without_news_says_the_clock_once_more(store: ChannelStore) -> None:
    for n in range(3):
        put(store, n, [n])
    source = reader(store.uri)
    again = source.latestOffset(at(3), UNLIMITED)
    assert again == {"entry": 3, "clock": 2000, "life": 1}
    assert source.latestOffset(again, UNLIMITED) == again
    (partition,) = source.partitions(at(3), again)
    (batch,) = source.read(partition)
    assert batch.column("__punct").to_pylist() == [True]
    assert batch.column("__wm").cast(pa.int64()).to_pylist() == [watermark_of(2000) * 1000]
    store.trim({"s": 3})  # type: ignore[dict-item] # a plain name
    assert reader(store.uri).latestOffset(again, UNLIMITED) == {"entry": 3, "clock": 2000, "life": 2}


def test_a_restart_with_news_needs_no_more_than_them(store: ChannelStore) -> None:
    for n in range(3):
        put(store, n, [n])
    source = reader(store.uri)
    assert source.latestOffset(at(2), UNLIMITED) == {"entry": 3, "clock": 2000, "life": 0}
    assert source.latestOffset(at(3), UNLIMITED) == at(3)


def test_a_query_that_has_seen_no_clock_repeats_none(store: ChannelStore) -> None:
    assert reader(store.uri).latestOffset(at(0), UNLIMITED) == at(0)
