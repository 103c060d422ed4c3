"""What grows while an application runs: bytes, files and memory, per million messages and in a month.

Small files of JSON lines come twice a second into a directory that is watched; one line in fifty cannot be
read and goes to the dead letters. The others go through a Python function and a channel into windows of a
minute of event time, and into Parquet files that are closed after a minute. Every few seconds it is noted how
many files and bytes each part keeps, and how much memory the processes have.

Most of it is bounded and grows to its bound first. So Spark keeps the logs of 10 batches here, not of 100,
and samples are taken once 40 batches are over. The growth is that of a line through the samples, with what
would come of it in 30 days; a part whose line is not steeper than the scatter of its samples does not grow.
Java's memory is its heap after a collection, since what it takes of the machine is up to
`spark.driver-memory`. Short runs say little: 10 minutes are the least to believe.

What takes longer than any run is filled directly: a log with the files of a month, one a second.

    python -m benchmarks.soak [--minutes N] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import peers

PERIOD_S = 0.5
LINES_PER_FILE = 200
BAD_EVERY = 50
SAMPLE_S = 3.0
DAYS = 30
MONTH_FILES = DAYS * 86_400
KEYS = 50
WARM_BATCHES = 40
SPARK = {
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
}
PARTS = {
    "the state directory": "state",
    "Spark's checkpoints": "state/*/fragments/*/checkpoint",
    "channels": "state/*/channels",
    "notes of sources": "state/*/fragments/*/sources",
    "dead letters": "state/*/dead-letters",
    "results, seen": "out/part-*",
    "results, waiting": "out/_drivetrain",
}


class Feeder(threading.Thread):
    """Puts a file into `directory` every half second, until it is told to stop."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.lines = 0
        self.done = threading.Event()
        self._directory = directory
        directory.mkdir(parents=True)

    def run(self) -> None:
        number, due_s = 0, time.monotonic()
        while not self.done.is_set():
            hidden = self._directory / f".part-{number:09}.jsonl"
            hidden.write_text("".join(self._line(number * LINES_PER_FILE + n) for n in range(LINES_PER_FILE)))
            hidden.rename(self._directory / f"part-{number:09}.jsonl")
            self.lines += LINES_PER_FILE
            number += 1
            due_s += PERIOD_S
            self.done.wait(max(0.0, due_s - time.monotonic()))

    def _line(self, n: int) -> str:
        if n % BAD_EVERY == 0:
            return f"not a message, number {n}\n"
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + n // 20))
        return f'{{"at": "{at}", "key": "k{n % KEYS}", "n": {n}}}\n'


@dataclass
class Samples:
    """What was seen: files and bytes of each part, memory of each kind of process, messages until then."""

    seconds: list[float] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    series: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def take(self, work: Path, seconds: float, messages: int) -> None:
        self.seconds.append(seconds)
        self.messages.append(messages)
        for part, pattern in PARTS.items():
            files, size = _kept(work, pattern)
            self._note(part, "files", files)
            self._note(part, "bytes", size)
        for kind, size in _memory().items():
            self._note(kind, "memory", size)

    def _note(self, part: str, what: str, value: float) -> None:
        self.series.setdefault((part, what), []).append(value)

    def rows(self) -> list[dict[str, Any]]:
        """Per part: what there was at first and at the end, and the growth between."""
        seconds = np.array(self.seconds)
        messages = np.array(self.messages)
        told = []
        for (part, what), values in self.series.items():
            late = np.array(values)
            slope, error = _line_through(seconds, late)
            per_s = slope if abs(slope) > 2 * error else 0.0
            rate = (messages[-1] - messages[0]) / (seconds[-1] - seconds[0])
            told.append(
                {
                    "part": part,
                    "what": what,
                    "first": float(late[0]),
                    "end": float(late[-1]),
                    "per_million": per_s / rate * 1e6,
                    "month": per_s * 86_400 * DAYS,
                }
            )
        return told


