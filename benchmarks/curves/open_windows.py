"""The number of windows that are open for a key: windows that slide, in all of which a message is counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.curves.batch_rows import write_files
from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import Batches, file_batches

SLIDE_S = 10
WARM, COUNT = 1, 2


def application(source: Path, out: Path, windows_open: int) -> Any:
    """Counts and sums in windows of `windows_open` × 10 seconds, one every ten seconds."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("open-windows")
    schema = data.EVENT_SCHEMA
    events = app.read(sources.json(source, schema=schema, event_time="ts", max_disorder="5 s"))
    sliding = windows.sliding(f"{windows_open * SLIDE_S} s", f"{SLIDE_S} s")
    counted = events.group_by("key").window(sliding).aggregate(n=agg.count(), total=agg.sum("value"))
    counted.sink(sinks.parquet(out))
    return app


def measure(windows_open: int, work: Path) -> Mapping[str, float]:
    """Batches of as many events as take a few seconds; the figure is for a million."""
    from drivetrain import run

    rows = max(100_000, 2_000_000 // windows_open)
    write_files(work / "in", rows, WARM + COUNT)
    batches = Batches()
    config = file_batches(work / "in", work)
    run(application(work / "in", work / "out", windows_open), config, batches)
    taken = batches.figures(WARM, COUNT)
    return {"cpu_s": taken["cpu_ms"] / 1000 / rows * 1e6, "seconds": taken["ms"] / 1000 / rows * 1e6}


CURVE = Curve(
    name="open_windows",
    title="A million JSON events, by the number of windows that each is in",
    quantity="open windows of a key",
    points=(1, 2, 5, 10, 20, 50, 100, 200, 500),
    quick_points=(1, 5, 20),
    figures=(Figure("cpu_s", "CPU s for a million"), Figure("seconds", "seconds for a million")),
    measure=measure,
)
