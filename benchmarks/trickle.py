"""Small inputs that arrive steadily: how long a batch takes, and how old a line is when it has been counted.

A file of 200 lines comes every half second into a directory that is being watched; words are counted, and
after each batch the new counts of its words go to a function in the driver. Batch times are Spark's own
(`triggerExecution`), the first two batches left out; the latency is from the moment a file is there until its
last word has been counted. PySpark's defaults have 200 shuffle partitions, each with state of its own: that
is what makes them slow here.

    python -m benchmarks.trickle [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drivetrain.config import Config
    from drivetrain.core.job.run_progress import ProgressEvent

PERIOD_S = 0.5
LINES_PER_FILE = 200
WORDS_PER_FILE = LINES_PER_FILE * data.WORDS_PER_LINE
COLD_BATCHES = 2
PATIENCE_S = 240.0


def files(scale: Scale) -> int:
    return 24 if scale.quick else 60


class Feeder(threading.Thread):
    """Moves a new file into `lines` every half second; `arrived_s` says when each was there."""

    def __init__(self, lines: Path, count: int) -> None:
        super().__init__(daemon=True)
        text, counts = data.text_lines(data.vocabulary(), LINES_PER_FILE * count, np.random.default_rng(7))
        words = data.vocabulary().to_pylist()
        self.expected = {words[i]: int(n) for i, n in enumerate(counts) if n}
        self.arrived_s: list[float] = []
        self._pieces = list(data.chunks(text, LINES_PER_FILE))
        self._lines = lines
        lines.mkdir(parents=True)
        self._put(0)

    def run(self) -> None:
        due_s = time.monotonic()
        for number in range(1, len(self._pieces)):
            due_s += PERIOD_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._put(number)

    def _put(self, number: int) -> None:
        hidden = self._lines / f".part-{number:03}.txt"
        hidden.write_bytes(self._pieces[number])
        hidden.rename(self._lines / f"part-{number:03}.txt")
        self.arrived_s.append(time.monotonic())


class Counter:
    """Takes running counts batch by batch and notes when each file's words had all been counted."""

    def __init__(self, feeder: Feeder) -> None:
        self.latest: dict[str, int] = {}
        self.counted = 0
        self.latencies_ms: list[float] = []
        self._feeder = feeder
        self._total = sum(feeder.expected.values())

    @property
    def done(self) -> bool:
        """Whether every word of every file has been counted."""
        return self.counted >= self._total

    def take(self, batch: pa.Table) -> None:
        now_s = time.monotonic()
        for word, count in zip(batch["word"].to_pylist(), batch["count"].to_pylist(), strict=True):
            self.counted += count - self.latest.get(word, 0)
            self.latest[word] = count
        while len(self.latencies_ms) < self.counted // WORDS_PER_FILE:
            arrived_s = self._feeder.arrived_s[len(self.latencies_ms)]
            self.latencies_ms.append((now_s - arrived_s) * 1000)

    def figures(self, batches_ms: list[float], start_s: float) -> dict[str, float]:
        if self.latest != self._feeder.expected:
            raise WrongResultError("the last counts are not those of the files")
        warm = batches_ms[COLD_BATCHES:] or batches_ms
        return {
            "batch_ms": statistics.median(warm),
            "latency_ms": statistics.median(self.latencies_ms[COLD_BATCHES:]),
            "batches": len(batches_ms),
            "start_s": start_s,
        }


class Watching:
    """Notes the duration of every batch and stops the run when all has been counted."""

    def __init__(self, counter: Counter) -> None:
        self.batches_ms: list[float] = []
        self._counter = counter
        self._until_s = time.monotonic() + PATIENCE_S

    def on_event(self, event: ProgressEvent) -> None:
        from drivetrain.core.job.run_progress import FragmentProgressed

        if isinstance(event, FragmentProgressed) and event.batch_ms:
            self.batches_ms.append(event.batch_ms)

    def stop_requested(self) -> bool:
        return self._counter.done or time.monotonic() > self._until_s


def application(lines: Path, counter: Counter) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, F, agg, sinks, sources, windows

    app = Application("trickle")
    text = app.read(sources.text(lines, watch=True))
    words = text.select(word=F.explode(F.split(F.col("value"), " ")))
    counts = words.group_by("word").window(windows.everything(emission="accumulating"))
    counts.aggregate(count=agg.count()).sink(sinks.batches(lambda batch, _id: counter.take(batch)))
    return app


def run_drivetrain(scale: Scale, work: Path, config: Config | None = None) -> dict[str, float]:
    """The job with a configuration; None: the defaults, and the state on this disk."""
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    feeder = Feeder(work / "lines", files(scale))
    counter = Counter(feeder)
    watching = Watching(counter)
    feeder.start()
    run(application(work / "lines", counter), config or peers.config(work), watching)
    return counter.figures(watching.batches_ms, start_s)


def run_pyspark(
    name: str,
    scale: Scale,
    work: Path,
    checkpoint: str | None = None,
    conf: Mapping[str, str] | None = None,
    at_end: Callable[[SparkSession], None] = lambda _session: None,
) -> dict[str, float]:
    """The job with a checkpoint at a place (None: on this disk) and more settings; `at_end` gets the
    session."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    more = {"spark.sql.streaming.numRecentProgressUpdates": "1000", **(conf or {})}
    spark, start_s = peers.start_pyspark(name, **more)
    feeder = Feeder(work / "lines", files(scale))
    counter = Counter(feeder)

    def take(batch: DataFrame, _batch_id: int) -> None:
        counter.take(batch.toArrow())

    words = spark.readStream.text(str(work / "lines")).select(F.explode(F.split("value", " ")).alias("word"))
    feeder.start()
    query = (
        words.groupBy("word")
        .count()
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint or str(work / "checkpoint"))
        .foreachBatch(take)
        .start()
    )
    until_s = time.monotonic() + PATIENCE_S
    while not counter.done and query.isActive and time.monotonic() < until_s:
        query.awaitTermination(0.05)
    query.processAllAvailable()
    batches_ms = [float(p.durationMs["triggerExecution"]) for p in query.recentProgress if p.numInputRows]
    query.stop()
    at_end(spark)
    return counter.figures(batches_ms, start_s)


JOB = Job(
    name="trickle",
    title="Small inputs arriving steadily: median batch time",
    unit="ms per batch",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work), reference=True),
        Contender(
            peers.DEFAULTS, lambda scale, work: run_pyspark(peers.DEFAULTS, scale, work), reference=True
        ),
    ),
    prepare=lambda _scale: None,
    units=files,
    check=lambda _scale, _work: None,  # the running counts are compared where they arrive
    measure="batch_ms",
    lower_is_better=True,
    goals={peers.DEFAULTS: 5.0},
    columns=(("latency_ms", "latency, ms"), ("batches", "batches"), ("peak_mib", "peak memory, MiB")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
