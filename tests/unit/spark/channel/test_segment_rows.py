"""What a task delivers of segments: messages with the columns that are asked for, or partial results."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import TS, WM
from drivetrain.runtime.channel.segments import MessageLossError, read_segment, write_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.source import ChannelPartition, ChannelReader, channel_schema
from drivetrain.spark.channel.watermark import END_WATERMARK_MS, SHIFT_MS, watermark_of
from drivetrain.spark.connector.reduction import END, ROWS, PartialValue, Reduction, name_of
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = (
    StructType()
    .add("k", StringType())
    .add("text", StringType())
    .add("n", LongType())
    .add(TS, TimestampType())
)
STORED = pa.schema(
    [("k", pa.string()), ("text", pa.string()), ("n", pa.int32()), (TS, pa.timestamp("us", "UTC"))]
)
BY = Reduction(
    ("k",), (PartialValue("count"), PartialValue("sum", "n")), TS, 10_000, SHIFT_MS % 10_000, 0, "w", False
)


@pytest.fixture
def store(tmp_path: Path) -> ChannelStore:
    return ChannelStore(str(tmp_path / "channel"), fragment="f")


def segment(store: ChannelStore, *batches: list[tuple[str | None, int | None, int]]) -> Segment:
    """A segment of (key, number, time in ms)."""
    made = []
    for batch in batches:
        rows = [
            {"k": k, "text": "x" * 100, "n": n, TS: EPOCH + dt.timedelta(milliseconds=ms)}
            for k, n, ms in batch
        ]
        made.append(pa.RecordBatch.from_pylist(rows, schema=STORED))
    return write_segment(store.files, "s", made)


def reader(store: ChannelStore, by: Reduction | None = BY) -> ChannelReader:
    if by is None:
        return ChannelReader({"uri": store.uri}, channel_schema(COLUMNS))
    options = {"uri": store.uri, "reduction": by.to_json(), "columns": COLUMNS.json()}
    made: ChannelReader = pickle.loads(pickle.dumps(ChannelReader(options, by.columns(COLUMNS))))
    return made


def rows(of: ChannelReader, clock_ms: int | None, *segments: Segment) -> list[dict[str, Any]]:
    """The rows of a task; timestamps in µs, since some are beyond Python's."""
    found = []
    for batch in of.read(ChannelPartition(segments, clock_ms)):
        numbers = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.columns]
        found += pa.RecordBatch.from_arrays(numbers, batch.schema.names).to_pylist()
    return found


def test_the_messages_of_a_segment_are_groups_that_move_no_clock(store: ChannelStore) -> None:
    early = segment(store, [("a", 1, -1), ("a", 2, 0)], [("a", None, 9_999), (None, 5, -10_000)])
    later = segment(store, [("a", 7, 1)])
    found = rows(reader(store), None, early, later)

    def row(key: str | None, end_ms: int, count: int, total: int) -> dict[str, Any]:
        end_us = (end_ms + SHIFT_MS) * 1000
        return {"k": key, END: end_us, ROWS: count, name_of(0): count, name_of(1): total, WM: 0}

    expected = [row("a", 0, 1, 1), row("a", 10_000, 2, 2), row(None, 0, 1, 5), row("a", 10_000, 1, 7)]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize("clock_ms", [-5, 12_345, FINAL_CLOCK_MS])
def test_the_clock_comes_in_a_row_that_stands_for_no_message(store: ChannelStore, clock_ms: int) -> None:
    (punctuation,) = rows(reader(store), clock_ms)
    assert punctuation.pop(WM) == watermark_of(clock_ms) * 1000
    assert punctuation.pop(ROWS) == 0
    assert set(punctuation.values()) == {None}
    assert watermark_of(FINAL_CLOCK_MS) == END_WATERMARK_MS


def test_a_segment_that_is_not_as_it_was_written_is_not_reduced(store: ChannelStore) -> None:
    written = segment(store, [("a", 1, 0)])
    path = Path(store.uri) / written.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(EmbeddedError) as raised:
        rows(reader(store), None, written)
    assert isinstance(recovered(str(raised.value)), MessageLossError)


def test_a_column_that_a_segment_does_not_have_is_an_error_when_it_is_needed(store: ChannelStore) -> None:
    schema = pa.schema([field for field in STORED if field.name != "text"])
    batch = pa.RecordBatch.from_pylist([{"k": "a", "n": 1, TS: EPOCH}], schema=schema)
    written = write_segment(store.files, "s", [batch])
    assert len(rows(reader(store), None, written)) == 1
    with pytest.raises(InputError, match="do not have the columns"):
        rows(reader(store, None), None, written)


def test_only_columns_that_are_asked_for_are_read(store: ChannelStore) -> None:
    written = segment(store, [("a", 1, 0)], [("b", 2, 0)])
    assert [batch.schema.names for batch in read_segment(store.files, written, ["n", "k", "other"])] == [
        ["k", "n"]
    ] * 2
    assert [batch.num_columns for batch in read_segment(store.files, written)] == [4, 4]
