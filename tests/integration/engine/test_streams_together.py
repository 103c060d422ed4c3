"""Joins, unions, deduplication and late messages agree with one pass over the same messages."""

from __future__ import annotations

import csv
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, agg, col, sources, timestamp, windows
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError, OperatorTypeError

SCHEMA = "ts timestamp, key string, n bigint"
TYPES = (pa.timestamp("us", "UTC"), pa.string(), pa.int64())


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_stream_joins_a_table(drive: Harness, tmp_path: Path) -> None:
    with open(tmp_path / "names.csv", "w") as file:
        csv.writer(file).writerows([["key", "name"], ["a", "Alpha"], ["b", "Beta"]])
    app = Application("lookup")
    names = app.table(sources.csv(tmp_path / "names.csv", schema="key string, name string"))
    stream = events(app, [(at(1), "a", 1), (at(2), "c", 2), (at(3), "b", 3)], SCHEMA).select("key", "n")
    drive.sink(stream.join(names, on="key"), "inner")
    drive.sink(stream.join(names, on="key", how="left"), "left")
    twice = app.table(
        sources.items([("a", 7), ("a", 8), (None, 9)], schema="key string, n bigint"), name="twice"
    )
    timed = events(app, [(at(1), "a", 1), (at(2), None, 2), (at(3), "b", 3)], SCHEMA).select("n", "key")
    drive.sink(timed.join(twice, on="key", how="semi").window(windows.tumbling("1 s")).count(), "matched")
    drive.sink(timed.join(twice, on="key", how="semi"), "semi")
    drive.sink(timed.join(twice, on="key", how="anti"), "anti")
    drive.run(app)
    assert [(r["key"], r["name"]) for r in drive.rows("inner")] == [("a", "Alpha"), ("b", "Beta")]
    assert Counter(r["name"] for r in drive.rows("left")) == Counter(["Alpha", "Beta", None])
    # Each message once, whatever the number of matches, with its own columns in their order; null has none.
    assert [list(r.items()) for r in drive.rows("semi")] == [[("n", 1), ("key", "a")]]
    assert [list(r.values()) for r in drive.rows("anti")] == [[2, None], [3, "b"]]
    assert [r["count"] for r in drive.rows("matched")] == [1]


@pytest.mark.nightly("random applications have unions, joins and windows")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param("inner", marks=pytest.mark.nightly("the full join has its rows")),
        pytest.param("left", marks=pytest.mark.nightly("the full join has its rows")),
        pytest.param("right", marks=pytest.mark.nightly("the full join has its rows")),
        "full",
    ],
)
def test_two_streams_join_where_they_are_near_in_time(drive: Harness, how: str) -> None:
    left = [(at(i * 1000), "ab"[i % 2], i) for i in range(40)]
    right = [(at(i * 1700), "abc"[i % 3], i * 10) for i in range(30)]
    app = Application("near")
    a = events(app, left, SCHEMA).select("key", "n")
    b = events(app, right, SCHEMA).select("key", m="n")
    drive.sink(a.join(b, on="key", within="2 s", how=how))  # type: ignore[arg-type]
    drive.run(app)
    wanted = Counter[tuple[str, int | None, int | None]]()
    for t, key, n in left:
        matches = [m for u, k, m in right if k == key and abs(ms(t) - ms(u)) <= 2000]
        wanted.update((key, n, m) for m in matches)
        if how in ("left", "full") and not matches:
            wanted[key, n, None] += 1
    for u, key, m in right if how in ("right", "full") else []:
        if not any(k == key and abs(ms(t) - ms(u)) <= 2000 for t, k, _ in left):
            wanted[key, None, m] += 1
    assert Counter((r["key"], r["n"], r["m"]) for r in drive.rows()) == wanted


@pytest.mark.nightly("random applications")
def test_a_join_result_may_be_windowed(drive: Harness) -> None:
    left = [(at(i * 1000), "a", i) for i in range(30)]
    app = Application("joined")
    a = events(app, left, SCHEMA).select("key", "n")
    b = events(app, left, SCHEMA).select("key", m="n")
    joined = a.join(b, on="key", within="500 ms")
    drive.sink(joined.group_by("key").window(windows.tumbling("10 s")).count())
    drive.run(app)
    assert [r["count"] for r in drive.rows()] == [10, 10, 10]


