"""How often a small batch asks Java, and how many jobs it runs: ours beside PySpark's.

Each call from Python into Java takes time from both processes, and each job of Spark's some milliseconds
more; together they are the least that a batch can take. Unlike times they are the same on every machine. A
file of twenty lines is a batch; the first batches, which look things up, are left out. Three applications
with a file sink: lines as they are, lines through a Python function, lines counted in windows. The peer does
the same with `foreachBatch` and Spark's own writer (Spark's own file sink calls no Python at all).

    python -m benchmarks.calls [--quick] [--batches N] [--places] [--only APPLICATION] [--contender CONTENDER]

`--places` lists the functions that make the calls. Calls between batches, of the threads that look after a
query, are part of the figures: they follow the time that batches take. The CPU time of a batch is that of all
processes, Java's compilers included, which have less to do the more `--batches` there are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import peers
from benchmarks.java_calls import JavaCalls, counted_calls
from benchmarks.measure import cpu_s
from drivetrain.config import Config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES = 20
COLD = 4
SCHEMA = "ts timestamp, name string, amount bigint"
MOST_BYTES = "1 KiB"
OURS, PEER = "drivetrain", "pyspark"
SHAPES = ("lines", "function", "windows")
HEADING = f"{'':26}{'calls':>10}{'in a batch':>12}{'freed':>10}{'jobs':>8}{'CPU, ms':>10}{'ms':>8}"


@dataclass
class Marks:
    """What was counted when each batch began and ended."""

    spark: SparkSession
    calls: JavaCalls
    begun: list[tuple[Counter[str], int, int]] = field(default_factory=list)
    spent: list[tuple[float, float]] = field(default_factory=list)
    """CPU seconds of all processes, and the time, when each batch began."""
    within: list[int] = field(default_factory=list)

    def began(self) -> None:
        """A batch begins; what this asks Java itself is not counted."""
        with self.calls.uncounted():
            jobs = self.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
        self.begun.append((*self.calls.so_far(), jobs))
        self.spent.append((cpu_s(), time.monotonic()))
        self._at = self.calls.of_thread()

    def ended(self) -> None:
        """The batch ends."""
        self.within.append(self.calls.of_thread() - self._at)

    def row(self, name: str) -> str:
        """The figures of the steady batches: per batch, and of the median batch within its own thread."""
        (first, freed, jobs), (last, freed_after, jobs_after) = self.begun[COLD], self.begun[-1]
        batches = len(self.begun) - 1 - COLD
        of_all = (last.total() - first.total(), freed_after - freed, jobs_after - jobs)
        calls, frees, ran = (n / batches for n in of_all)
        typical = sorted(self.within[COLD:])[len(self.within[COLD:]) // 2]
        (cpu_before_s, began_s), (cpu_after_s, ended_s) = self.spent[COLD], self.spent[-1]
        cpu_ms, ms = ((cpu_after_s - cpu_before_s) * 1000 / batches, (ended_s - began_s) * 1000 / batches)
        counted = f"{name:26}{calls:>10.1f}{typical:>12}{frees:>10.1f}{ran:>8.1f}"
        return f"{counted}{cpu_ms:>10.0f}{ms:>8.0f}"

    def places(self) -> Iterator[str]:
        """The places that make the calls, most first."""
        found, batches = self.begun[-1][0] - self.begun[COLD][0], len(self.begun) - 1 - COLD
        for place, n in found.most_common():
            yield f"    {n / batches:8.2f}  {place}"


def files(directory: Path, count: int) -> None:
    """Write the input: `count` files, each of which is a batch."""
    directory.mkdir(parents=True)
    for n in range(count):
        at = f"2026-01-01T{n // 60:02}:{n % 60:02}"
        lines = [{"ts": f"{at}:{s:02}Z", "name": f"n{s % 5}", "amount": s} for s in range(LINES)]
        (directory / f"{n:04}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")


def doubled(amount: int) -> int:
    """What both contenders' functions do."""
    return amount * 2


