"""Results of windows before they end, on Spark: they grow to the final ones, also after crashes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, ms

from drivetrain import Application, agg, lit, sources, windows
from drivetrain.crash_points import CrashPoint, armed

TYPES = (pa.timestamp("us", "UTC"), pa.string(), pa.int64())
ROWS = [(at(i * 40 + (-900 if i % 5 == 0 else 900)), f"k{i % 3}", i % 7) for i in range(300)]
"""Out of order by less than two seconds."""


def application(drive: Harness) -> Application:
    """Reads a file in each batch."""
    directory = drive.directory / "in"
    directory.mkdir(exist_ok=True)
    for i in range(0, len(ROWS), 50):
        columns = [pa.array(c, t) for c, t in zip(zip(*ROWS[i : i + 50], strict=True), TYPES, strict=True)]
        pq.write_table(pa.table(columns, names=["ts", "key", "n"]), directory / f"{i:03}.parquet")
    app = Application("early")
    read = app.read(sources.parquet(directory, event_time="ts", max_disorder="2 s"), name="read")
    windowed = read.group_by("key").window(windows.sliding("4 s", "2 s"))
    counts = windowed.aggregate(step="counts", n=agg.count(), total=agg.sum("n"))
    drive.sink(counts, "final")
    drive.sink(counts.early.with_columns(is_early=lit(True)), "early")
    drive.sink(counts.early_every("200 ms"), "seldom")
    return app


def groups(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found = defaultdict(list)
    for r in rows:
        found[r["key"], ms(r["window_start"])].append((r["n"], r["total"]))
    return found


def check(drive: Harness) -> None:
    wanted: dict[tuple[str, int], list[int]] = defaultdict(list)
    for ts, key, n in ROWS:
        start = ms(ts) // 2000 * 2000
        for first in (start, start - 2000):
            wanted[key, first].append(n)
    finals = {group: (len(inside), sum(inside)) for group, inside in wanted.items()}
    assert groups(drive.rows("final")) == {group: [result] for group, result in finals.items()}
    early = groups(drive.rows("early"))
    assert {group: max(results) for group, results in early.items()} == finals
    assert all(max(Counter(results).values()) == 1 for results in early.values()), (
        "each count is emitted once"
    )
    seldom = groups(drive.rows("seldom"))
    assert {group: max(results) for group, results in seldom.items()} == finals
    assert all(max(Counter(results).values()) == 1 for results in seldom.values())


@pytest.mark.nightly("test_operators_in_a_test_run, without a death")
def test_early_results_grow_to_the_final_ones_each_once_though_the_run_dies(
    drive: Harness,
) -> None:
    for point in (CrashPoint.AFTER_SINK, CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_ENTRY):
        left = [3]

        def die(at_point: CrashPoint, of: CrashPoint = point, left: list[int] = left) -> None:
            left[0] -= at_point is of
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(application(drive), run__max_batch_bytes="1 KiB")
    drive.run(application(drive), run__max_batch_bytes="1 KiB")
    check(drive)
    assert len(drive.rows("early")) > len(drive.rows("final")), "several batches for some windows"
