"""Below a millisecond: sessions, joins and windows after sessions are exact, as Spark's timestamps are."""

from __future__ import annotations

import datetime as dt

import pytest
from harness import EPOCH, Harness, events

from drivetrain import Application, agg, windows

SCHEMA = "ts timestamp, key string, n bigint"
START_US = 1_000_000_000


def us(micros: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=START_US + micros)


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1) - START_US


@pytest.mark.nightly("test_windows, in milliseconds, and the unit tests of times")
def test_sessions_joins_and_windows_are_exact_in_microseconds(drive: Harness) -> None:
    times = [5, 10_004, 20_004, 30_003]
    app = Application("micros")
    left = events(app, [(us(t), "k", i) for i, t in enumerate(times)], SCHEMA)
    sessions = left.group_by("key").window(windows.session("10 ms")).aggregate(step="sessions", n=agg.count())
    drive.sink(sessions, "sessions")
    drive.sink(sessions.window(windows.tumbling("1 ms")).aggregate(step="after", n=agg.count()), "after")
    right = events(app, [(us(999 + 600_000_000), "k", 7), (us(600_000_000), "k", 8)], SCHEMA).select(
        "key", m="n"
    )
    first = left.filter("n = 0").select("key", "n")
    drive.sink(first.join(right, on="key", within="10 min", name="near"), "near")
    drive.run(app)
    found = [(micros(r["window_start"]), micros(r["window_end"]), r["n"]) for r in drive.rows("sessions")]
    assert sorted(found) == [(5, 20_004, 2), (20_004, 40_003, 2)]
    after = {micros(r["window_start"]): r["n"] for r in drive.rows("after")}
    assert after == {20_000: 1, 40_000: 1}
    assert [r["m"] for r in drive.rows("near")] == [8]