def _line_through(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[float, float]:
    """The slope of the best line, and its standard error."""
    if len(x) < 4:
        return 0.0, 1.0
    (slope, start), residual = np.polyfit(x, y, 1), y
    residual = y - (slope * x + start)
    spread = float(((x - x.mean()) ** 2).sum())
    return float(slope), float(np.sqrt((residual**2).sum() / (len(x) - 2) / spread))


def _kept(work: Path, pattern: str) -> tuple[int, int]:
    files = size = 0
    for place in work.glob(pattern):
        for path in [place, *place.rglob("*")]:
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                files, size = files + 1, size + status.st_size
    return files, size


def _memory() -> dict[str, int]:
    """Memory in use: of the driver, of Java's heap, of Spark's Python processes."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    spark._jvm.java.lang.System.gc()
    java = spark._jvm.java.lang.Runtime.getRuntime()
    me = psutil.Process()
    workers = 0
    for process in me.children(recursive=True):
        try:
            workers += 0 if process.name() == "java" else process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    heap = java.totalMemory() - java.freeMemory()
    return {"memory of the driver": me.memory_info().rss, "Java's heap": heap, "Python workers": workers}


def application(work: Path) -> Any:
    """The job: bad records aside, a function, a channel, windows, rolled files."""
    from drivetrain import Application, agg, sinks, sources, windows

    def doubled(n: int) -> int:
        return n * 2

    app = Application("soak")
    lines = app.read(
        sources.json(
            work / "in",
            schema="at timestamp, key string, n long",
            event_time="at",
            watch=True,
            on_bad_record="dead_letter",
        )
    )
    sized = lines.with_columns(doubled=doubled).cut()
    counts = sized.group_by("key").window(windows.tumbling("1 min"))
    counts.aggregate(count=agg.count(), total=agg.sum("doubled")).sink(
        sinks.parquet(work / "out", roll="1 min")
    )
    return app


class Watching:
    """Takes a sample every few seconds once the first batches are over, and stops the run in the end."""

    def __init__(self, work: Path, feeder: Feeder, minutes: float) -> None:
        self.samples = Samples()
        self._work, self._feeder = work, feeder
        self._batches: dict[str, int] = {}
        self._minutes = minutes
        self._began_s: float | None = None
        self._due_s = 0.0

    @property
    def batches(self) -> int:
        """How many batches the slowest fragment has done."""
        return min(self._batches.values(), default=0) if len(self._batches) > 1 else 0

    def on_event(self, event: Any) -> None:
        """Count batches."""
        from drivetrain.core.job.run_progress import FragmentProgressed

        if isinstance(event, FragmentProgressed):
            self._batches[event.fragment] = event.batch_id + 1

    def stop_requested(self) -> bool:
        if self._began_s is None:
            if self.batches < WARM_BATCHES:
                return False
            self._began_s = time.monotonic()
        now_s = time.monotonic() - self._began_s
        if now_s >= self._due_s:
            self._due_s = now_s + SAMPLE_S
            self.samples.take(self._work, now_s, self._feeder.lines)
        return now_s > self._minutes * 60


def soaked(work: Path, minutes: float) -> list[dict[str, Any]]:
    """Run the application and tell what grew."""
    from drivetrain import run

    peers.start_drivetrain(work, **SPARK)
    feeder = Feeder(work / "in")
    feeder.start()
    watching = Watching(work, feeder, minutes)
    run(application(work), peers.config(work, **SPARK), watching)
    feeder.done.set()
    print(f"{watching.batches} batches", file=sys.stderr)
    return watching.samples.rows()


def month_of_files(work: Path, files: int) -> dict[str, float]:
    """A file log with a month's files, a thousand a listing, and how it is opened again."""
    import pyarrow.fs as pafs

    from drivetrain.connectors.files.file_log import FileLog
    from drivetrain.runtime.file_locations import FoundFile

    directory = work / "file-log"
    log = FileLog(pafs.LocalFileSystem(), str(directory))
    began_s = time.perf_counter()
    for low in range(0, files, 1_000):
        names = (
            f"/data/in/2024/05/01/part-{n:012d}-{n * 7919 % 1_000_003:06x}.jsonl"
            for n in range(low, low + 1_000)
        )
        log.append([(FoundFile(name, 1_000_000), False) for name in names])
    filled_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    before = psutil.Process().memory_info().rss
    again = FileLog(pafs.LocalFileSystem(), str(directory))
    opened_s = time.perf_counter() - began_s
    held = again._seen.nbytes + 9 * len(again) + sum(t.nbytes for t in again._tables.values())
    return {
        "files": len(again),
        "append_us": filled_s / files * 1e6,
        "open_s": opened_s,
        "disk_bytes": sum(entry.stat().st_size for entry in os.scandir(directory)),
        "pieces": len(os.listdir(directory)),
        "held_bytes": held,
        "grown_bytes": psutil.Process().memory_info().rss - before,
    }


def as_text(rows: list[dict[str, Any]], log: dict[str, float], minutes: float) -> str:
    """The figures as a Markdown table and a sentence."""
    told = [
        "| | first | last | per million messages | in 30 days |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        shown = _count if row["what"] == "files" else _size
        unit = " files" if row["what"] == "files" else ""
        values = (row["first"], row["end"], row["per_million"], row["month"])
        told.append(f"| {row['part']} | " + " | ".join(f"{shown(value)}{unit}" for value in values) + " |")
    days, disk, held = log["files"] / 86_400, _size(log["disk_bytes"]), _size(log["held_bytes"])
    sentence = (
        f"{minutes:g} minutes, a file of {LINES_PER_FILE} lines every {PERIOD_S:g} s. A file log with "
        f"{log['files']:,.0f} files (one a second for {days:.0f} days): {disk} in {log['pieces']:.0f} files, "
        f"{held} held in memory, opened in {log['open_s']:.1f} s; {log['append_us']:.0f} µs to add a file."
    )
    return "\n".join([*told, "", sentence])


def _size(value: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} B"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def main() -> int:
    """Run what is asked for; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m benchmarks.soak",
    )
    parser.add_argument("--minutes", type=float, help="how long to run (10, with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="a minute, and a tenth of the files")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    minutes = given.minutes or (1.0 if given.quick else 10.0)
    with tempfile.TemporaryDirectory(prefix="drivetrain-soak-") as work:
        log = month_of_files(Path(work), MONTH_FILES // (10 if given.quick else 1))
        print("the file log is filled; the application starts", file=sys.stderr)
        rows = soaked(Path(work), minutes)
    print(json.dumps({"rows": rows, "log": log}) if given.json else as_text(rows, log, minutes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
