"""Timers of persistent Tasks on Spark, beside a loop over the same messages, with disorder and crashes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import Application, PersistentTask, State, agg, sources, timestamp
from drivetrain.crash_points import CrashPoint, armed

DELAY = 5_000
TYPES = (pa.timestamp("us", "UTC"), pa.string(), pa.string())
Event = tuple[int, str, str]


def events(seed: int) -> list[Event]:
    """Orders, most of them paid, some too late; out of order by less than two seconds."""
    draw = random.Random(seed)
    made: list[Event] = []
    for i in range(80):
        ordered = draw.randrange(60_000)
        made.append((ordered, f"o{i}", "ordered"))
        if draw.random() < 0.8:
            made.append((ordered + draw.randrange(DELAY * 3 // 2), f"o{i}", "paid"))
    return sorted(made, key=lambda event: event[0] + draw.randrange(2_000))


def unpaid(made: list[Event]) -> list[tuple[str, int]]:
    """The orders without a payment before their time is up, and that time."""
    paid = {order: ms for ms, order, kind in made if kind == "paid"}
    ordered = {order: ms for ms, order, kind in made if kind == "ordered"}
    return sorted((o, ms + DELAY) for o, ms in ordered.items() if paid.get(o, 10**9) >= ms + DELAY)


class Unpaid(PersistentTask[Any, tuple[str, int]]):
    key = "order"
    state = State(agg.min("paid_ms"))
    output = "order string, at_ms bigint"

    def on_next(self, event: Any) -> None:
        self.state.update(event)
        if event.kind == "ordered":
            self.state.set_timer(event.ms + DELAY)

    def on_timer(self, order: str, at_ms: int) -> Iterator[tuple[str, int]]:
        paid_ms = self.state.get()
        if paid_ms is None or paid_ms >= at_ms:
            yield order, at_ms


def application(drive: Harness, made: list[Event]) -> Application:
    """Reads a file in each batch."""
    directory: Path = drive.directory / "in"
    directory.mkdir(exist_ok=True)
    for i in range(0, len(made), 20):
        rows = [(at(ms), order, kind) for ms, order, kind in made[i : i + 20]]
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), TYPES, strict=True)]
        pq.write_table(pa.table(columns, names=["ts", "order", "kind"]), directory / f"{i:03}.parquet")
    app = Application("orders")
    read = app.read(sources.parquet(directory, event_time="ts", max_disorder="2 s"), name="read")
    paid = "CASE WHEN kind = 'paid' THEN unix_millis(ts) END"
    timed = read.with_columns(ms="unix_millis(ts)", paid_ms=paid, step="timed")
    late = timed.process(Unpaid, name="unpaid")
    drive.sink(late.with_columns(ts=timestamp()))
    return app


def found(drive: Harness) -> list[tuple[str, int]]:
    rows = drive.rows()
    assert all(ms(row["ts"]) == row["at_ms"] for row in rows), "a result has the time of its timer"
    return sorted((row["order"], row["at_ms"]) for row in rows)


@pytest.mark.nightly("random applications draw Tasks with timers")
@pytest.mark.parametrize("batch", ["1 KiB", "1 MiB"])
def test_timers_see_all_that_came_before_their_time_in_any_order(drive: Harness, batch: str) -> None:
    made = events(1)
    drive.run(application(drive, made), run__max_batch_bytes=batch)
    assert len(unpaid(made)) > 20
    assert found(drive) == unpaid(made)


@pytest.mark.nightly("a timer that survives, in test_operators_in_a_test_run")
def test_timers_are_called_once_though_the_run_dies(drive: Harness) -> None:
    made = events(2)
    deaths = [(CrashPoint.AFTER_SINK, 2), (CrashPoint.BEFORE_COMMIT, 2), (CrashPoint.BATCH_BEGINS, 3)]
    for point, times in deaths:
        left = [times]

        def die(at_point: CrashPoint, of: CrashPoint = point, left: list[int] = left) -> None:
            left[0] -= at_point is of
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(drive, made), run__max_batch_bytes="1 KiB")
    drive.run(application(drive, made), run__max_batch_bytes="1 KiB")
    assert found(drive) == unpaid(made)
