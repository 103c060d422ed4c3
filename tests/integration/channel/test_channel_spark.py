"""A channel between Spark queries: every type, every failure, and nothing twice."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from channel_traffic import START_MS, collected, eventually, ours, timed
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import InputError, InternalError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clocked import with_channel_clock
from drivetrain.spark.channel.feeds import IterableFeed
from drivetrain.spark.channel.ingest import Ingest, IngestLimits
from drivetrain.spark.channel.ingest_threads import IngestThreads
from drivetrain.spark.channel.source import ChannelSource, read_channel
from drivetrain.spark.channel.writer import write_segments
from drivetrain.spark.measure.small_batches import SmallBatches, taking
from drivetrain.spark.session.spark_errors import recovered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TS = f"timestamp_millis({START_MS}) AS __ts"


def arrived(
    spark: SparkSession, uri: str, schema: StructType, root: Path, **options: Any
) -> list[tuple[Any, ...]]:
    """Everything that a query reads from the channel until its end."""
    rows: list[tuple[Any, ...]] = []
    df = with_channel_clock(read_channel(spark, uri, schema, **options))
    query = df.writeStream.foreachBatch(lambda batch, _: rows.extend(tuple(r) for r in batch.collect()))
    checkpoint = str(root / f"checkpoint-{time.monotonic_ns()}")
    started = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert started.awaitTermination(120)
    return rows


def test_every_type_comes_back_as_it_went_in(spark: SparkSession, tmp_path: Path) -> None:
    ddl = """s string, b binary, i int, l long, h short, y byte, f float, d double, o boolean,
        x decimal(20,3), t date, u timestamp, n timestamp_ntz, a array<string>, m map<string, long>,
        r struct<p: int, q: array<struct<w: timestamp, z: string>>>"""
    moment = datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=UTC)
    wall = moment.replace(tzinfo=None)
    nested = (1, [(moment, "z"), (None, None)])
    full = (
        "ü",
        b"\0\1",
        1,
        2**40,
        3,
        4,
        0.5,
        -0.25,
        True,
        Decimal("12345678901234567.125"),
        date(1900, 1, 1),
    )
    rows = [
        (*full, moment, wall, ["a", None], {"k": 1, "j": None}, nested),
        (None,) * 16,
        (
            "",
            b"",
            0,
            0,
            0,
            0,
            0.0,
            0.0,
            False,
            Decimal(0),
            date(9999, 12, 31),
            moment,
            wall,
            [],
            {},
            (None, []),
        ),
    ]
    df = spark.createDataFrame(rows, ddl).selectExpr("*", TS)
    store = ChannelStore(str(tmp_path / "channel"))
    segments = write_segments(df, store, 0)
    assert sum(segment.rows for segment in segments) == 3
    assert {(segment.min_ts_ms, segment.max_ts_ms) for segment in segments} == {(START_MS, START_MS)}
    store.append(0, segments, START_MS)
    found = arrived(spark, store.uri, df.schema, tmp_path)
    assert sorted(map(repr, found)) == sorted(map(repr, (tuple(row) for row in df.collect())))


def test_spark_adds_no_variable_to_the_environment_that_tasks_are_sent(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A map that grew while another query sent it to a task arrived damaged, and failed its first batch."""
    store = ChannelStore(str(tmp_path / "channel"))
    store.append(0, write_segments(spark.range(3).selectExpr("id", TS), store, 0), START_MS)
    df = read_channel(spark, store.uri, spark.range(1).selectExpr("id", TS).schema)
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource(ChannelSource.name()).dataSourceCls().envVars()
    before = set(environment)

    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)

    assert set(environment) == before


