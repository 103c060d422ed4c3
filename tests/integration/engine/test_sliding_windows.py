"""Sliding windows that are aggregated by pane first are those of a model, and of Spark's own windows."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import Harness, at, has_change
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from reduced_windows import Reading, write

from drivetrain import Application, agg, col, sources, windows
from drivetrain.api.windows import Window
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.spark.compile import sliding, windowed
from nightly_run import examples

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "at timestamp, k string, n bigint, x double, d decimal(10,2)"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SLIDES = [(10, 10), (10, 5), (10, 4), (9, 7), (1_000, 250), (7, 1), (60_000, 7_000)]

quarters = st.integers(-40, 40).map(lambda number: number / 4)
messages = st.tuples(
    st.one_of(st.none(), st.integers(-30_000, 30_000), st.integers(-10, 30)),
    st.sampled_from([None, "", "a", "ä"]),
    st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(-5, 5)),
    st.one_of(st.none(), quarters),
    st.one_of(st.none(), st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)),
)


def frame(spark: SparkSession, rows: list[Any]) -> DataFrame:
    timed = [(None if ms is None else EPOCH + dt.timedelta(milliseconds=ms), *rest) for ms, *rest in rows]
    return spark.createDataFrame(timed, SCHEMA).repartition(2)


def aggregates() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("messages"),
        F.count("n").alias("numbers"),
        F.min("n").alias("least"),
        F.sum(F.col("n") % 1000).alias("total"),
        F.sum("d").alias("exact"),
        F.avg("x").alias("mean"),
    ]


def naive(rows: list[Any], size: int, step: int, first: int) -> dict[tuple[str | None, int], tuple[Any, ...]]:
    """Each window's results by key and end in ms."""
    groups = defaultdict(list)
    for ms, k, *values in rows:
        if ms is not None:
            start = ms - (ms - first) % step
            while start > ms - size:
                groups[k, start + size].append(values)
                start -= step
    return {group: _results(of) for group, of in groups.items()}


def _results(of: list[list[Any]]) -> tuple[Any, ...]:
    n, x, d = ([value for value in column if value is not None] for column in zip(*of, strict=True))
    total = sum(abs(v) % 1000 * (1 if v > 0 else -1) for v in n) if n else None
    return len(of), len(n), min(n, default=None), total, sum(d) if d else None, sum(x) / len(x) if x else None


@settings(max_examples=examples(80))
@given(rows=st.lists(messages, max_size=30), lengths=st.sampled_from(SLIDES), first=st.integers(0, 6))
def test_windows_are_those_of_a_model_whatever_they_and_the_messages_are(
    spark: SparkSession, rows: list[Any], lengths: tuple[int, int], first: int
) -> None:
    size, step = lengths
    window = Window("sliding", size, step)
    ended = sliding.with_sliding_ends(frame(spark, rows), window, "at", first, "end")
    made = ended.groupBy("k", "end").agg(*aggregates()).select("k", F.unix_millis("end"), "*").collect()
    found = {(row[0], row[1]): tuple(row[4:]) for row in made}
    assert len(found) == len(made)
    assert found == naive(rows, size, step, first)


def is_by_pane(plan: object) -> bool:
    return re.search(r"HashAggregate\(keys=\[[^]]*__pane_us", str(plan)) is not None


def test_messages_are_aggregated_before_they_are_copied_where_java_has_the_rule(spark: SparkSession) -> None:
    window = windows.sliding("10 s", "4 s")
    ended = sliding.with_sliding_ends(frame(spark, [(1, "a", 1, 1.0, None)]), window, "at", 0, "end")
    counted = ended.where("k is not null").groupBy("k", "end").agg(*aggregates())
    assert is_by_pane(counted._jdf.queryExecution().executedPlan()) == has_change(
        spark, "AggregateBeforeWindows"
    )
    assert [row["messages"] for row in counted.collect()] == [1, 1, 1]


def test_so_are_those_of_a_streams_batches(spark: SparkSession, tmp_path: Path) -> None:
    frame(spark, [(n, "a", n, 1.0, None) for n in range(20)]).write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    ended = sliding.with_sliding_ends(read, windows.sliding("10 ms", "5 ms"), "at", 0, "end")
    counts: list[int] = []
    writer = ended.groupBy("k", "end").agg(*aggregates()).writeStream.outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
    query = writer.foreachBatch(lambda df, _: counts.extend(row["messages"] for row in df.collect())).start()
    query.awaitTermination(120)
    assert is_by_pane(query._jsq.explainInternal(False)) == has_change(spark, "AggregateBeforeWindows")
    assert sorted(counts) == [5, 5, 10, 10, 10]