@pytest.mark.nightly("test_clock_under_faults; random applications draw unions")
def test_a_union_takes_the_smaller_of_two_clocks(drive: Harness) -> None:
    slow = [(at(i * 1000), "slow", 1) for i in range(100)]
    fast = [(at(i * 50_000), "fast", 1) for i in range(100)]
    app = Application("union")
    both = events(app, slow, SCHEMA).union(events(app, fast, SCHEMA))
    drive.sink(both.group_by("key").window(windows.tumbling("1 min")).count(), "counts")
    drive.sink(both.filter("n > 5"), "none")
    result = drive.run(app)
    total = Counter[str]()
    for r in drive.rows("counts"):
        total[r["key"]] += r["count"]
    assert total == {"slow": 100, "fast": 100}
    assert result.late == 0


@pytest.mark.nightly("random applications have unions, joins and windows")
def test_windows_behind_a_union_of_endless_sources_fire_while_it_runs(drive: Harness) -> None:
    for side in ("left", "right"):
        (drive.directory / side).mkdir()
        rows = "".join(f"{i * 10},{side}\n" for i in range(60))  # ten minutes
        (drive.directory / side / "a.csv").write_text(f"s,key\n{rows}")

    def read(app: Application, side: str) -> Stream[Any]:
        read = app.read(sources.csv(drive.directory / side, schema="s bigint, key string", watch=True))
        return read.event_time(col("s") * 1000)

    class UntilOneFires:
        until_s = time.monotonic() + 180

        def on_event(self, event: object) -> None:
            pass

        def stop_requested(self) -> bool:
            return bool(drive.rows("counts")) or time.monotonic() > self.until_s

    app = Application("endless_union")
    both = read(app, "left").union(read(app, "right"))
    drive.sink(both, "all")  # somebody else reads it, so the window is behind a channel
    drive.sink(both.group_by("key").window(windows.tumbling("1 min")).count(), "counts")
    drive.run(app, listener=UntilOneFires())
    fired = {(r["key"], r["count"]) for r in drive.rows("counts")}
    assert fired == {("left", 6), ("right", 6)}
    assert len(drive.rows("counts")) == 2 * 9


def test_a_union_of_different_columns_names_them(drive: Harness) -> None:
    app = Application("uneven")
    a = app.read(sources.items([1], schema="x bigint"))
    b = app.read(sources.items([1], schema="y bigint"))
    drive.sink(a.union(b))
    with pytest.raises(OperatorTypeError, match="different columns"):
        drive.run(app)


