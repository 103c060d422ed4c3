"""Going on with the state of a million keys: from a savepoint, and as Spark does from its own checkpoint.

A count per key and window in Spark's keyed state; batches of 100,000 messages put a million keys there, and
the application is stopped. What is measured is the second start: from the call to the results of its first
batch. *From a savepoint* is an empty state directory and a savepoint whose hashes are looked at first; *where
it was* and plain PySpark find their own state.

    python -m benchmarks.recovery [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.measure import OURS, Contender, Job, Scale, main

WHERE_IT_WAS = "drivetrain, where it was"
BATCH = 100_000


def keys_of(scale: Scale) -> int:
    return 200_000 if scale.quick else 1_000_000


class Until:
    """A listener that asks to stop after so many batches, and when `last` has been done, beside the run."""

    def __init__(self, batches: int, last: Callable[[], object] | None = None) -> None:
        self._batches = batches
        self._thread = None if last is None else threading.Thread(target=last)
        self.ended_s: dict[int, float] = {}

    def on_event(self, event: Any) -> None:
        """Note when a batch was told of."""
        if getattr(event, "batch_ms", None):
            self.ended_s.setdefault(event.batch_id, time.monotonic())

    def stop_requested(self) -> bool:
        if len(self.ended_s) < self._batches:
            return False
        if self._thread is None:
            return True
        if self._thread.ident is None:
            self._thread.start()
        return not self._thread.is_alive()


def run_drivetrain(scale: Scale, work: Path, *, elsewhere: bool) -> dict[str, float]:
    from drivetrain import Application, agg, run, savepoint, sinks, sources, windows
    from drivetrain.config import Config

    _, start_s = peers.start_drivetrain(work)
    count = keys_of(scale)

    app = Application("recovery")
    made = app.read(sources.generate(rows=10 * count, columns={"key": f"id % {count}"}), name="made")
    counted = made.group_by("key").window(windows.tumbling("365 d", emission="accumulating"))
    counted.aggregate(step="counts", n=agg.count()).sink(sinks.none(), name="counted")

    def config(name: str) -> Config:
        given = {"run.max-batch-rows": str(BATCH), "state.dir": str(work / name)}
        return Config.load(None, {}, given)

    saved: list[Path] = []

    def save() -> None:
        saved.append(savepoint(app, work / "savepoint", config("state")))

    run(app, config("state"), Until(count // BATCH, save if elsewhere else None))
    after = Until(1)
    began_s = time.monotonic()
    if elsewhere:
        run(app, config("elsewhere"), after, from_savepoint=saved[0])
    else:
        run(app, config("state"), after)
    return {"first_ms": 1000 * (min(after.ended_s.values()) - began_s), "start_s": start_s}


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED)
    count = keys_of(scale)

    def run(batches: int) -> float:
        """Run so many batches; when the first of them had its results."""
        made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load()
        keyed = made.selectExpr("timestamp", f"value % {count} AS key")
        timed = keyed.withWatermark("timestamp", "0 seconds")
        counted = timed.groupBy(F.window("timestamp", "365 days"), "key").count()
        ended_s: list[float] = []

        def write(batch: DataFrame, _number: int) -> None:
            batch.write.format("noop").mode("overwrite").save()
            ended_s.append(time.monotonic())

        query = (
            counted.writeStream.outputMode("update")
            .option("checkpointLocation", str(work / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        while len(ended_s) < batches:
            if not query.isActive:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.005)
        query.stop()
        return ended_s[0]

    run(count // BATCH)
    began_s = time.monotonic()
    return {"first_ms": 1000 * (run(1) - began_s), "start_s": start_s}


JOB = Job(
    name="recovery",
    title="Going on with the state of a million keys",
    unit="ms",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain(scale, work, elsewhere=True)),
        Contender(WHERE_IT_WAS, lambda scale, work: run_drivetrain(scale, work, elsewhere=False)),
        Contender(peers.TUNED, run_pyspark),
    ),
    prepare=lambda _scale: None,
    units=keys_of,
    check=lambda _scale, _work: None,  # nothing is written but the times
    measure="first_ms",
    lower_is_better=True,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
