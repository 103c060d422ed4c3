"""Going on with the state of a million keys: from a savepoint, and as Spark does from its own checkpoint.

A count per key in Spark's keyed state; batches of 100,000 messages put a million keys there, and the
application is stopped. What is measured is the second start: from the call to the results of its first batch.
*From a savepoint* is a state directory that has nothing, and a savepoint whose hashes are looked at first;
*where it was* and plain PySpark find their own state.

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


class Noted:
    """Writes down when each batch had its results; a copy of it may run elsewhere."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, _batch: Any, number: int) -> None:
        with open(self.path, "a") as file:
            file.write(f"{number} {time.time()}\n")

    def times(self) -> list[float]:
        """By batch, in order."""
        path = Path(self.path)
        return [float(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []


class Until:
    """A listener that asks to stop after so many batches, and when `last` has been done, beside the run."""

    def __init__(self, noted: Noted, batches: int, last: Callable[[], object] | None = None) -> None:
        self._noted = noted
        self._batches = batches
        self._thread = None if last is None else threading.Thread(target=last)

    def on_event(self, _event: Any) -> None:
        """Batches are counted where they are written."""

    def stop_requested(self) -> bool:
        if len(self._noted.times()) < self._batches:
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

    def application(noted: Noted) -> Application:
        app = Application("recovery")
        made = app.read(sources.generate(rows=10 * count, columns={"key": f"id % {count}"}), name="made")
        counted = made.group_by("key").window(windows.tumbling("36500 d", emission="accumulating"))
        counted.aggregate("counts", n=agg.count()).sink(sinks.batches(noted), name="noted")
        return app

    def config(name: str) -> Config:
        given = {"run.max-batch-rows": str(BATCH), "state.dir": str(work / name)}
        return Config.load(None, {}, given)

    before, after = Noted(work / "before"), Noted(work / "after")
    app, place = application(before), work / "savepoint"
    made: list[Path] = []

    def save() -> None:
        made.append(savepoint(app, place, config("state")))

    run(app, config("state"), Until(before, count // BATCH, save if elsewhere else None))
    began_s = time.time()
    run(
        application(after),
        config("elsewhere" if elsewhere else "state"),
        Until(after, 1),
        from_savepoint=made[0] if elsewhere else None,
    )
    return {"first_ms": 1000 * (after.times()[0] - began_s), "start_s": start_s}


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import DataFrame

    spark, start_s = peers.start_pyspark(peers.TUNED)
    count = keys_of(scale)

    def run(noted: Noted, batches: int) -> None:
        made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load()
        counted = made.selectExpr(f"value % {count} AS key").groupBy("key").count()

        def write(batch: DataFrame, number: int) -> None:
            batch.toArrow()
            noted(None, number)

        query = (
            counted.writeStream.outputMode("update")
            .option("checkpointLocation", str(work / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        while len(noted.times()) < batches:
            if not query.isActive:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.005)
        query.stop()

    run(Noted(work / "before"), count // BATCH)
    after = Noted(work / "after")
    began_s = time.time()
    run(after, 1)
    return {"first_ms": 1000 * (after.times()[0] - began_s), "start_s": start_s}


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
