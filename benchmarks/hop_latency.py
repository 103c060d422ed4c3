"""How much later a message is seen behind a channel, and where the time of a small batch goes.

A file of twenty lines comes every second into a directory that is being watched. Its lines go to a function
in the driver: behind a channel, in a fragment of their own (`drivetrain`), or in the fragment that read them
(*fused*). The peers are plain PySpark: one query, and two that hand over by a directory of Parquet files. The
latency is from the moment a file is there until its lines are seen; each file comes long after the one before
has been, so nothing waits for anything but the machinery.

The parts, in ms of a median batch of the fragment behind the channel: Spark's own (asking for offsets, the
offset log, planning, the commit log), and ours within `foreachBatch` (the frame and its sinks). `write` and
`entry` are the producer's: the job that writes the segments, and the log entry with its file operations.

    python -m benchmarks.hop_latency [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import functools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main

if TYPE_CHECKING:
    import pyarrow as pa

    from drivetrain.core.job.run_progress import ProgressEvent

FUSED = "drivetrain, fused"
TWO_QUERIES = "pyspark, two queries"
PERIOD_S = 1.0
LINES_PER_FILE = 20
COLD_FILES = 4
PATIENCE_S = 300.0
SPARK_PARTS = {
    "latestOffset": "offsets_ms",
    "walCommit": "offset_log_ms",
    "queryPlanning": "planning_ms",
    "addBatch": "add_batch_ms",
    "commitOffsets": "commit_log_ms",
    "triggerExecution": "batch_ms",
}


def files(scale: Scale) -> int:
    return 12 if scale.quick else 30


class Feeder(threading.Thread):
    """Moves a new file into `lines` every second, once the one before has been seen."""

    def __init__(self, lines: Path, count: int) -> None:
        super().__init__(daemon=True)
        self.latencies_ms: list[float] = []
        self._lines = lines
        self._count = count
        self._arrived_s: dict[int, float] = {}
        self._seen = threading.Event()
        self._taken: set[str] = set()
        lines.mkdir(parents=True)

    @property
    def done(self) -> bool:
        """Whether the lines of every file have been seen."""
        return len(self._taken) >= self._count * LINES_PER_FILE

    def run(self) -> None:
        for number in range(self._count):
            self._seen.clear()
            hidden = self._lines / f".part-{number:03}.txt"
            text = "".join(f"{number:06} {line:03} {'x' * 89}\n" for line in range(LINES_PER_FILE))
            hidden.write_text(text)
            self._arrived_s[number] = time.monotonic()
            hidden.rename(self._lines / f"part-{number:03}.txt")
            self._seen.wait(PATIENCE_S)
            time.sleep(PERIOD_S)

    def take(self, lines: Iterable[str]) -> None:
        """Note which lines are there."""
        now_s = time.monotonic()
        known = len(self._taken)
        taken = list(lines)
        self._taken.update(taken)
        if len(self._taken) - known != len(taken):
            raise WrongResultError("a line came twice")
        for number in {int(line[:6]) for line in taken}:
            self.latencies_ms.append((now_s - self._arrived_s[number]) * 1000)
            self._seen.set()

    def figures(self, start_s: float, **parts: float) -> dict[str, float]:
        """What a contender returns; raises when lines are missing."""
        if not self.done:
            raise WrongResultError(f"{len(self._taken)} of {self._count * LINES_PER_FILE} lines were seen")
        warm = self.latencies_ms[COLD_FILES:]
        return {"latency_ms": statistics.median(warm), "worst_ms": max(warm), "start_s": start_s, **parts}


class Until:
    """Lets a run go on until all lines have been seen."""

    def __init__(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._until_s = time.monotonic() + PATIENCE_S

    def on_event(self, event: ProgressEvent) -> None:
        """Nothing to note: the parts are Spark's own figures."""

    def stop_requested(self) -> bool:
        return self._feeder.done or time.monotonic() > self._until_s


class Parts:
    """Medians of what takes time in a batch: calls that it wraps, and Spark's own figures."""

    def __init__(self) -> None:
        self._ms: dict[str, list[float]] = defaultdict(list)

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Measure every call of `owner.name`."""
        call = getattr(owner, name)

        @functools.wraps(call)
        def measured(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._ms[part].append((time.perf_counter() - began_s) * 1000)

        setattr(owner, name, measured)

    def take(self, durations_ms: dict[str, int]) -> None:
        """Spark's durations of one batch."""
        for name, part in SPARK_PARTS.items():
            self._ms[part].append(float(durations_ms.get(name, 0)))

    def medians(self) -> dict[str, float]:
        """By part, the first batches left out."""
        return {part: statistics.median(ms[COLD_FILES:] or ms) for part, ms in self._ms.items()}


