"""The largest, first and last messages of groups on Spark, beside sorted lists of the same messages."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from typing import Any

import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, F, Stream, agg, sinks, windows
from drivetrain.api.windows import Window
from drivetrain.crash_points import CrashPoint, armed
from drivetrain.errors import GraphError, OperatorTypeError

SCHEMA = "ts timestamp, key string, n bigint, label string"
HOUR = 3_600_000
Row = tuple[dt.datetime, str, int | None, str]


def messages(seed: int, count: int = 200) -> list[Row]:
    """Out of order by up to an hour, with many equal times and numbers."""
    draw = random.Random(seed)
    times = sorted(draw.randrange(8 * HOUR) // 60_000 * 60_000 for _ in range(count))
    order = sorted(range(count), key=lambda i: times[i] + draw.randrange(HOUR))
    number = [draw.choice([None, *range(8)]) for _ in range(count)]
    return [(at(times[i]), draw.choice("ab"), number[i], draw.choice("xyz")) for i in order]


def largest(rows: list[Row], n: int) -> list[Row]:
    """By number, then the earlier one, then by the later columns; without those that have no number."""
    known = [row for row in rows if row[2] is not None]
    return sorted(known, key=lambda r: (r[2], -ms(r[0]), r[3]), reverse=True)[:n]


def by_window(rows: list[Row], size: int, slide: int) -> dict[tuple[str, int], list[Row]]:
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        start = ms(row[0]) // slide * slide
        while start + size > ms(row[0]):
            groups[row[1], start].append(row)
            start -= slide
    return groups


def in_order(found: list[dict[str, Any]]) -> dict[tuple[str, int], list[Row]]:
    """The messages of each group by their rank, which counts from 1."""
    groups: dict[tuple[str, int], dict[int, Row]] = defaultdict(dict)
    for r in found:
        group = groups[r["key"], ms(r["window_start"]) if "window_start" in r else 0]
        assert r["rank"] not in group
        group[r["rank"]] = (r["ts"], r["key"], r["n"], r["label"])
    assert all(sorted(group) == list(range(1, len(group) + 1)) for group in groups.values())
    return {key: [group[rank] for rank in sorted(group)] for key, group in groups.items()}


@pytest.mark.nightly("random applications draw the largest messages")
@pytest.mark.parametrize(
    ("window", "size", "slide"),
    [
        (windows.tumbling("1 h"), HOUR, HOUR),
        (windows.sliding("2 h", "1 h"), 2 * HOUR, HOUR),
        (windows.everything(), 0, 0),
    ],
    ids=["tumbling", "sliding", "everything"],
)
@pytest.mark.parametrize("batch", ["1 KiB", "1 MiB"])
def test_the_largest_messages_of_each_window_in_order(
    drive: Harness, window: Window, size: int, slide: int, batch: str
) -> None:
    rows = messages(1)
    app = Application("largest")
    stream = events(app, rows, SCHEMA, "2 h")
    drive.sink(stream.group_by("key").window(window).top(3, by="n", name="dearest"))
    drive.run(app, run__max_batch_bytes=batch)
    groups = by_window(rows, size, slide) if size else {(k, 0): [r for r in rows if r[1] == k] for k in "ab"}
    wanted = {group: largest(inside, 3) for group, inside in groups.items()}
    assert in_order(drive.rows()) == {group: top for group, top in wanted.items() if top}


def test_the_largest_of_sessions_keep_columns_without_an_order(drive: Harness) -> None:
    app = Application("sessions")
    rows = [(at(i * 1000 + (60_000 if i > 4 else 0)), "a", i % 4, "x") for i in range(9)]
    made = events(app, rows, SCHEMA).with_columns(step="mapped", tags=F.create_map("label", "n"))
    drive.sink(made.group_by("key").window(windows.session("10 s")).top(2, by="-n"))
    drive.run(app)
    found = [(r["rank"], r["n"], ms(r["ts"]), dict(r["tags"])) for r in drive.rows()]
    assert sorted(found, key=lambda f: (f[2] > 60_000, f[0])) == [
        (1, 0, 0, {"x": 0}),
        (2, 0, 4000, {"x": 0}),
        (1, 0, 68_000, {"x": 0}),
        (2, 1, 65_000, {"x": 1}),
    ]


@pytest.mark.nightly("random applications draw the largest messages")
def test_running_results_have_the_largest_so_far(drive: Harness) -> None:
    app = Application("running")
    rows = [(at(i), "a", i, "x") for i in range(40)]
    grouped = events(app, rows, SCHEMA).window(windows.everything(emission="accumulating"))
    drive.sink(grouped.top(1, by="n").drop("key", "label"))
    drive.run(app, run__max_batch_bytes="1 KiB")
    assert max(r["n"] for r in drive.rows()) == 39
    assert {r["rank"] for r in drive.rows()} == {1}


@pytest.mark.nightly("random applications")
def test_a_run_that_dies_emits_each_of_the_largest_once(drive: Harness) -> None:
    rows = messages(2)

    def application() -> Application:
        app = Application("dying")
        hourly = events(app, rows, SCHEMA, "2 h").group_by("key").window(windows.tumbling("1 h"))
        drive.sink(hourly.top(2, by="n", name="dearest"))
        return app

    for point in (CrashPoint.AFTER_SINK, CrashPoint.BEFORE_COMMIT):

        def die(at_point: CrashPoint, of: CrashPoint = point) -> None:
            if at_point is of:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(), run__max_batch_bytes="2 KiB")
    drive.run(application(), run__max_batch_bytes="2 KiB")
    wanted = {group: largest(inside, 2) for group, inside in by_window(rows, HOUR, HOUR).items()}
    assert in_order(drive.rows()) == {group: top for group, top in wanted.items() if top}


@pytest.mark.nightly("random applications draw the largest messages")
@pytest.mark.parametrize("seed", [3, 4])
def test_first_and_last_do_not_depend_on_the_order_of_arrival(drive: Harness, seed: int) -> None:
    rows = messages(5)
    random.Random(seed).shuffle(rows)
    app = Application("first")
    grouped = events(app, rows, SCHEMA, "1 d").group_by("key").window(windows.tumbling("4 h"))
    drive.sink(grouped.aggregate(first=agg.first("n"), last=agg.last("label"), name=agg.last("n")))
    drive.run(app)

    def by_time(row: Row) -> Any:
        return row[0], row[2] is not None, row[2]

    assert {(r["key"], ms(r["window_start"])): (r["first"], r["name"], r["last"]) for r in drive.rows()} == {
        group: (
            min(inside, key=by_time)[2],
            max(inside, key=by_time)[2],
            max(inside, key=lambda r: (r[0], r[3]))[3],
        )
        for group, inside in by_window(rows, 4 * HOUR, 4 * HOUR).items()
    }


def test_what_top_cannot_do_is_refused_before_anything_runs(drive: Harness) -> None:
    app = Application("refused")
    stream: Stream[Any] = events(app, [], SCHEMA)
    hourly = windows.tumbling("1 h")
    stream.with_columns(step="ranked", rank="1").window(hourly).top(3, by="n").sink(sinks.none())
    with pytest.raises(OperatorTypeError, match="already have a column 'rank'"):
        drive.run(app)
    app = Application("late")
    patient = windows.tumbling("1 h", allowed_lateness="1 h")
    events(app, [], SCHEMA).window(patient).top(3, by="n").sink(sinks.none())
    with pytest.raises(GraphError, match="top cannot allow lateness"):
        drive.run(app)
