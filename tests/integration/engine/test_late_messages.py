"""Late or not follows one rule: natively, in Python, and whether or not somebody reads the late messages."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from harness import Harness, at, ms

from drivetrain import Application, Monoid, agg, sources, windows

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
