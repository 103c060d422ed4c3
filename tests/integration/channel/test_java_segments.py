"""Java writes the same messages into segments as Python, and leaves to Python what it cannot write."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from columns_of_types import COLUMNS
from drivetrain.core.channel.channel_log import Segment
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel import writer
from drivetrain.spark.channel.java_segments import java_segments

ALL_TYPES = (
    "id",
    "cast(id AS string) AS s",
    *COLUMNS,
    "cast(id AS decimal(38, 3)) AS x",
    "date'2024-01-01' AS day",
    "interval '3' day AS iv",
    "timestamp_micros(id * 1000 - 500001) AS __ts",
)


@pytest.fixture
def store(tmp_path: Path) -> ChannelStore:
    return ChannelStore(str(tmp_path / "channel"), fragment="f")


def rows_of(store: ChannelStore, segments: Sequence[Segment]) -> pa.Table:
    return pa.Table.from_batches(
        [batch for segment in segments for batch in read_segment(store.files, segment)]
    )


def test_java_and_python_write_the_same_rows_of_all_types(spark: SparkSession, store: ChannelStore) -> None:
    df = spark.range(0, 3_000, 1, 3).selectExpr(*ALL_TYPES)
    by_java = java_segments(df, store.files, "java", "segments", writer.SEGMENT_BYTES)
    by_python = writer._by_python(df, store.files, "python", "segments")
    assert by_java is not None, "the class is on Java's path"
    found, expected = rows_of(store, by_java), rows_of(store, by_python)
    assert found.schema.equals(expected.schema), "reading converts nothing"
    assert found.equals(expected)
    known = [(s.rows, s.min_ts_ms, s.max_ts_ms) for s in by_java]
    assert known == [(s.rows, s.min_ts_ms, s.max_ts_ms) for s in by_python]
    for segment in by_java:
        content = (Path(store.uri) / segment.path).read_bytes()
        assert (len(content), zlib.crc32(content)) == (segment.bytes, segment.crc32)
        assert re.fullmatch(r"segments/java-[0-9a-f]{32}\.arrow", segment.path)


def test_java_closes_a_segment_when_it_is_large_and_makes_none_without_rows(
    spark: SparkSession, store: ChannelStore
) -> None:
    large = "repeat(cast(hash(id) AS string), if(id % 500 = 0, 700000, 200)) AS s"
    df = spark.range(0, 20_000, 1, 2).selectExpr("id", large, "timestamp_millis(id) AS __ts")
    by_java = java_segments(df, store.files, "java", "segments", 8 << 20)
    assert by_java is not None
    assert len(by_java) > 10
    assert rows_of(store, by_java)["id"].to_pylist() == list(range(20_000))
    largest = max(sum(batch.nbytes for batch in read_segment(store.files, segment)) for segment in by_java)
    assert largest < 32 << 20, "a row of 7 MB ends its batch"
    assert java_segments(df.where("id < 0"), store.files, "java", "segments", 8 << 20) == []


def test_text_that_cannot_be_compressed_and_a_buffer_of_several_blocks_are_read_back(
    spark: SparkSession, store: ChannelStore
) -> None:
    df = spark.range(0, 300, 1, 1).selectExpr(
        "id",
        "unhex(sha2(cast(id AS string), 512)) AS r",
        "repeat('ab', 3000000 * int(id = 7)) AS s",
        "timestamp_millis(0) AS __ts",
    )
    by_java = java_segments(df, store.files, "java", "segments", writer.SEGMENT_BYTES)
    assert by_java is not None
    found = rows_of(store, by_java)
    assert found.equals(rows_of(store, writer._by_python(df, store.files, "python", "segments")))
    assert max(len(text) for text in found["s"].to_pylist()) == 6_000_000


def test_what_java_cannot_write_is_left_to_python_which_says_what_is_wrong(
    spark: SparkSession, store: ChannelStore
) -> None:
    untimed = spark.range(3).selectExpr("id", "if(id = 2, null, timestamp_millis(0)) AS __ts")
    assert java_segments(untimed, store.files, "java", "segments", 1 << 20) is None
    with pytest.raises(Exception, match="a message has no event time"):
        writer.write_segments(untimed, store, 0)
    timed = spark.range(3).selectExpr("id", "timestamp_millis(0) AS __ts")
    assert java_segments(timed, store.files, "no-such/folder", "segments", 1 << 20) is None


def test_an_error_of_the_batch_is_raised_and_leaves_no_segment(
    spark: SparkSession, store: ChannelStore
) -> None:
    df = spark.range(0, 60_000, 1, 1).selectExpr(
        "id", "if(id = 59999, raise_error('not this one'), 'fine') AS s", "timestamp_millis(0) AS __ts"
    )
    with pytest.raises(Exception, match="not this one"):
        java_segments(df, store.files, "java", "segments", 100_000)
    assert store.length() == 0


def test_files_that_java_does_not_reach_are_left_to_python(
    spark: SparkSession, store: ChannelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = spark.range(3).selectExpr("id", "timestamp_millis(0) AS __ts")
    monkeypatch.setattr(type(store.files), "is_local", False)
    assert java_segments(df, store.files, "java", "segments", 1 << 20) is None
    assert sum(segment.rows for segment in writer.write_segments(df, store, 0)) == 3
