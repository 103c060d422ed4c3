"""Two windows in a row over a channel agree with one batch query, whatever the disorder."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from channel_traffic import collected, messages, ours, timed
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.clocked import with_channel_clock
from drivetrain.spark.channel.source import read_channel
from drivetrain.spark.channel.watermark import clock_of
from drivetrain.spark.channel.writer import write_segments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, v long, __ts timestamp"


def frame(spark: SparkSession, rows: list[tuple[str, int, int]]) -> DataFrame:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return spark.createDataFrame([(k, v, epoch + timedelta(milliseconds=ts)) for k, v, ts in rows], SCHEMA)


def fill(
    spark: SparkSession, store: ChannelStore, rows: list[tuple[str, int, int]], batches: int, disorder_ms: int
) -> None:
    size = -(-len(rows) // batches)
    seen = 0
    for batch_id, begin in enumerate(range(0, len(rows), size)):
        part = rows[begin : begin + size]
        seen = max(seen, max(ts for _, _, ts in part))
        segments = write_segments(frame(spark, part), store, batch_id)
        store.append(batch_id, segments, seen - disorder_ms)
    store.append_clock(FINAL_CLOCK_MS)


def clock_ms_of(checkpoint: Path, batch_id: int) -> int:
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    clock_ms = clock_of(int(json.loads(lines[1])["batchWatermarkMs"]))
    return NO_CLOCK_MS if clock_ms is None else clock_ms


def counted(df: DataFrame, window: Any) -> DataFrame:
    counts = timed(df).groupBy(window.alias("w"), "k").agg(F.sum("v").alias("v"), F.count("*").alias("n"))
    end = F.timestamp_millis(F.unix_millis(ours("w.end")) - 1)
    return counts.select("k", "v", "n", ours("w.start"), end.alias("__ts"))


ENTRY_BY_ENTRY = {"maxRows": 40}


@pytest.mark.nightly("random applications draw windows in a row")
@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        ("tumbling", {}),
        ("tumbling", ENTRY_BY_ENTRY),
        ("sliding", ENTRY_BY_ENTRY),
        ("session", ENTRY_BY_ENTRY),
    ],
)
def test_two_windows_in_a_row_equal_one_batch_query(
    spark: SparkSession, tmp_path: Path, shape: str, limit: dict[str, int]
) -> None:
    rows = messages(seed=7, count=300, disorder_ms=9_000)
    first = ChannelStore(str(tmp_path / "first"), fragment="source")
    fill(spark, first, rows, batches=6, disorder_ms=9_000)
    second = ChannelStore(str(tmp_path / "second"), fragment="counts")
    window = {
        "tumbling": F.window("at", "10 seconds"),
        "sliding": F.window("at", "10 seconds", "5 seconds"),
        "session": F.session_window("at", "700 milliseconds"),
    }[shape]
    checkpoint = tmp_path / "checkpoint-1"

    def pass_on(df: DataFrame, batch_id: int) -> None:
        second.append(batch_id, write_segments(df, second, batch_id), clock_ms_of(checkpoint, batch_id))

    source = read_channel(spark, str(tmp_path / "first"), frame(spark, []).schema, **limit)
    query = counted(with_channel_clock(source).where("v >= 5"), window).writeStream.foreachBatch(pass_on)
    query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination(
        120
    )
    last = second.last()
    assert last is not None
    assert last.clock_ms == FINAL_CLOCK_MS

    results: list[tuple[Any, ...]] = []
    again = read_channel(spark, str(tmp_path / "second"), counted(frame(spark, []), window).schema)
    outer = (
        timed(with_channel_clock(again))
        .groupBy(F.window("at", "30 seconds").alias("w"))
        .agg(F.sum("v").alias("v"), F.sum("n").alias("n"))
        .select(ours("w.start"), "v", "n")
    )
    query = outer.writeStream.foreachBatch(lambda df, _: results.extend(collected(df)))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint-2")).trigger(availableNow=True)
    query.start().awaitTermination(120)

    expected = (
        timed(counted(frame(spark, rows).where("v >= 5"), window))
        .groupBy(F.window("at", "30 seconds").alias("w"))
        .agg(F.sum("v").alias("v"), F.sum("n").alias("n"))
        .select(ours("w.start"), "v", "n")
    )
    assert sorted(results) == collected(expected)
    assert len(results) >= 4
