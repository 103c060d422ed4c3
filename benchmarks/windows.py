"""Ten-second windows per key over 5 million events: parse → window → count and sum → Parquet.

The events are JSON lines here, and in files of CSV and Parquet in `windows_csv` and `windows_parquet`.

    python -m benchmarks.windows [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, milliseconds, read_output

WARM_EVENTS = 20_000


def directory(scale: Scale, kind: data.EventFiles = "json") -> Path:
    return data.events((100_000 if scale.quick else 5_000_000) * scale.times, kind)


def application(lines: Path, out: Path, kind: data.EventFiles = "json") -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, agg, sinks, sources, windows

    read = {"json": sources.json, "csv": sources.csv}
    app = Application("windows")
    if kind == "parquet":
        events = app.read(sources.parquet(lines, event_time="ts", max_disorder="5 s"))
    else:
        events = app.read(read[kind](lines, schema=data.EVENT_SCHEMA, event_time="ts", max_disorder="5 s"))
    counts = events.group_by("key").window(windows.tumbling("10 s"))
    counts.aggregate(n=agg.count(), total=agg.sum("value")).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path, kind: data.EventFiles = "json") -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    warm = data.events(WARM_EVENTS, kind) / "lines"
    run(application(warm, work / "warm-out", kind), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(directory(scale, kind) / "lines", work / "out", kind), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(name: str, scale: Scale, work: Path, kind: data.EventFiles = "json") -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(name)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        # Complete results, because an appending query would keep back the windows that are open at the end.
        reader = spark.readStream.schema(data.EVENT_SCHEMA).format(kind).option("header", value=True)
        events = reader.load(str(lines)).withWatermark("ts", "5 seconds")
        counts = events.groupBy(F.window("ts", "10 seconds"), "key").agg(
            F.count("*").alias("n"), F.sum("value").alias("total")
        )
        rows = counts.select(F.col("window.start").alias("window_start"), "key", "n", "total")
        peers.overwrite_until_done(rows, out, checkpoint)

    count(data.events(WARM_EVENTS, kind) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(directory(scale, kind) / "lines", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_flink(scale: Scale, work: Path) -> dict[str, float]:
    return peers.run_flink("windows", directory(scale) / "lines", data.events(WARM_EVENTS) / "lines", work)


def check(scale: Scale, work: Path, kind: data.EventFiles) -> None:
    expected = pq.read_table(directory(scale, kind) / "expected.parquet")
    got = read_output(work / "out", expected.column_names)
    if "window_start" in got.column_names:
        got = got.append_column("start_ms", milliseconds(got["window_start"]))
    expect_equal(got.select(expected.column_names), expected, ["start_ms", "key"])


def job(name: str, title: str, kind: data.EventFiles, *others: Contender) -> Job:
    """The job over files of one kind; `others` take part besides Spark's contenders."""

    def prepare(scale: Scale) -> None:
        data.read_files(data.events(WARM_EVENTS, kind), directory(scale, kind))

    return Job(
        name=name,
        title=title,
        unit="events/s",
        contenders=(
            Contender(OURS, lambda scale, work: run_drivetrain(scale, work, kind)),
            Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work, kind)),
            *others,
        ),
        prepare=prepare,
        units=lambda scale: data.total(directory(scale, kind), "n"),
        check=lambda scale, work: check(scale, work, kind),
        goals={peers.TUNED: 0.95, peers.DEFAULTS: 1.2, peers.FLINK: 1.0},
        grows=True,
    )


JOB = job(
    "windows",
    "10 s windows per key over 5 million JSON events",
    "json",
    Contender(peers.DEFAULTS, lambda scale, work: run_pyspark(peers.DEFAULTS, scale, work), reference=True),
    Contender(peers.FLINK, run_flink, peers.flink_missing, reference=True),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