@pytest.mark.nightly("random applications")
def test_deduplication_lets_messages_pass_that_are_farther_than_the_span_whatever_shares_a_batch(
    drive: Harness,
) -> None:
    seconds = [0, 30, 60, 61, 119, 121, 180, 500, 5_000, 50_000]
    rows = [(at(t * 1000), "k", i) for i, t in enumerate(seconds)] + [(at(1), "other", 10)]
    arriving = sorted(rows, key=lambda row: (row[2] * 7) % 3 * 20_000 + ms(row[0]))
    app = Application("dedup")
    whole = events(app, rows, SCHEMA).deduplicate("key", within="1 min", name="whole")
    drive.sink(whole, "whole")
    parts = drive.directory / "parts"
    parts.mkdir()
    for i, row in enumerate(arriving):
        columns = [pa.array([value], type_) for value, type_ in zip(row, TYPES, strict=True)]
        pq.write_table(pa.table(columns, names=["ts", "key", "n"]), parts / f"{i:02}.parquet")
    singly = app.read(sources.parquet(parts)).event_time("ts", max_disorder="60 s")
    singly = singly.deduplicate("key", within="1 min", name="singly")
    drive.sink(singly, "singly")
    drive.sink(singly.window(windows.tumbling("1000 s")).count(), "behind")
    drive.run(app, run__max_batch_bytes="1 KiB")

    passed = [("k", t) for t in (0, 61, 180, 500, 5_000, 50_000)] + [("other", 0)]
    for name in ("whole", "singly"):
        assert sorted((r["key"], ms(r["ts"]) // 1000) for r in drive.rows(name)) == passed
    assert {ms(r["window_start"]) // 1000: r["count"] for r in drive.rows("behind")} == {
        0: 5,
        5000: 1,
        50_000: 1,
    }


@pytest.mark.nightly("the unit tests of plans")
def test_a_copy_of_the_timestamp_may_stand_in_front_of_deduplication(drive: Harness) -> None:
    rows = [(at(i * 100), f"k{i % 10}", i) for i in range(100)]
    app = Application("copied")
    windowed = events(app, rows, SCHEMA).group_by("key").window(windows.tumbling("1 s")).count()
    # A copy of the timestamp is a column like others, also in front of what goes by the timestamp.
    drive.sink(windowed.with_columns(at=timestamp()).deduplicate("key", within="1 h"))
    drive.run(app)
    assert sorted(r["key"] for r in drive.rows()) == sorted(f"k{i}" for i in range(10))


def test_a_window_without_event_time_is_refused_with_the_remedy(drive: Harness) -> None:
    app = Application("timeless")
    stream = app.read(sources.items([1], schema="value bigint"))
    drive.sink(stream.select("value").window(windows.tumbling("1 s")).count())
    # Items carry the time at which they are stored, so a plain file must be tried.
    other = Application("timeless-file")
    (drive.directory / "in").mkdir()
    (drive.directory / "in" / "a.txt").write_text("x\n")
    drive.sink(other.read(sources.text(drive.directory / "in")).window(windows.tumbling("1 s")).count())
    with pytest.raises(GraphError, match=r"needs event time.*\n.*event_time"):
        drive.run(other)


def batches(drive: Harness, app: Application, parts: list[list[tuple[int, str, int]]]) -> Stream[Any]:
    """A stream that takes each part as a batch of its own: one file each, two of which are too much."""
    directory = drive.directory / "parts"
    directory.mkdir(exist_ok=True)
    for i, part in enumerate(parts):
        with open(directory / f"{i:02}.csv", "w") as file:
            writer = csv.writer(file)
            writer.writerow(["ms", "key", "n", "padding"])
            writer.writerows([t, key, n, "x" * (800 // len(part))] for t, key, n in part)
    stream = app.read(sources.csv(directory, schema="ms bigint, key string, n bigint, padding string"))
    return stream.event_time("ms").select("key", "n")


PARTS = [
    [(1000, "a", 1), (2000, "a", 2)],
    [(15_000, "a", 3)],
    [(3000, "a", 4), (16_000, "a", 5)],
    [(31_000, "a", 6), (4000, "a", 7)],
    [(17_000, "a", 8)],
]


@pytest.mark.nightly("random applications read late messages")
def test_late_messages_go_to_the_side_output_exactly(drive: Harness) -> None:
    app = Application("late")
    stream = batches(drive, app, PARTS)
    counted = stream.group_by("key").window(windows.tumbling("10 s")).aggregate(total=agg.sum("n"))
    drive.sink(counted, "windows")
    drive.sink(counted.late, "late")
    drive.run(app, run__max_batch_bytes="1 KiB")
    assert {ms(r["window_start"]): r["total"] for r in drive.rows("windows")} == {0: 3, 10_000: 8, 30_000: 6}
    assert sorted(r["n"] for r in drive.rows("late")) == [4, 7, 8]


def test_allowed_lateness_discarding_emits_what_came_late_on_its_own(drive: Harness) -> None:
    app = Application("discarding")
    window = windows.tumbling("10 s", allowed_lateness="12 s")
    counted = batches(drive, app, PARTS).group_by("key").window(window).aggregate(total=agg.sum("n"))
    drive.sink(counted, "windows")
    drive.sink(counted.late, "late")
    drive.run(app, run__max_batch_bytes="1 KiB")
    found = sorted((ms(r["window_start"]), r["total"]) for r in drive.rows("windows"))
    assert found == [(0, 3), (0, 4), (0, 7), (10_000, 8), (10_000, 8), (30_000, 6)]
    assert drive.rows("late") == []


@pytest.mark.nightly("random applications have unions, joins and windows")
def test_allowed_lateness_accumulating_emits_the_whole_again(drive: Harness) -> None:
    app = Application("accumulating")
    window = windows.sliding("10 s", "10 s", emission="accumulating", allowed_lateness="12 s")
    counted = batches(drive, app, PARTS).group_by("key").window(window).aggregate(total=agg.sum("n"))
    drive.sink(counted, "windows")
    drive.run(app, run__max_batch_bytes="1 KiB")
    found = sorted((ms(r["window_start"]), r["total"]) for r in drive.rows("windows"))
    assert set(found) >= {(0, 3), (0, 14), (10_000, 8), (10_000, 16), (30_000, 6)}
    assert max(t for start, t in found if start == 0) == 14