def test_partitions_without_rows_make_no_file_and_large_ones_several(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChannelStore(str(tmp_path / "channel"))
    df = spark.range(0, 8, 1, 8).where("id = 3").selectExpr("id", TS)
    assert [segment.rows for segment in write_segments(df, store, 0)] == [1]
    assert write_segments(df.where("id < 0"), store, 1) == []
    monkeypatch.setattr("drivetrain.spark.channel.writer.SEGMENT_BYTES", 200_000)
    segments = write_segments(spark.range(0, 50_000, 1, 1).selectExpr("id", TS), store, 2)
    assert sum(segment.rows for segment in segments) == 50_000
    assert len(segments) == 3  # batches of 10,000 rows of 16 bytes, closed at 200,000 bytes
    assert len({segment.path for segment in segments}) == 3


def test_small_batches_come_through_the_driver_unless_they_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChannelStore(str(tmp_path / "channel"))
    two = spark.range(0, 10, 1, 2).selectExpr("id", "array(named_struct('at', current_timestamp())) AS x", TS)
    small = SmallBatches(1 << 20)
    for batch_id, (chosen, files) in enumerate([(None, 2), (small, 1)]):
        segments = write_segments(two, store, batch_id, small=chosen)
        assert len(segments) == files
        store.append(batch_id, segments, START_MS)
    assert write_segments(two.where("id < 0"), store, 2, small=small) == []
    assert len(arrived(spark, store.uri, two.schema, tmp_path)) == 20
    timeless = spark.range(1).select("id", F.lit(None).cast("timestamp").alias("__ts"))
    with pytest.raises(InputError, match="a message has no event time"):
        write_segments(timeless, store, 2, small=small)
    with taking(100 << 20):
        assert len(write_segments(two, store, 2, small=SmallBatches(1 << 20))) == 2
    monkeypatch.setattr("drivetrain.spark.measure.small_batches.LIMIT_BYTES", 50)
    assert len(write_segments(two, store, 2, small=small)) == 2


def test_a_message_without_event_time_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    store = ChannelStore(str(tmp_path / "channel"))
    with pytest.raises(InternalError, match="__ts"):
        write_segments(spark.range(1), store, 0)
    with pytest.raises(Exception, match="a message has no event time"):
        write_segments(spark.range(1).select("id", F.lit(None).cast("timestamp").alias("__ts")), store, 0)
    assert store.length() == 0


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_batch_that_failed_behind_its_append_runs_again_and_adds_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = ChannelStore(str(tmp_path / "first"), fragment="source")
    for n in range(3):
        first.append(n, write_segments(spark.range(n * 10, n * 10 + 10).selectExpr("id", TS), first, n), n)
    second = ChannelStore(str(tmp_path / "second"), fragment="middle")
    seen: list[int] = []

    def pass_on(df: DataFrame, batch_id: int) -> None:
        store = ChannelStore(second.uri, fragment="middle", incarnation=len(seen))
        store.append(batch_id, write_segments(df, store, batch_id), batch_id)
        seen.append(batch_id)
        if seen == [0, 1]:
            raise RuntimeError("killed between the append and Spark's commit")

    source = read_channel(spark, first.uri, spark.range(0).selectExpr("id", TS).schema, maxRows=10)
    writer = with_channel_clock(source).writeStream.foreachBatch(pass_on)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="killed between"):
        writer.start().awaitTermination(120)
    assert writer.start().awaitTermination(120)
    assert seen == [0, 1, 1, 2]
    assert [entry.batch_id for entry in second.entries(0)] == [0, 1, 2]
    found = arrived(spark, second.uri, source.select("id", "__ts").schema, tmp_path)
    assert sorted(row[0] for row in found) == list(range(30))


def test_a_lost_segment_stops_the_query_and_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    store = ChannelStore(str(tmp_path / "channel"))
    df = spark.range(3).selectExpr("id", TS)
    segments = write_segments(df, store, 0)
    store.append(0, segments, 0)
    (Path(store.uri) / segments[0].path).unlink()
    with pytest.raises(StreamingQueryException) as raised:
        arrived(spark, store.uri, df.schema, tmp_path)
    meant = recovered(str(raised.value))
    assert isinstance(meant, MessageLossError)
    assert segments[0].path in str(meant.where)


def test_an_iterable_reaches_windows_through_its_store_while_it_is_held_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = ChannelStore(str(tmp_path / "channel"), fragment="numbers")
    limits = IngestLimits(rows=100, wait_ms=20, unread_bytes=5_000)
    feed = IterableFeed((n,) for n in range(1_000))
    schema = pa.schema([("n", pa.int64())])
    rows = Ingest(store, schema, event_time_ms=lambda row: START_MS + row[0] * 10, limits=limits)
    ingest = IngestThreads(rows, feed)
    ingest.start()
    results: list[tuple[Any, ...]] = []
    data = spark.createDataFrame([], "n long").schema
    df = with_channel_clock(read_channel(spark, store.uri, data, subscriber="windows", maxRows=300))
    counts = (
        timed(df)
        .groupBy(F.window("at", "1 second").alias("w"))
        .agg(F.sum("n").alias("n"))
        .select(ours("w.start"), "n")
    )
    writer = counts.writeStream.foreachBatch(lambda batch, _: results.extend(collected(batch)))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        assert ingest.wait_finished(120)
        eventually(lambda: not query.isActive or len(results) >= 10, 120)
    finally:
        ingest.stop()
        query.stop()
    last = store.last()
    assert last is not None
    assert last.clock_ms == FINAL_CLOCK_MS
    begin = datetime.fromtimestamp(START_MS / 1000, UTC).replace(tzinfo=None)
    assert [n for _, n in sorted(results)] == [sum(range(k, k + 100)) for k in range(0, 1_000, 100)]
    assert min(results)[0] == begin
