"""Files of uneven size and cost: divided among the cores, handed out by Spark, and pulled one at a time.

The same JSON lines by the same reader and the same function, as one Spark job that counts by key.
*drivetrain* divides bytes as its file sources do in each batch, into up to four parts a core, which Spark
hands to the core that is free. *a part for each core* divides without that, *a task for each file* does not
divide. *pulled* has one task a core, which asks the driver's `SplitAssigner` for its next file. Each is
measured twice: with lines that all cost the same, and with an input whose last quarter is dear, 40 hashes a
line. `busiest core` is the CPU time of the core that has most to do, which other processes do not lengthen.

    python -m benchmarks.splits [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import hashlib
import heapq
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, WrongResultError, main
from drivetrain.connectors.files.file_log import FileLog, FileSplit
from drivetrain.connectors.files.file_reader import ReadPlan, plan_splits, read_splits
from drivetrain.core.job.splits import Answer, Split, SplitAssigner
from drivetrain.runtime.file_locations import FoundFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PER_CORE = "a part for each core"
BY_SPARK = "a task for each file"
PULLED = "pulled"
FILES = 24
DEAR = 40
KEYS = 100
CPU = "cpu of task "
SCHEMA = "key string, cost bigint, text string"
COUNTED = "key string, n bigint"
Take = Callable[[int], Iterator[FileSplit]]
"""What the task of a number is to read."""


def lines(scale: Scale) -> int:
    return 40_000 if scale.quick else 400_000


def directory(scale: Scale, kind: str) -> Path:
    return data.made(f"splits-{kind}-{lines(scale)}", lambda made: write(made, lines(scale), kind))


def write(made: Path, count: int, kind: str) -> None:
    """Lines in files whose sizes are as 1, 2, 3, ..., 6, and again; of *dear* the last quarter costs more."""
    weights = [1 + n % 6 for n in range(FILES)]
    number = 0
    for file, weight in enumerate(weights):
        end = count if file == FILES - 1 else number + count * weight // sum(weights)
        with (made / "lines" / f"{file:02}.json").open("w") as out:
            for n in range(number, end):
                cost = DEAR if kind == "dear" and n >= count * 3 // 4 else 0
                out.write(f'{{"key": "k{n % KEYS}", "cost": {cost}, "text": "{n:0640}"}}\n')
        number = end


def counted(splits: Iterator[FileSplit], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Read splits and do with each line what it costs."""
    from pyspark.sql.types import LongType, StringType, StructType

    schema = StructType().add("key", StringType()).add("cost", LongType()).add("text", StringType())
    for split in splits:
        for batch in read_splits(plan.source, [split], schema):
            for cost, text in zip(batch["cost"].to_pylist(), batch["text"].to_pylist(), strict=True):
                for _ in range(cost):
                    hashlib.sha256(text[:64].encode()).digest()
            yield pa.record_batch({"key": batch["key"], "n": pa.array([1] * batch.num_rows, pa.int64())})


