"""A query with several clocked inputs follows the smallest clock, through restarts too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from channel_traffic import START_MS, collected, eventually, ours, timed
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.clocked import union_clock, with_channel_clock
from drivetrain.spark.channel.source import read_channel
from drivetrain.spark.channel.writer import write_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def put(spark: SparkSession, store: ChannelStore, batch_id: int, second: int) -> None:
    """One message at that second, and the clock there."""
    ts = START_MS + second * 1000
    df = spark.sql(f"SELECT {second}L AS n, timestamp_millis({ts}) AS __ts")
    store.append(batch_id, write_segments(df, store, batch_id), ts)


def started(df: DataFrame, root: Path, results: list[tuple[Any, ...]]) -> StreamingQuery:
    counts = (
        timed(df)
        .groupBy(F.window("at", "10 seconds").alias("w"))
        .agg(F.sum("n").alias("n"))
        .select(ours("w.start"), "n")
    )
    writer = counts.writeStream.foreachBatch(lambda batch, _: results.extend(collected(batch)))
    return writer.option("checkpointLocation", str(root / "checkpoint")).start()


@pytest.mark.nightly("test_clock_under_faults")
def test_a_channel_that_ended_before_a_restart_does_not_hold_the_clock_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    ended, going = (ChannelStore(str(tmp_path / name), fragment=name) for name in ("ended", "going"))
    put(spark, ended, 0, 1)
    ended.append_clock(FINAL_CLOCK_MS)
    put(spark, going, 0, 2)
    schema = spark.sql("SELECT 1L AS n").schema
    results: list[tuple[Any, ...]] = []

    def start() -> StreamingQuery:
        inputs = [with_channel_clock(read_channel(spark, store.uri, schema)) for store in (ended, going)]
        return started(inputs[0].union(inputs[1]), tmp_path, results)

    query = start()
    query.processAllAvailable()
    query.stop()
    assert results == []
    put(spark, going, 1, 15)
    query = start()
    try:
        query.processAllAvailable()
        eventually(lambda: len(results) >= 1 or not query.isActive, 60)
        going.append_clock(FINAL_CLOCK_MS)
        eventually(lambda: len(results) >= 2 or not query.isActive, 60)
    finally:
        query.stop()
    assert [n for _, n in results] == [3, 15]


@pytest.mark.nightly("test_clock_under_faults")
def test_a_final_clock_that_was_read_before_a_restart_still_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    going = ChannelStore(str(tmp_path / "going"), fragment="going")
    put(spark, going, 0, 2)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text(f"1,{START_MS + 1000}\n")
    publish_clock(tmp_path / "clock", FINAL_CLOCK_MS)
    results: list[tuple[Any, ...]] = []

    def start() -> StreamingQuery:
        plain = spark.readStream.schema("n long, ms long").csv(str(folder))
        plain = plain.select("n", F.timestamp_millis("ms").alias("__ts"))
        clocked = union_clock(plain, spark, str(tmp_path / "clock"), "__ts", 0)
        channel = with_channel_clock(read_channel(spark, going.uri, spark.sql("SELECT 1L AS n").schema))
        return started(clocked.union(channel), tmp_path, results)

    query = start()
    query.processAllAvailable()
    query.stop()
    assert results == []
    query = start()
    try:
        query.processAllAvailable()
        going.append_clock(FINAL_CLOCK_MS)
        eventually(lambda: len(results) >= 1 or not query.isActive, 60)
    finally:
        query.stop()
    assert [n for _, n in results] == [3]
