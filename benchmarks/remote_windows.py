"""Two windows in a row with the state in an object store, beside the disk, and PySpark's checkpoint there.

Counts of ten seconds per key over five million JSON events, and of these the largest of each minute, in
batches of a file. PySpark appends, and so keeps back the windows that are open at the end; ours shows them.
So its rows have to be among the expected ones, and may be fewer by those of the last minutes.

    python -m benchmarks.remote_windows [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from benchmarks import data, peers, windows
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, WrongResultError, main
from benchmarks.remote_store import (
    COLUMNS,
    IN_STORE,
    LOCAL,
    ON_DISK,
    remote_config,
    spark_requests,
    spark_settings,
    store_of,
    with_requests,
)
from benchmarks.results import read_output
from drivetrain.config import Config

OPEN_AT_THE_END_MS = 540_000
"""How much event time may be in windows that PySpark keeps back: a clock moves once in a batch of 100 s."""


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


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    with remote_config(work, "windows", run__max_batch_bytes=one_file(scale)) as (config, requests):
        return with_requests(_run(scale, work, config), requests)


def run_local(scale: Scale, work: Path) -> dict[str, float]:
    sets = {"state.dir": str(work / "state"), "run.max-batch-bytes": one_file(scale)}
    return _run(scale, work, Config.load(None, {}, sets))


def _run(scale: Scale, work: Path, config: Config) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    warm = data.events(windows.WARM_EVENTS) / "lines"
    run(application(warm, work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(windows.directory(scale) / "lines", work / "out"), config)
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    with store_of(work) as store:
        return _pyspark(scale, work, "s3a://states/windows", spark_settings(store))


def _pyspark(scale: Scale, work: Path, checkpoint: str, conf: dict[str, str]) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED, **conf)

    def count(lines: Path, out: Path, place: str) -> int:
        reader = spark.readStream.schema(data.EVENT_SCHEMA).option("maxFilesPerTrigger", 1)
        events = reader.json(str(lines)).withWatermark("ts", "5 seconds")
        counts = events.groupBy(F.window("ts", "10 seconds"), "key").agg(F.count("*").alias("n"))
        minute = F.window(F.window_time("window"), "1 minute")
        largest = counts.groupBy(minute, "key").agg(F.max("n").alias("most"))
        rows = largest.select(F.col("window.start").alias("window_start"), "key", "most")
        writer = rows.writeStream.outputMode("append").option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).format("parquet").start(str(out))
        query.awaitTermination()
        return len(query.recentProgress)

    warm = data.events(windows.WARM_EVENTS) / "lines"
    count(warm, work / "warm-out", str(work / "warm-checkpoint"))
    before = spark_requests(spark) if conf else None
    with Timed() as timed:
        batches = count(windows.directory(scale) / "lines", work / "out", checkpoint)
    (work / "appended").touch()
    figures = timed.figures(start_s=start_s, batches=batches)
    return figures if before is None else with_requests(figures, spark_requests(spark) - before)


def check(scale: Scale, work: Path) -> None:
    """Compare with the largest counts by Polars, as far as the contender can have them."""
    counts = pl.read_parquet(windows.directory(scale) / "expected.parquet")
    minutes = counts.with_columns(minute=pl.col("start_ms") // 60_000 * 60_000)
    expected = minutes.group_by("minute", "key").agg(most=pl.col("n").max())
    found = pl.DataFrame(read_output(work / "out", ["window_start", "key", "most"]))
    found = found.select(pl.col("window_start").dt.epoch("ms").alias("minute"), "key", "most")
    order = ["minute", "key"]
    if (work / "appended").exists():
        closed_ms = expected["minute"].max() - OPEN_AT_THE_END_MS  # type: ignore[operator]
        wanted = expected.join(found, on=[*order, "most"], how="semi")
        is_right = len(wanted) == len(found) and not len(
            expected.filter(pl.col("minute") < closed_ms).join(found, on=order, how="anti")
        )
    else:
        is_right = expected.sort(order).equals(found.cast(dict(expected.schema)).sort(order))
    if not is_right:
        raise WrongResultError(f"{len(found):,} windows, not those of Polars' {len(expected):,}")


JOB = Job(
    name="remote_windows",
    title="A state in an object store: two windows in a row over five million JSON events",
    unit="events/s",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(LOCAL, run_local),
        Contender(IN_STORE, run_pyspark),
        Contender(ON_DISK, lambda scale, work: _pyspark(scale, work, str(work / "checkpoint"), {})),
    ),
    prepare=lambda scale: (data.events(windows.WARM_EVENTS), windows.directory(scale)),
    units=windows.JOB.units,
    check=check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
