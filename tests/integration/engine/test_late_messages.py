"""Late or not follows one rule: natively, in Python, and whether or not somebody reads the late messages."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import Application, Monoid, agg, sources, windows
from drivetrain.api.stream import Stream
from drivetrain.runtime.late_samples import LateMessage, newest_of, samples_below

COLUMNS = [pa.timestamp("us", "UTC"), pa.string(), pa.int64()]


class Number(Monoid[Any, int]):
    """How many messages."""

    def zero(self) -> int:
        return 0

    def add(self, state: int, message: Any) -> int:
        return state + 1

    def plus(self, left: int, right: int) -> int:
        return left + right

    def result(self, state: int) -> int:
        return state


def write_files(drive: Harness, files: list[list[tuple[int, str, int]]]) -> None:
    (drive.directory / "in").mkdir()
    for i, rows in enumerate(files):
        arrays = [
            pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), COLUMNS, strict=True)
        ]
        pq.write_table(pa.table(arrays, names=["ts", "key", "n"]), drive.directory / "in" / f"{i:02}.parquet")


def contents(drive: Harness, name: str) -> Counter[tuple[str, int, int]]:
    found: Counter[tuple[str, int, int]] = Counter()
    for row in drive.rows(name):
        found[row["key"], ms(row["window_start"]), ms(row["window_end"])] += row["n"]
    return found


@pytest.mark.nightly("random applications")
def test_the_same_batches_give_the_same_windows_natively_in_python_and_with_late(drive: Harness) -> None:
    draw = random.Random(5)
    files = [
        [(at(i * 4_000 + draw.randrange(-12_000, 4_000) + 20_000), draw.choice("ab"), i) for _ in range(8)]
        for i in range(6)
    ]
    write_files(drive, files)
    app = Application("late")
    for name, aggregation in {"native": agg.count(), "python": Number(), "with-late": agg.count()}.items():
        read = app.read(sources.parquet(drive.directory / "in"), name=f"read-{name}")
        timed = read.event_time("ts", max_disorder="2 s", name=f"time-{name}")
        counted = (
            timed.group_by("key").window(windows.sliding("6 s", "3 s")).aggregate(step=name, n=aggregation)
        )
        drive.sink(counted, name)
        if name == "with-late":
            drive.sink(counted.late, "messages")
    drive.run(app, run__max_batch_bytes="1 KiB")
    native = contents(drive, "native")
    assert contents(drive, "python") == native
    assert contents(drive, "with-late") == native
    assert drive.rows("messages")
    assert len(drive.rows("native")) == len(native), "each window fires once"


def test_samples_of_late_messages_show_when_they_were_and_how_far_the_clock_was(drive: Harness) -> None:
    files = [
        [(1_000, "a", 1), (2_000, "a", 2)],
        [(35_000, "a", 3)],
        [(4_000, "ö\n", 4), (12_000, "b", 5), (27_000, "c", 6), (36_000, "b", 7)],
    ]
    (drive.directory / "in").mkdir()
    for number, rows in enumerate(files):  # each is a batch of its own, as two are too large
        padding = "x" * (800 // len(rows))
        lines = [json.dumps({"ms": at_ms, "key": key, "n": n, "_": padding}) for at_ms, key, n in rows]
        (drive.directory / "in" / f"{number}.json").write_text("\n".join(lines))
    app = Application("late")
    schema = "ms bigint, key string, n bigint"

    def timed(name: str) -> Stream[Any]:
        read = app.read(sources.json(drive.directory / "in", schema=schema), name=f"read-{name}")
        return read.event_time("ms", name=f"time-{name}").select("key", "n")

    for name, window, aggregation in (
        ("tumbling", windows.tumbling("10 s"), agg.count()),
        ("sliding", windows.sliding("20 s", "10 s"), agg.count()),
        ("session", windows.session("10 s"), agg.count()),
        ("python", windows.tumbling("10 s"), Number()),
    ):
        drive.sink(timed(name).group_by("key").window(window).aggregate(step=name, n=aggregation), name)
    drive.sink(timed("first").deduplicate("key", within="1 s", name="first"), "first")
    result = drive.run(app, run__max_batch_bytes="1 KiB")
    assert {one.processor for one in result.processors if one.late} == set(LATE)
    (state,) = (path for path in (drive.directory / "state").iterdir() if (path / "late-messages").is_dir())
    found: dict[str, list[LateMessage]] = {}
    for _, sample in newest_of(samples_below(state), 100):
        found.setdefault(sample.processor, []).append(sample)
    assert {
        processor: sorted((one.timestamp_ms, json.loads(one.message)["key"]) for one in samples)
        for processor, samples in found.items()
    } == LATE
    assert {one.clock_ms for samples in found.values() for one in samples} == {35_000}


LATE = {
    "tumbling": [(4_000, "ö\n"), (12_000, "b"), (27_000, "c")],
    "sliding": [(4_000, "ö\n"), (12_000, "b"), (27_000, "c")],
    "session": [(4_000, "ö\n"), (12_000, "b")],
    "python": [(4_000, "ö\n"), (12_000, "b"), (27_000, "c")],
    "first": [(4_000, "ö\n"), (12_000, "b"), (27_000, "c")],
}
"""The late messages by processor: of a sliding window also those that it still takes for a later one."""