@pytest.mark.parametrize(
    "other",
    [
        "max(k)",  # texts are aggregated by sorting
        "count(DISTINCT n)",
        "sum(unix_micros(end))",  # needs the window
    ],
)
def test_what_cannot_be_aggregated_by_pane_is_aggregated_by_window(spark: SparkSession, other: str) -> None:
    rows = [(n * 500, "ab"[n % 2], n % 5, None, None) for n in range(100)]
    window = windows.sliding("9 s", "2 s")
    ended = sliding.with_sliding_ends(frame(spark, rows), window, "at", 0, "end")
    count = F.count(F.lit(1)).alias("n")
    made = ended.groupBy("k", "end").agg(count, F.expr(other))
    plain = F.window("at", "9 seconds", "2 seconds")
    expected = frame(spark, rows).groupBy("k", plain).agg(count).select("k", "window.end", "n")
    assert made.select("k", "end", "n").exceptAll(expected).count() == 0
    assert made.count() == expected.count()


def as_spark_does(df: DataFrame, window: Window, timestamp: str, first_ms: int, end: str) -> DataFrame:
    """In place of `with_sliding_ends`: by Spark's own windows, which copy each message."""
    lengths = [f"{ms} milliseconds" for ms in (window.size_ms, window.step_ms, first_ms)]
    return df.withColumn(end, F.window(timestamp, *lengths)["end"])


def lines(seed: int, count: int, disorders_ms: list[int]) -> list[dict[str, Any]]:
    """Messages with null keys and values, which are as late as drawn of these."""
    draw = random.Random(seed)
    return [
        {
            "at": at(n * 100 - draw.choice(disorders_ms)),
            "k": draw.choice([None, "a", "b", ""]),
            "n": draw.choice([None, draw.randrange(-99, 99)]),
            "x": draw.randrange(100) / 4,
        }
        for n in range(count)
    ]


def application(drive: Harness, window: Window, name: str, *, cut: bool = False) -> Application:
    app = Application(name)
    schema = "at timestamp, k string, n bigint, x double"
    read = app.read(sources.json(drive.directory / "in", schema=schema, event_time="at", max_disorder="2 s"))
    kept = read.filter(col("x") >= 0, name="kept")
    counted = (kept.cut() if cut else kept).group_by("k").window(window)
    results = counted.aggregate(
        messages=agg.count(), total=agg.sum("n * 2"), least=agg.min("n"), mean=agg.mean("x"), step="counted"
    )
    drive.sink(results, name)
    return app


@pytest.mark.parametrize(
    "window",
    [
        windows.sliding("6 s", "4 s"),
        windows.sliding("5 s", "500 ms", allowed_lateness="3 s"),
        windows.sliding("6 s", "2 s", emission="accumulating", allowed_lateness="8 s"),
    ],
    ids=str,
)
def test_results_and_late_messages_are_those_of_sparks_own_windows(
    drive: Harness, monkeypatch: pytest.MonkeyPatch, window: Window
) -> None:
    write(drive.directory / "in", lines(3, 700, disorders_ms=[0, 0, 0, 2_000, 12_000]))
    late = []
    for name in ("ours", "theirs"):
        if name == "theirs":
            monkeypatch.setattr(windowed, "with_sliding_ends", as_spark_does)
        late.append(drive.run(application(drive, window, name), run__max_batch_bytes="8 KiB").late)
    assert drive.rows("ours") == drive.rows("theirs")
    assert drive.rows("ours")
    assert late[0] == late[1]
    assert late[0] > 0 or window.allowed_lateness_ms > 0


@pytest.mark.parametrize("cut", [False, True], ids=["file", "channel"])
def test_a_run_continues_with_the_state_of_sparks_own_windows_and_theirs_with_ours(
    drive: Harness, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    write(drive.directory / "in", lines(4, 2_000, disorders_ms=[0, 1_900]))
    window, outcomes = windows.sliding("9 s", "2 s"), []
    for make in (as_spark_does, sliding.with_sliding_ends, as_spark_does):
        monkeypatch.setattr(windowed, "with_sliding_ends", make)
        app, listener = application(drive, window, "out", cut=cut), Reading(1, of_channel=cut)
        outcomes.append(drive.run(app, listener=listener, run__max_batch_bytes="8 KiB").outcome)
    assert outcomes == [RunOutcome.STOPPED] * 3
    monkeypatch.setattr(windowed, "with_sliding_ends", sliding.with_sliding_ends)
    drive.run(application(drive, window, "out", cut=cut), run__max_batch_bytes="8 KiB")
    monkeypatch.setattr(windowed, "with_sliding_ends", as_spark_does)
    assert drive.run(application(drive, window, "at-once", cut=cut)).late == 0
    assert drive.rows("out") == drive.rows("at-once")
    assert drive.rows("out")
