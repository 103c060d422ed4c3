"""Messages from before 1970, and timestamps that mean "no end", on every path."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events, ms

from drivetrain import Application, PersistentTask, State, agg, sources, windows
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS

pytestmark = pytest.mark.timeout(600)
SCHEMA = "ts timestamp, key string, n bigint"
HOUR = 3_600_000
NO_END = dt.datetime(9999, 12, 31, 12, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
Row = tuple[dt.datetime, str, int]


class Hourly(PersistentTask[Any, tuple[str, int, int]]):
    """Sums by key and hour, emitted when the hour is over."""

    key = "key"
    state = State(agg.sum("n"), window=windows.tumbling("1 h"), as_of="1 h")

    def on_window(self, key: str, start_ms: int, end_ms: int, value: int) -> Iterable[tuple[str, int, int]]:
        yield key, start_ms // HOUR, value


def messages() -> list[Row]:
    """One of the year 12, one a third of an hour around 1970, and in their midst two that have no end."""
    rows = [(at(i * HOUR // 3), "ab"[i % 2], i) for i in range(-36, 36)]
    ancient = (dt.datetime(12, 3, 4, 5, tzinfo=dt.UTC), "a", 1)
    return [ancient, *rows[:30], (NO_END, "a", 7), *rows[30:50], (NO_END, "a", 8), *rows[50:]]


def sums(rows: list[Row], hours: int) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = defaultdict(int)
    for time, key, n in rows:
        found[key, ms(time) // HOUR // hours] += n
    return dict(found)


def told(rows: list[dict[str, Any]], hours: int) -> dict[tuple[str, int], int]:
    return {(r["key"], ms(r["window_start"]) // HOUR // hours): r["total"] for r in rows}


@pytest.mark.nightly("the unit tests of times and clocks")
def test_no_message_is_late_before_1970_and_none_without_end_ends_the_stream(drive: Harness) -> None:
    rows = messages()
    app = Application("ends")
    stream = events(app, rows, SCHEMA, "2 h")
    keyed = stream.group_by("key")
    hourly = keyed.window(windows.tumbling("1 h")).aggregate(step="hourly", total=agg.sum("n"))
    drive.sink(hourly, "hourly")
    daily = (
        hourly.group_by("key").window(windows.tumbling("1 d")).aggregate(step="daily", total=agg.sum("total"))
    )
    drive.sink(daily, "daily")
    sessions = stream.window(windows.session("30 min")).aggregate(step="sessions", n=agg.count())
    drive.sink(sessions, "sessions")
    drive.sink(stream.deduplicate("n", within="100 d", name="once"), "once")
    other = stream.select("key", m="n")
    drive.sink(stream.join(other, on="key", within="0 s", name="pairs"), "pairs")
    folded = keyed.window(windows.tumbling("1 h"))
    drive.sink(folded.fold(int, lambda total, m: total + m.n, returns=int, name="folded"), "folded")
    drive.sink(stream.process(Hourly, name="kept"), "kept")
    # One query from the file to the window: its last batch says the end.
    table = pa.table(dict(zip(("ts", "key", "n"), map(list, zip(*rows, strict=True)), strict=True)))
    pq.write_table(
        table.cast(pa.schema({"ts": pa.timestamp("us", "UTC"), "key": "string", "n": "int64"})),
        drive.out("in.parquet"),
    )
    read = app.read(sources.parquet(drive.out("in.parquet"), event_time="ts", max_disorder="1000 d"))
    drive.sink(
        read.group_by("key").window(windows.tumbling("1 d")).aggregate(step="of_file", total=agg.sum("n")),
        "of_file",
    )

    result = drive.run(app)

    assert result.late == 0
    assert result.clock_ms == FINAL_CLOCK_MS
    assert told(drive.rows("hourly"), 1) == sums(rows, 1)
    assert told(drive.rows("daily"), 24) == told(drive.rows("of_file"), 24) == sums(rows, 24)
    assert max(r["window_end"] for r in drive.rows("daily")) == LAST
    assert sorted(r["n"] for r in drive.rows("sessions")) == [1, 2, 72]
    assert len(drive.rows("once")) == len(rows)  # those with the same number are centuries apart
    shared = Counter((time, key) for time, key, _ in rows)
    assert len(drive.rows("pairs")) == sum(count * count for count in shared.values())
    assert {(r["key"], ms(r["window_start"]) // HOUR): r["value"] for r in drive.rows("folded")} == sums(
        rows, 1
    )
    kept = [r["value"] for r in drive.rows("kept")]
    assert {(v["_1"], v["_2"]): v["_3"] for v in kept} == sums(rows, 1)