def application(shape: str, work: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application(f"calls-{shape}")
    stream = app.read(sources.json(str(work / "in"), schema=SCHEMA))
    if shape == "function":
        stream = stream.select("amount").map(doubled)
    elif shape == "windows":
        timed = stream.event_time("ts", max_disorder="0 s").group_by("name")
        stream = timed.window(windows.tumbling("1 min")).aggregate(total=agg.sum("amount"))
    stream.sink(sinks.json(str(work / "out")))
    return app


@contextmanager
def marked_batches(marks: Marks) -> Iterator[None]:
    """Within the block, batches of Drivetrain's queries are marked."""
    from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery

    on_batch = MicroBatchQuery._on_batch

    def batch(self: MicroBatchQuery, df: DataFrame, batch_id: int) -> None:
        marks.began()
        on_batch(self, df, batch_id)
        marks.ended()

    MicroBatchQuery._on_batch = batch  # type: ignore[method-assign]
    try:
        yield
    finally:
        MicroBatchQuery._on_batch = on_batch  # type: ignore[method-assign]


def of_drivetrain(spark: SparkSession, shape: str, work: Path) -> Marks:
    """Run an application; its batches."""
    from drivetrain import run

    config = Config.load(None, {}, {"state.dir": str(work / "state"), "run.max-batch-bytes": MOST_BYTES})
    with counted_calls() as calls:
        marks = Marks(spark, calls)
        with marked_batches(marks):
            run(application(shape, work), config)
    return marks


def of_pyspark(spark: SparkSession, shape: str, work: Path) -> Marks:
    """Run the same as a query of Spark's; its batches."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    df = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(work / "in"))
    if shape == "windows":
        late = df.withWatermark("ts", "0 seconds").groupBy(F.window("ts", "1 minute"), "name")
        df = late.agg(F.sum("amount").alias("total"))
    double = F.udf(doubled, "bigint")
    with counted_calls() as calls:
        marks = Marks(spark, calls)

        def write(batch: DataFrame, _id: int) -> None:
            marks.began()
            if shape == "function":
                batch = batch.select(double("amount").alias("value"))
            batch.write.mode("append").json(str(work / "out"))
            marks.ended()

        writer = df.writeStream.option("checkpointLocation", str(work / "checkpoint")).foreachBatch(write)
        writer.trigger(availableNow=True).start().awaitTermination()
    return marks


def measured(contender: str, shapes: tuple[str, ...], count: int, *, places: bool) -> None:
    """Run one contender in this process, and print its figures."""
    with tempfile.TemporaryDirectory(prefix="drivetrain-calls-") as home:
        start = peers.start_drivetrain(Path(home)) if contender == OURS else peers.start_pyspark(peers.TUNED)
        spark, run = start[0], of_drivetrain if contender == OURS else of_pyspark
        for shape in shapes:
            work = Path(home) / shape
            files(work / "in", count)
            marks = run(spark, shape, work)
            lines = [marks.row(f"{shape}, {contender}"), *(marks.places() if places else ())]
            print(*lines, sep="\n", flush=True)
        spark.stop()


def main() -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few batches")
    parser.add_argument("--batches", type=int, help="how many (24)")
    parser.add_argument("--places", action="store_true", help="list the functions that make the calls")
    parser.add_argument("--only", choices=SHAPES, help="one of the applications")
    parser.add_argument("--contender", choices=(OURS, PEER), help="one of the contenders")
    given = parser.parse_args()
    if given.contender is not None:
        shapes = (given.only,) if given.only else SHAPES
        count = given.batches or (10 if given.quick else 24)
        measured(given.contender, shapes, count, places=given.places)
        return 0
    print(HEADING, flush=True)
    for contender in (OURS, PEER):  # each in a process of its own: both start Spark as they would
        command = [sys.executable, "-m", "benchmarks.calls", *sys.argv[1:], "--contender", contender]
        subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
