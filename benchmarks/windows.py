"""Ten-second windows per key over 5 million JSON events: parse → window → count and sum → Parquet.

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


def directory(scale: Scale) -> Path:
    return data.events(100_000 if scale.quick else 5_000_000)


def application(lines: Path, out: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("windows")
    events = app.read(sources.json(lines, schema=data.EVENT_SCHEMA, event_time="ts", max_disorder="5 s"))
    counts = events.group_by("key").window(windows.tumbling("10 s"))
    counts.aggregate(n=agg.count(), total=agg.sum("value")).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    run(application(data.events(WARM_EVENTS) / "lines", work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(directory(scale) / "lines", work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(name: str, scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(name)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        # Complete results, because an appending query would keep back the windows that are open at the end.
        events = spark.readStream.schema(data.EVENT_SCHEMA).json(str(lines)).withWatermark("ts", "5 seconds")
        counts = events.groupBy(F.window("ts", "10 seconds"), "key").agg(
            F.count("*").alias("n"), F.sum("value").alias("total")
        )
        rows = counts.select(F.col("window.start").alias("window_start"), "key", "n", "total")
        peers.overwrite_until_done(rows, out, checkpoint)

    count(data.events(WARM_EVENTS) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(directory(scale) / "lines", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_flink(scale: Scale, work: Path) -> dict[str, float]:
    return peers.run_flink("windows", directory(scale) / "lines", data.events(WARM_EVENTS) / "lines", work)


def check(scale: Scale, work: Path) -> None:
    expected = pq.read_table(directory(scale) / "expected.parquet")
    got = read_output(work / "out", expected.column_names)
    if "window_start" in got.column_names:
        got = got.append_column("start_ms", milliseconds(got["window_start"]))
    expect_equal(got.select(expected.column_names), expected, ["start_ms", "key"])


def prepare(scale: Scale) -> None:
    data.events(WARM_EVENTS)
    directory(scale)


JOB = Job(
    name="windows",
    title="10 s windows per key over 5 million JSON events",
    unit="events/s",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work)),
        Contender(
            peers.DEFAULTS, lambda scale, work: run_pyspark(peers.DEFAULTS, scale, work), reference=True
        ),
        Contender(peers.FLINK, run_flink, peers.flink_missing, reference=True),
    ),
    prepare=prepare,
    units=lambda scale: data.total(directory(scale), "n"),
    check=check,
    goals={peers.TUNED: 0.95, peers.DEFAULTS: 1.2, peers.FLINK: 1.0},
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
