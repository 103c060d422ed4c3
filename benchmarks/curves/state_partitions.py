"""The number of state partitions: batches of 10,000 events in windows, whose state has so many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.curves.batch_rows import application, write_files
from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import Batches, file_batches

ROWS, WARM, COUNT = 10_000, 3, 8


def measure(partitions: int, work: Path) -> Mapping[str, float]:
    """The windows of `batch_rows`, with so many partitions."""
    from drivetrain import run

    write_files(work / "in", ROWS, WARM + COUNT)
    batches = Batches()
    config = file_batches(work / "in", work, spark__shuffle_partitions=partitions)
    run(application(work / "in", work / "out", windowed=True), config, batches)
    return batches.figures(WARM, COUNT)


CURVE = Curve(
    name="state_partitions",
    title="A batch of 10,000 events in windows, by the number of state partitions",
    quantity="state partitions",
    points=(1, 2, 4, 8, 16, 32, 64, 128, 256, 1_000),
    quick_points=(1, 4, 16),
    figures=(Figure("cpu_ms", "CPU ms"), Figure("ms", "ms"), Figure("peak_mib", "peak memory, MiB")),
    measure=measure,
)
