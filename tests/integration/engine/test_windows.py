"""Windows agree with one pass over the same messages, however they are chained."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, Stream, agg, sinks, sources, windows

SCHEMA = "ts timestamp, key string, n bigint"
HOUR = 3_600_000


def disordered(count: int, disorder_ms: int, seed: int) -> list[tuple[Any, str, int]]:
    """Messages in the order in which they become known, at most `disorder_ms` after their time."""
    draw = random.Random(seed)
    known = []
    for _ in range(count):
        ts = draw.randrange(0, 48 * HOUR)
        known.append((ts + draw.randrange(0, disorder_ms + 1), ts, draw.choice("abc"), draw.randrange(100)))
    return [(at(ts), key, n) for _, ts, key, n in sorted(known)]


def naive(rows: list[tuple[Any, str, int]], size: int, step: int) -> dict[tuple[str, int], tuple[int, int]]:
    """(count, sum) by key and window start."""
    found: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for time, key, n in rows:
        ts = ms(time)
        start = ts - ts % step
        while start > ts - size:
            count, total = found[key, start]
            found[key, start] = (count + 1, total + n)
            start -= step
    return dict(found)


def by_window(rows: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    return {(r["key"], ms(r["window_start"])): (r["count"], r["total"]) for r in rows}


@pytest.mark.nightly("random applications have windows in a row")
def test_windows_in_a_row_fire_on_the_upstream_clock(drive: Harness) -> None:
    rows = disordered(3000, 2 * HOUR, seed=1)
    app = Application("chained")
    hourly = (
        events(app, rows, SCHEMA, "2 h")
        .group_by("key")
        .window(windows.tumbling("1 h"))
        .aggregate(step="hourly", count=agg.count(), total=agg.sum("n"))
    )
    drive.sink(hourly, "hourly")
    daily = (
        hourly.group_by("key")
        .window(windows.tumbling("1 d"))
        .aggregate(step="daily", count=agg.sum("count"), total=agg.sum("total"), windows=agg.count())
    )
    drive.sink(daily, "daily")

    result = drive.run(app)

    assert by_window(drive.rows("hourly")) == naive(rows, HOUR, HOUR)
    assert by_window(drive.rows("daily")) == naive(rows, 24 * HOUR, 24 * HOUR)
    assert result.late == 0
    assert sum(r["windows"] for r in drive.rows("daily")) == len(drive.rows("hourly"))


@pytest.mark.nightly("random applications draw sliding windows")
def test_a_message_is_in_every_sliding_window_that_covers_it(drive: Harness) -> None:
    rows = [(at(7), "a", 1)]
    app = Application("sliding")
    made = (
        events(app, rows, SCHEMA)
        .group_by("key")
        .window(windows.sliding("10 ms", "5 ms"))
        .aggregate(count=agg.count(), total=agg.sum("n"))
    )
    drive.sink(made)
    drive.run(app)
    assert sorted((ms(r["window_start"]), ms(r["window_end"])) for r in drive.rows()) == [(0, 10), (5, 15)]


@pytest.mark.nightly("random applications draw sliding windows")
def test_sliding_windows_agree_with_one_pass(drive: Harness) -> None:
    rows = disordered(500, HOUR, seed=2)
    app = Application("sliding")
    made = (
        events(app, rows, SCHEMA, "1 h")
        .group_by("key")
        .window(windows.sliding("3 h", "1 h"))
        .aggregate(count=agg.count(), total=agg.sum("n"))
    )
    drive.sink(made)
    drive.run(app)
    assert by_window(drive.rows()) == naive(rows, 3 * HOUR, HOUR)


@pytest.mark.nightly("random applications draw sessions")
def test_sessions_end_when_the_gap_passes(drive: Harness) -> None:
    times = [("a", 0), ("a", 5), ("b", 7), ("a", 14), ("a", 30), ("a", 25), ("b", 50), ("b", 17)]
    app = Application("sessions")
    made = (
        events(app, [(at(t), key, 1) for key, t in times], SCHEMA, "100 ms")
        .group_by("key")
        .window(windows.session("10 ms"))
        .count()
    )
    drive.sink(made)
    drive.run(app)
    found = {(r["key"], ms(r["window_start"]), ms(r["window_end"]), r["count"]) for r in drive.rows()}
    assert found == {("a", 0, 24, 3), ("a", 25, 40, 2), ("b", 7, 17, 1), ("b", 17, 27, 1), ("b", 50, 60, 1)}


@pytest.mark.nightly("random applications draw windows without keys")
def test_a_window_without_keys_covers_the_stream(drive: Harness) -> None:
    rows = disordered(200, HOUR, seed=3)
    app = Application("keyless")
    drive.sink(events(app, rows, SCHEMA, "1 h").window(windows.tumbling("1 d")).count())
    drive.run(app)
    assert sum(r["count"] for r in drive.rows()) == 200
    assert len(drive.rows()) == 2 or len(drive.rows()) == 3


@pytest.mark.nightly("random applications draw global windows")
def test_the_global_window_fires_once_at_the_end(drive: Harness) -> None:
    rows = disordered(300, HOUR, seed=4)
    app = Application("totals")
    drive.sink(
        events(app, rows, SCHEMA, "1 h")
        .group_by("key")
        .aggregate(count=agg.count(), total=agg.sum("n"), first=agg.first("n"), last=agg.last("n"))
    )
    drive.run(app)
    found = {r["key"]: (r["count"], r["total"]) for r in drive.rows()}
    assert found == {
        k: (sum(1 for r in rows if r[1] == k), sum(r[2] for r in rows if r[1] == k)) for k in "abc"
    }
    assert len(drive.rows()) == 3


@pytest.mark.nightly("random applications draw global windows")
def test_an_accumulating_global_window_emits_running_results(drive: Harness) -> None:
    rows = disordered(300, 0, seed=5)
    app = Application("running")
    drive.sink(
        events(app, rows, SCHEMA)
        .group_by("key")
        .window(windows.everything(emission="accumulating"))
        .aggregate(count=agg.count())
    )
    drive.run(app)
    for key in "abc":
        counts = [r["count"] for r in drive.rows() if r["key"] == key]
        assert max(counts) == sum(1 for r in rows if r[1] == key)


def test_built_in_aggregations_agree_with_python(drive: Harness) -> None:
    values = list(range(1, 101))
    app = Application("aggregations")
    rows = [(at(n), "a", n) for n in values]
    drive.sink(
        events(app, rows, SCHEMA)
        .group_by("key")
        .aggregate(
            low=agg.min("n"),
            high=agg.max("n"),
            mean=agg.mean("n"),
            variance=agg.variance("n", sample=False),
            some=agg.collect_set("n % 3"),
            top=agg.top_k("n", by="n", k=2),
            distinct=agg.distinct_count("n"),
            middle=agg.quantiles("n", [0.5]),
            often=agg.frequent("key", 1),
        )
    )
    drive.run(app)
    (row,) = drive.rows()
    assert (row["low"], row["high"], row["mean"]) == (1, 100, 50.5)
    assert abs(row["variance"] - 833.25) < 1e-9
    assert row["some"] == [0, 1, 2]
    assert [t["value"] for t in row["top"]] == [100, 99]
    assert abs(row["distinct"] - 100) <= 3
    assert abs(row["middle"][0] - 50) <= 2
    assert row["often"][0]["count"] == 100


@pytest.mark.nightly("test_sql_over_streams reaches what it reaches")
def test_state_and_counts_advance_though_spark_could_leave_out_what_no_output_needs(
    drive: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    rows = disordered(400, HOUR, seed=4)
    app = Application("unneeded")
    read = events(app, rows, SCHEMA, "1 h")
    table = app.table(sources.items([], schema="key string, m bigint"), name="empty")

    def hourly(name: str) -> Stream[Any]:
        grouped = read.group_by("key").window(windows.tumbling("1 h"))
        return grouped.aggregate(step=name, count=agg.count(), total=agg.sum("n"))

    hourly("impossible").filter("1 = 0").sink(sinks.parquet(drive.out("none")))
    hourly("unmatched").join(table, on="key").sink(sinks.parquet(drive.out("none2")))
    both = hourly("both")
    both.filter("count > 1 and count < 1").sink(sinks.parquet(drive.out("none3")))
    drive.sink(both, "both")
    hourly("logged").log(2)

    with caplog.at_level("INFO", "drivetrain.messages"):
        result = drive.run(app, run__max_batch_bytes="2 KiB")

    found = naive(rows, HOUR, HOUR)
    assert by_window(drive.rows("both")) == found
    consumed = {p.processor: p.messages_in for p in result.processors}
    assert {consumed[name] for name in ("impossible", "unmatched", "both", "logged")} == {len(rows)}
    logged = [record for record in caplog.records if record.name == "drivetrain.messages"]
    assert 0 < len(logged) <= 2 * result.batches
