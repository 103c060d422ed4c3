"""Two windows in a row with the state in an object store, beside the disk, and PySpark's checkpoint there.

Counts of ten seconds per key over five million JSON events, and of these the largest of each minute, in
batches of a file. PySpark can only append the results of two windows in a row, and keeps back those that are
open at the end. So its input ends with one more file, of a much later event, whose watermark closes them.

    python -m benchmarks.remote_windows [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks import data, windows
from benchmarks.measure import Job, Scale, WrongResultError, main
from benchmarks.remote_store import COLUMNS, RemoteJob
from benchmarks.results import read_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def application(lines: Path, out: Path) -> Any:
    from drivetrain import Application, agg, sinks, sources
    from drivetrain import windows as w

    app = Application("chained")
    events = app.read(sources.json(lines, schema=data.EVENT_SCHEMA, event_time="ts", max_disorder="5 s"))
    counts = events.group_by("key").window(w.tumbling("10 s")).aggregate(n=agg.count())
    largest = counts.group_by("key").window(w.tumbling("1 min")).aggregate(step="largest", most=agg.max("n"))
    largest.select("window_start", "key", "most").sink(sinks.parquet(out))
    return app


def one_file(scale: Scale) -> str:
    files = (windows.directory(scale) / "lines").iterdir()
    return f"{max(file.stat().st_size for file in files)} B"


def closed(lines: Path) -> str:
    """The input with one more event, which closes all windows, as a pattern for PySpark."""
    file = lines.with_name("closing") / "part.jsonl"
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_text('{"ts":"2100-01-01T00:00:00Z","key":"none","value":0}\n')
    return f"{lines.parent}/{{{lines.name},{file.parent.name}}}"


def count(spark: SparkSession, lines: Path, out: Path, checkpoint: str) -> int:
    """The job in PySpark; how many batches it took."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    reader = spark.readStream.schema(data.EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
    events = reader.json(closed(lines)).withWatermark("ts", "5 seconds")
    counts = events.groupBy(F.window("ts", "10 seconds"), "key").agg(F.count("*").alias("n"))
    minute = F.window(F.window_time("window"), "1 minute")
    largest = counts.groupBy(minute, "key").agg(F.max("n").alias("most"))
    rows = largest.select(F.col("window.start").alias("window_start"), "key", "most")
    writer = rows.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).format("parquet").start(str(out))
    query.awaitTermination()
    return len(query.recentProgress)


def check(scale: Scale, work: Path) -> None:
    """Compare with the largest counts by Polars."""
    counts = pl.read_parquet(windows.directory(scale) / "expected.parquet")
    minutes = counts.with_columns(minute=pl.col("start_ms") // 60_000 * 60_000)
    expected = minutes.group_by("minute", "key").agg(most=pl.col("n").max())
    found = pl.DataFrame(read_output(work / "out", ["window_start", "key", "most"]))
    found = found.select(pl.col("window_start").dt.epoch("ms").alias("minute"), "key", "most")
    order = ["minute", "key"]
    if not expected.sort(order).equals(found.cast(dict(expected.schema)).sort(order)):
        raise WrongResultError(f"{len(found):,} windows, not those of Polars' {len(expected):,}")


JOB = Job(
    name="remote_windows",
    title="A state in an object store: two windows in a row over five million JSON events",
    unit="events/s",
    contenders=RemoteJob(
        "windows",
        warm=lambda _scale: data.events(windows.WARM_EVENTS) / "lines",
        input=lambda scale: windows.directory(scale) / "lines",
        batch=one_file,
        application=application,
        pyspark=count,
    ).contenders(),
    prepare=lambda scale: (data.events(windows.WARM_EVENTS), windows.directory(scale)),
    units=windows.JOB.units,
    check=check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
