"""The number of keys that have a state: 10,000 messages with keys drawn at random are counted in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.curves.curve import Curve, Figure
from benchmarks.curves.few_batches import Batches, file_batches

TOUCHED, BATCHES, COLD = 10_000, 12, 2
FILLED_AT_ONCE = 1_000_000


def application(source: Path) -> Any:
    """A count for each key, in a persistent Task."""
    from drivetrain import Application, PersistentTask, State, agg, sinks, sources

    class Counts(PersistentTask[Any, Any]):
        key = "key"
        state = State(agg.count())

    app = Application("key-count")
    app.read(sources.parquet(source)).select("key").process(Counts, name="counts").sink(sinks.none())
    return app


def measure(keys: int, work: Path) -> Mapping[str, float]:
    """Fill the state with all keys, then measure batches that touch few."""
    from drivetrain import run

    source = work / "in"
    source.mkdir()
    rng = np.random.default_rng(3)
    pieces = [np.arange(at, min(keys, at + FILLED_AT_ONCE)) for at in range(0, keys, FILLED_AT_ONCE)]
    pieces += [rng.integers(0, keys, TOUCHED) for _ in range(COLD + BATCHES)]
    for number, ids in enumerate(pieces):
        columns: dict[str, Any] = {"key": ids}
        if len(ids) <= TOUCHED < keys:
            # A batch has a number of bytes, so small files are made as large as those that fill the state.
            padding = rng.integers(1, 256, 8 * min(keys, FILLED_AT_ONCE), np.uint8).tobytes()  # 0 ends a text
            columns["padding"] = np.frombuffer(padding, f"S{len(padding) // TOUCHED}")
        table, file = pa.table(columns), source / f"{number:05}.parquet"
        pq.write_table(table, file, use_dictionary=False, compression="none")
    batches = Batches()
    run(application(source), file_batches(source, work), batches)
    size = sum(file.stat().st_size for file in (work / "state").glob("**/*") if file.is_file())
    filled = len(pieces) - BATCHES
    return {**batches.figures(filled, BATCHES), "disk_mib": size / 2**20}


CURVE = Curve(
    name="key_count",
    title="A batch of 10,000 messages, by the number of keys that have a state",
    quantity="keys",
    points=(1_000, 10_000, 100_000),
    quick_points=(1_000, 100_000),
    figures=(
        Figure("cpu_ms", "CPU ms for a batch"),
        Figure("ms", "ms for a batch"),
        Figure("disk_mib", "state directory, MiB"),
        Figure("peak_mib", "peak memory, MiB"),
    ),
    measure=measure,
)