def job(spark: SparkSession, plan: ReadPlan, tasks: int, take: Take) -> float:
    """Read everything in so many tasks; the CPU seconds of the core that has most to do.

    That is what the job takes at least on cores that do nothing else, however busy the machine is now: tasks
    in their order, each on the core that is free first. Raises `WrongResultError`.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                began_ns = time.process_time_ns()
                yield from counted(take(number), plan)
                spent_ns = time.process_time_ns() - began_ns
                yield pa.record_batch({"key": [f"{CPU}{number}"], "n": pa.array([spent_ns], pa.int64())})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(read, COUNTED).groupBy("key").sum("n").collect()
    counts = {key: n for key, n in rows if not key.startswith(CPU)}
    log = FileLog(pafs.LocalFileSystem(), plan.state_dir)
    expected = sum(Path(file.path).read_bytes().count(b"\n") for file in log.files())
    if len(counts) != KEYS or sum(counts.values()) != expected:
        raise WrongResultError(
            f"{sum(counts.values())} lines of {len(counts)} keys: not {expected} of {KEYS}"
        )
    spent = {int(key.removeprefix(CPU)): n / 1e9 for key, n in rows if key.startswith(CPU)}
    free = [0.0] * plan.parallelism
    for number in sorted(spent):
        heapq.heapreplace(free, free[0] + spent[number])
    return max(free)


class Served:
    """A `SplitAssigner` for whoever connects: gives the next number, or None."""

    def __init__(self, files: list[FileSplit]) -> None:
        self._splits = SplitAssigner(Split(n, file.path) for n, file in enumerate(files))
        self._lock = threading.Lock()
        self._listener = Listener(("127.0.0.1", 0))
        self.address = self._listener.address
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            threading.Thread(target=self._serve, args=(self._listener.accept(),), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        attempt = ("task", connection.recv())
        with self._lock:
            self._splits.begin(attempt)
        while True:
            with self._lock:
                found = self._splits.next(attempt, None)
            connection.send(None if isinstance(found, Answer) else found.number)
            if isinstance(found, Answer):
                return
            connection.recv()


def pull(address: tuple[str, int], files: list[FileSplit], task: int) -> Iterator[FileSplit]:
    """The files that a task is given, one at a time."""
    with Client(address) as connection:
        connection.send(task)
        while (number := connection.recv()) is not None:
            yield files[number]
            connection.send(None)


def run_with(name: str, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain.api.sources import JsonLines

    spark, start_s = peers.start_drivetrain(work)
    cores = spark.sparkContext.defaultParallelism

    def run(kind: str, scale: Scale) -> dict[str, float]:
        path = directory(scale, kind) / "lines"
        place = Path(tempfile.mkdtemp(dir=work))
        log = FileLog(pafs.LocalFileSystem(), str(place))
        found = [FoundFile(str(file), file.stat().st_size) for file in sorted(path.iterdir())]
        log.append((file, False) for file in found)
        plan = ReadPlan(JsonLines(path=str(path), schema=SCHEMA), str(place), 1 << 30, cores)
        files = [FileSplit(file.path, 0, file.size_bytes, file.size_bytes, whole=True) for file in found]
        parts = [part.splits for part in plan_splits(plan, log, 0, log.total_bytes)]
        parts = log.splits(0, log.total_bytes, cores) if name == PER_CORE else parts
        if name == BY_SPARK:
            tasks, take = len(files), lambda number: iter([files[number]])
        elif name == PULLED:
            address = Served(files).address
            tasks, take = cores, lambda number: pull(address, files, number)
        else:
            tasks, take = len(parts), lambda number: iter(parts[number])
        with Timed() as timed:
            busiest_s = job(spark, plan, tasks, take)
        return timed.figures(busiest_s=busiest_s)

    run("dear", Scale(quick=True))
    even = {f"even_{name}": figure for name, figure in run("even", scale).items()}
    return {**run("dear", scale), **even, "start_s": start_s}


JOB = Job(
    name="splits",
    title="Files of uneven size and cost",
    unit="busiest core, s",
    contenders=(
        Contender(OURS, lambda scale, work: run_with(OURS, scale, work)),
        Contender(PER_CORE, lambda scale, work: run_with(PER_CORE, scale, work)),
        Contender(BY_SPARK, lambda scale, work: run_with(BY_SPARK, scale, work)),
        Contender(PULLED, lambda scale, work: run_with(PULLED, scale, work)),
    ),
    prepare=lambda scale: (directory(scale, "even"), directory(scale, "dear")),
    units=lines,
    check=lambda _scale, _work: None,  # each job checks its own result
    measure="busiest_s",
    lower_is_better=True,
    columns=(
        ("cpu_s", "CPU, s"),
        ("seconds", "seconds"),
        ("even_busiest_s", "even: busiest core, s"),
        ("even_cpu_s", "even: CPU, s"),
        ("even_seconds", "even: seconds"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
