"""The number of messages in a batch: JSON lines, as they are and in windows of ten seconds for 1,000 keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import Batches, file_batches

WARM = 5
PIECE = 500_000


def write_files(directory: Path, rows: int, files: int) -> None:
    """Write `files` files of `rows` events each."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(data.SEED)
    first = 0
    for number in range(files):
        with (directory / f"part-{number:04}.jsonl").open("wb") as file:
            for begin in range(0, rows, PIECE):
                lines, _ = data.event_lines(first, min(PIECE, rows - begin), rng)
                first += len(lines)
                for piece in data.chunks(lines, PIECE):
                    file.write(piece)


def application(source: Path, out: Path, *, windowed: bool) -> Any:
    """A filter, or counts and sums in windows."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("batch-rows")
    schema = data.EVENT_SCHEMA
    events = app.read(sources.json(source, schema=schema, event_time="ts", max_disorder="5 s"))
    if not windowed:
        events.filter("value >= 100").sink(sinks.parquet(out))
        return app
    counts = events.group_by("key").window(windows.tumbling("10 s"))
    counts.aggregate(n=agg.count(), total=agg.sum("value")).sink(sinks.parquet(out))
    return app


def measure(rows: int, work: Path) -> Mapping[str, float]:
    """Both applications, one after the other, over the same files."""
    from drivetrain import run

    count = 20 if rows <= 10_000 else 8 if rows <= 100_000 else 2
    warm = WARM if rows <= 100_000 else 1
    source = work / "in"
    write_files(source, rows, warm + count)
    figures: dict[str, float] = {}
    for name, windowed in (("plain", False), ("windows", True)):
        batches = Batches()
        app = application(source, work / f"{name}-out", windowed=windowed)
        run(app, file_batches(source, work / name), batches)
        figures |= {f"{name}_{key}": value for key, value in batches.figures(warm, count).items()}
    return figures


CURVE = Curve(
    name="batch_rows",
    title="A batch, by the number of its messages",
    quantity="messages in a batch",
    points=(100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    quick_points=(100, 10_000, 100_000),
    figures=(
        Figure("plain_cpu_ms", "filtered, CPU ms"),
        Figure("windows_cpu_ms", "in windows, CPU ms"),
        Figure("plain_ms", "filtered, ms"),
        Figure("windows_ms", "in windows, ms"),
    ),
    measure=measure,
)
