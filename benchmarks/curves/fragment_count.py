"""The number of fragments: a chain of filters with a channel after each, 20 batches of 1,000 messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import file_batches
from benchmarks.measure import Timed

FILES, ROWS = 20, 1_000


def application(source: Path, fragments: int) -> Any:
    """So many fragments in a row."""
    from drivetrain import Application, sinks, sources

    app = Application("fragment-count")
    stream = app.read(sources.parquet(source))
    for number in range(fragments - 1):
        stream = stream.filter(f"id <> -{number + 1}").cut()
    stream.filter("id >= 0").sink(sinks.none())
    return app


def measure(fragments: int, work: Path) -> Mapping[str, float]:
    """All batches through all fragments; a short run before warms Java up."""
    from drivetrain import run

    for name, files in (("warm", 3), ("in", FILES)):
        (work / name).mkdir()
        for number in range(files):
            ids = pa.table({"id": range(number * ROWS, (number + 1) * ROWS)})
            pq.write_table(ids, work / name / f"{number:03}.parquet")
    run(application(work / "warm", fragments), file_batches(work / "warm", work / "w"))
    with Timed() as timed:
        run(application(work / "in", fragments), file_batches(work / "in", work / "r"))
    return {"cpu_ms": timed.cpu_s * 1000 / FILES, "seconds": timed.seconds}


CURVE = Curve(
    name="fragment_count",
    title="An application, by the number of its fragments",
    quantity="fragments",
    points=(1, 2, 4, 8, 16, 32, 64),
    quick_points=(1, 4, 8),
    figures=(
        Figure("cpu_ms", "CPU ms for a batch through all fragments, start and end included"),
        Figure("seconds", "seconds for 20 batches"),
        Figure("peak_mib", "peak memory, MiB"),
    ),
    measure=measure,
)
