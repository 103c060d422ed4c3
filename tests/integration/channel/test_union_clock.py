"""A plain source united with the clock stream fires every window, and agrees with batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from channel_traffic import START_MS, collected, eventually, messages, ours, timed
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.spark.channel.clock_source import publish_clock
from drivetrain.spark.channel.clocked import union_clock
from drivetrain.spark.channel.watermark import clock_of, parse_watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DISORDER_MS = 9_000
SCHEMA = "k string, v long, ts_ms long"

WINDOWS = {
    "tumbling": lambda: F.window("at", "10 seconds"),
    "sliding": lambda: F.window("at", "10 seconds", "5 seconds"),
    "session": lambda: F.session_window("at", "700 milliseconds"),
}


def put(folder: Path, name: str, rows: list[tuple[str, int, int]]) -> None:
    """A CSV file that appears at once, as a source directory needs it."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{k},{v},{ts}\n" for k, v, ts in rows))
    hidden.rename(folder / name)


def with_time(df: DataFrame) -> DataFrame:
    return df.select("k", "v", F.timestamp_millis("ts_ms").alias("ts"))


def counted(df: DataFrame, shape: str) -> DataFrame:
    counts = timed(df, "ts").groupBy(WINDOWS[shape]().alias("w"), "k").agg(F.sum("v").alias("v"))
    return counts.select("k", ours("w.start"), ours("w.end"), "v")


class Running:
    """One query over a directory and a clock, its results, and how to start it again."""

    def __init__(self, spark: SparkSession, root: Path, shape: str, *, data_moves_clock: bool = True) -> None:
        self.spark, self.root, self.shape = spark, root, shape
        self.data_moves_clock = data_moves_clock
        self.results: dict[int, list[tuple[Any, ...]]] = {}
        self.query: StreamingQuery | None = None

    def start(self) -> StreamingQuery:
        (self.root / "in").mkdir(exist_ok=True)
        files = with_time(self.spark.readStream.schema(SCHEMA).csv(str(self.root / "in")))
        clocked = union_clock(
            files,
            self.spark,
            str(self.root / "clock"),
            "ts",
            DISORDER_MS,
            data_moves_clock=self.data_moves_clock,
        )
        writer = counted(clocked, self.shape).writeStream.outputMode("append").foreachBatch(self._keep)
        self.query = writer.option("checkpointLocation", str(self.root / "checkpoint")).start()
        return self.query

    def _keep(self, df: DataFrame, batch_id: int) -> None:
        self.results[batch_id] = collected(df)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(row for rows in self.results.values() for row in rows)

    def wait_rows(self, expected: list[tuple[Any, ...]]) -> None:
        query = self.query
        assert query is not None
        eventually(lambda: query.exception() is not None or len(self.rows) >= len(expected), 120)
        if query.exception() is not None:
            raise AssertionError(query.exception())
        query.processAllAvailable()
        assert self.rows == expected


def _watermark_ms(query: StreamingQuery) -> int | None:
    """The clock that the newest batch knew."""
    progress = query.lastProgress
    return clock_of(parse_watermark(progress["eventTime"]["watermark"])) if progress is not None else None


@pytest.mark.nightly("random applications draw unions and windows of every kind; test_clock_under_faults")
@pytest.mark.parametrize("shape", ["tumbling", "sliding", "session"])
def test_all_windows_fire_after_the_final_clock_and_equal_batch_across_a_restart(
    spark: SparkSession, tmp_path: Path, shape: str
) -> None:
    rows = messages(seed=11, count=200, disorder_ms=DISORDER_MS)
    running = Running(spark, tmp_path, shape)
    query = running.start()
    put(tmp_path / "in", "1.csv", rows[:70])
    query.processAllAvailable()
    put(tmp_path / "in", "2.csv", rows[70:120])
    query.processAllAvailable()
    query.stop()

    put(tmp_path / "in", "3.csv", rows[120:])
    query = running.start()
    query.processAllAvailable()
    publish_clock(tmp_path / "clock", FINAL_CLOCK_MS)
    try:
        expected = counted(with_time(spark.createDataFrame(rows, SCHEMA)), shape)
        running.wait_rows(collected(expected))
    finally:
        query.stop()


@pytest.mark.nightly("test_figures reaches what it reaches")
def test_the_published_clock_alone_fires_windows_of_an_idle_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    ts = START_MS
    running = Running(spark, tmp_path, "tumbling", data_moves_clock=False)
    query = running.start()
    try:
        # A message far ahead must not close the windows of the others: only the clock does.
        put(tmp_path / "in", "1.csv", [("a", 1, ts), ("b", 9, ts + 3_600_000)])
        query.processAllAvailable()
        put(tmp_path / "in", "2.csv", [("a", 2, ts + 1)])
        query.processAllAvailable()
        assert running.rows == []
        publish_clock(tmp_path / "clock", ts + 60_000)
        start = datetime.fromtimestamp(ts / 1000, UTC).replace(tzinfo=None)
        running.wait_rows([("a", start, start + timedelta(seconds=10), 3)])
    finally:
        query.stop()


@pytest.mark.nightly("test_clock_under_faults")
def test_the_clock_of_a_query_never_goes_back_through_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    ts = START_MS
    running = Running(spark, tmp_path, "tumbling", data_moves_clock=False)
    query = running.start()
    publish_clock(tmp_path / "clock", ts + 60_000)
    put(tmp_path / "in", "1.csv", [("a", 1, ts + 60_000)])
    query.processAllAvailable()
    eventually(lambda: _watermark_ms(query) == ts + 60_000, 60)
    query.stop()

    (tmp_path / "clock").unlink()  # whoever publishes lost its memory and starts from long ago
    publish_clock(tmp_path / "clock", ts - 60_000)
    query = running.start()
    try:
        put(tmp_path / "in", "2.csv", [("late", 1, ts + 1), ("a", 2, ts + 60_001)])
        query.processAllAvailable()
        publish_clock(tmp_path / "clock", FINAL_CLOCK_MS)
        start = datetime.fromtimestamp(ts / 1000 + 60, UTC).replace(tzinfo=None)
        running.wait_rows([("a", start, start + timedelta(seconds=10), 3)])
    finally:
        query.stop()


def test_a_filter_after_the_clock_does_not_take_the_punctuation(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = with_time(spark.readStream.schema(SCHEMA).csv(str(tmp_path / "in")))
    clocked = union_clock(files, spark, str(tmp_path / "clock"), "ts", 0, data_moves_clock=False)
    results: list[tuple[Any, ...]] = []
    query = (
        counted(clocked.where("v > 3 and k = 'a'"), "tumbling")
        .writeStream.foreachBatch(lambda df, _: results.extend(collected(df)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        put(tmp_path / "in", "1.csv", [("a", 2, START_MS), ("a", 7, START_MS), ("b", 8, START_MS)])
        query.processAllAvailable()
        publish_clock(tmp_path / "clock", FINAL_CLOCK_MS)
        eventually(lambda: len(results) > 0, 60)
        assert [row[3] for row in results] == [7]
    finally:
        query.stop()