# -- ours ------------------------------------------------------------------------------------------------


def application(lines: Path, feeder: Feeder, *, cut: bool) -> Any:
    """Lines to a function in the driver, with or without a channel in between."""
    from drivetrain import Application, sinks, sources

    app = Application("hop_latency")
    read = app.read(sources.text(lines, watch=True), name="lines")

    def seen(batch: pa.Table, _batch_id: int) -> None:
        feeder.take(batch["value"].to_pylist())

    (read.cut() if cut else read).sink(sinks.batches(seen), name="seen")
    return app


def run_drivetrain(scale: Scale, work: Path, *, cut: bool) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    parts = measured_parts("seen" if cut else "lines")
    feeder = Feeder(work / "lines", files(scale))
    feeder.start()
    run(application(work / "lines", feeder, cut=cut), peers.config(work), Until(feeder))
    return feeder.figures(start_s, **parts.medians())


def measured_parts(fragment: str) -> Parts:
    """Parts of the batches of one fragment, and of whoever writes channels."""
    from drivetrain.runtime.channel.store import ChannelStore
    from drivetrain.spark.batch import spark_branches
    from drivetrain.spark.batch.query_progress import QueryProgress

    parts = Parts()
    parts.wrap(spark_branches, "write_segments", "write_ms")
    parts.wrap(ChannelStore, "append", "entry_ms")
    read = QueryProgress.read

    def noted(self: QueryProgress, query: Any) -> None:
        known = self.seen
        read(self, query)
        if query is not None and self.fragment.id == fragment and self.seen > known:
            for progress in query.of_spark.recentProgress:
                if progress.batchId > known and "addBatch" in progress.durationMs:
                    parts.take(dict(progress.durationMs))

    QueryProgress.read = noted  # type: ignore[method-assign] - only for the length of this measurement
    return parts


# -- plain PySpark -------------------------------------------------------------------------------------------


def run_pyspark(name: str, scale: Scale, work: Path, *, two: bool) -> dict[str, float]:
    from pyspark.sql import DataFrame

    spark, start_s = peers.start_pyspark(name, **{"spark.sql.streaming.numRecentProgressUpdates": "1000"})
    feeder = Feeder(work / "lines", files(scale))
    lines = spark.readStream.text(str(work / "lines"))
    queries = []
    if two:
        (work / "between").mkdir()
        first = lines.writeStream.option("checkpointLocation", str(work / "first")).format("parquet")
        queries.append(first.start(str(work / "between")))
        lines = spark.readStream.schema("value string").parquet(str(work / "between"))

    def seen(batch: DataFrame, _batch_id: int) -> None:
        feeder.take(batch.toArrow()["value"].to_pylist())

    last = lines.writeStream.option("checkpointLocation", str(work / "last")).foreachBatch(seen)
    queries.append(last.start())
    feeder.start()
    until = Until(feeder)
    while not until.stop_requested() and all(query.isActive for query in queries):
        time.sleep(0.05)
    parts = Parts()
    for progress in queries[-1].recentProgress:
        if progress.numInputRows:
            parts.take(dict(progress.durationMs))
    for query in queries:
        query.stop()
    return feeder.figures(start_s, **parts.medians())


JOB = Job(
    name="hop_latency",
    title="A channel hop: how late a message is seen",
    unit="ms",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain(scale, work, cut=True)),
        Contender(FUSED, lambda scale, work: run_drivetrain(scale, work, cut=False)),
        Contender(TWO_QUERIES, lambda scale, work: run_pyspark(TWO_QUERIES, scale, work, two=True)),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work, two=False)),
    ),
    prepare=lambda _scale: None,
    units=files,
    check=lambda _scale, _work: None,  # the lines are compared where they arrive
    measure="latency_ms",
    lower_is_better=True,
    goals={TWO_QUERIES: 1.0},
    columns=(
        ("batch_ms", "batch"),
        *((name, name.removesuffix("_ms").replace("_", " ")) for name in list(SPARK_PARTS.values())[:-1]),
        ("write_ms", "write"),
        ("entry_ms", "entry"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
