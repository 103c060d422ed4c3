"""How long a fragment pauses while its state is divided into another number of partitions, by its size.

A count and a text of 256 characters per key. All keys are written first; then a file of 1,000 messages comes
every half second, for keys that are there, and each must be counted once. Meanwhile the state is divided into
4, then 8, then 2 partitions. What is measured is the longest time between two results around each of them.

- *ours*: `RunningApplication.scale`, while the application runs.
- *PySpark*: the query is stopped, Spark's `repartition` divides the state in its checkpoint, and the query is
  started again, in the same session. Spark refuses a checkpoint whose last batch was interrupted; so it
  runs once more with `availableNow` between, as the error proposes. A division that is interrupted leaves a
  checkpoint that has to be repaired.

Seconds per GiB are those of dividing, over the size of Spark's newest files of the state.

    python -m benchmarks.scaling_pause [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import peers
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main

TOUCHED = 1_000
PER_FILE = 100_000
PERIOD_S = 0.5
AROUND = 6
"""Results that are waited for before each division, and after it."""
PATIENCE_S = 300.0
MEMORY_GIB = 4
"""Of Java: the division of the larger state ends both with 2 GiB."""
PARTITIONS = (4, 8, 2)
LARGE, LARGE_PEER = f"{OURS}, 4 times the keys", f"{peers.TUNED}, 4 times the keys"


def keys_of(scale: Scale, *, many: bool) -> int:
    return (50_000 if scale.quick else 500_000) * (4 if many else 1)


def table(first: int, count: int) -> pa.Table:
    draw = np.random.default_rng(first)
    letters = draw.integers(97, 123, (count, 256), dtype=np.uint8)
    return pa.table(
        {
            "key": [f"key-{n:08}" for n in range(first, first + count)],
            "text": [row.tobytes().decode() for row in letters],
        }
    )


class Feeder(threading.Thread):
    """Writes all keys into `directory` at once, and then, as a thread, files for the first of them."""

    def __init__(self, directory: Path, keys: int) -> None:
        super().__init__(daemon=True)
        self.fed = 0
        self._directory = directory
        self._over = threading.Event()
        directory.mkdir(parents=True)
        for first in range(0, keys, PER_FILE):
            self._put(f"all-{first:08}", table(first, min(PER_FILE, keys - first)))
        self._again = table(0, TOUCHED)

    def run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self._put(f"again-{self.fed:06}", self._again)
            self.fed += 1

    def end(self) -> None:
        self._over.set()
        self.join()

    def _put(self, name: str, rows: pa.Table) -> None:
        hidden = self._directory / f".{name}"
        pq.write_table(rows, hidden)
        hidden.rename(self._directory / f"{name}.parquet")


class Results:
    """The newest count of each key that comes again, and when results came."""

    def __init__(self) -> None:
        self.seen_s: list[float] = []
        self.counts: dict[str, int] = {}

    def take(self, batch: pa.Table) -> None:
        again = batch.filter(pc.less(batch["key"], f"key-{TOUCHED:08}"))
        for key, count in zip(again["key"].to_pylist(), again["n"].to_pylist(), strict=True):
            if count < self.counts.get(key, 0):
                raise WrongResultError(f"{key} was counted {count} times after {self.counts[key]}")
            self.counts[key] = count
        if again.num_rows:
            self.seen_s.append(time.perf_counter())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until_s:
                raise WrongResultError("no more results")
            time.sleep(0.01)

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.seen_s) + count
        self.wait_until(lambda: len(self.seen_s) >= wanted)

    def require_all(self, fed: int) -> None:
        self.wait_until(lambda: len(self.counts) == TOUCHED and min(self.counts.values()) >= fed + 1)
        if set(self.counts.values()) != {fed + 1}:
            raise WrongResultError(
                f"{fed} messages of a key were counted {max(self.counts.values()) - 1} times"
            )


def measured(
    feeder: Feeder, results: Results, divide: Callable[[int], float], size: Callable[[], int]
) -> dict[str, float]:
    """Divide the state into each number by `divide`, which returns how many seconds that took."""
    feeder.start()
    results.wait_for_more(AROUND)
    pauses, divisions, sizes = list[float](), list[float](), list[int]()
    for partitions in PARTITIONS:
        results.wait_for_more(AROUND)
        first = len(results.seen_s) - 1
        divisions.append(divide(partitions))
        results.wait_for_more(AROUND)
        times = results.seen_s[first:]
        pauses.append(max(b - a for a, b in itertools.pairwise(times)))
        sizes.append(size())
    feeder.end()
    results.require_all(feeder.fed)
    gib = statistics.median(sizes) / 2**30
    return {
        "seconds": sum(pauses),
        "pause_s": statistics.median(pauses),
        "longest_s": max(pauses),
        "divide_s": statistics.median(divisions),
        "state_mib": gib * 1024,
        "per_gib_s": statistics.median(divisions) / gib,
    }


def run_drivetrain(scale: Scale, work: Path, *, many: bool) -> dict[str, float]:
    from drivetrain import Application, agg, sinks, sources, start, windows

    _, start_s = peers.start_drivetrain(work)
    feeder, results = Feeder(work / "in", keys_of(scale, many=many)), Results()
    app = Application("scaling")
    kept = app.read(sources.parquet(work / "in", watch=True)).group_by("key")
    newest = kept.window(windows.everything(emission="accumulating"))
    counts = newest.aggregate(step="counts", n=agg.count(), text=agg.max("text"))
    counts.sink(sinks.batches(lambda batch, _id: results.take(batch)))
    running = start(app, peers.config(work, memory=f"{MEMORY_GIB} GiB"))
    sizes = list[int]()

    def divide(partitions: int) -> float:
        done = running.scale("counts", partitions, f"{PATIENCE_S:g} s")
        sizes.append(done.bytes)
        return done.took_ms / 1000

    try:
        found = measured(feeder, results, divide, lambda: sizes[-1])
    finally:
        running.stop()
        running.wait("2 min")
    return {"start_s": start_s, **found}


def run_pyspark(scale: Scale, work: Path, *, many: bool) -> dict[str, float]:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    from drivetrain.runtime.state.state_partitions import state_bytes

    spark, start_s = peers.start_pyspark(peers.TUNED, **{"spark.driver.memory": f"{MEMORY_GIB}g"})
    feeder, results = Feeder(work / "in", keys_of(scale, many=many)), Results()
    checkpoint = work / "checkpoint"
    rows = spark.readStream.schema("key string, text string").parquet(str(work / "in"))
    counts = rows.groupBy("key").agg(F.count("*").alias("n"), F.max("text").alias("text"))

    def take(batch: DataFrame, _batch_id: int) -> None:
        results.take(batch.toArrow())

    def writer() -> Any:
        made = counts.writeStream.outputMode("update").option("checkpointLocation", str(checkpoint))
        return made.foreachBatch(take)

    queries = [writer().start()]

    def divide(partitions: int) -> float:
        queries[-1].stop()
        writer().trigger(availableNow=True).start().awaitTermination()
        began_s = time.perf_counter()
        spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
        took_s = time.perf_counter() - began_s
        queries.append(writer().start())
        return took_s

    try:
        found = measured(feeder, results, divide, lambda: state_bytes(checkpoint))
    finally:
        queries[-1].stop()
    return {"start_s": start_s, **found}


JOB = Job(
    name="scaling_pause",
    title="The state of a fragment in another number of partitions: its pause",
    unit="s",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain(scale, work, many=False)),
        Contender(LARGE, lambda scale, work: run_drivetrain(scale, work, many=True)),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(scale, work, many=False)),
        Contender(LARGE_PEER, lambda scale, work: run_pyspark(scale, work, many=True)),
    ),
    prepare=lambda _scale: None,
    units=lambda _scale: len(PARTITIONS),
    check=lambda _scale, _work: None,  # every count is compared where it arrives
    measure="pause_s",
    lower_is_better=True,
    columns=(
        ("longest_s", "longest, s"),
        ("divide_s", "dividing, s"),
        ("state_mib", "state, MiB"),
        ("per_gib_s", "dividing, s per GiB"),
        ("peak_mib", "peak memory, MiB"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
