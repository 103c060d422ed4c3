"""Session windows per key over 5 million JSON events: parse → sessions with a gap of 5 s → count and sum.

python -m benchmarks.field_sessions [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from benchmarks import data, field_data, field_peers, field_topics, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, milliseconds, read_output

WARM_EVENTS = 20_000
COLUMNS = ["start_ms", "end_ms", "key", "n", "total"]


def directory(scale: Scale) -> Path:
    return field_data.clicks((100_000 if scale.quick else 5_000_000) * scale.times)


def both(scale: Scale) -> tuple[Path, Path]:
    return directory(scale), field_data.clicks(WARM_EVENTS)


def application(lines: Path, out: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, agg, sinks, sources, windows

    app = Application("sessions")
    clicks = app.read(sources.json(lines, schema=data.EVENT_SCHEMA, event_time="ts", max_disorder="5 s"))
    sessions = clicks.group_by("key").window(windows.session(f"{field_data.GAP_MS} ms"))
    sessions.aggregate(n=agg.count(), total=agg.sum("value")).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    lines, warm = (each / "lines" for each in both(scale))
    _, start_s = peers.start_drivetrain(work)
    run(application(warm, work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(lines, work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    lines, warm = (each / "lines" for each in both(scale))
    spark, start_s = peers.start_pyspark(peers.TUNED)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        # Complete results, because an appending query would keep back the sessions that are open at the end.
        reader = spark.readStream.schema(data.EVENT_SCHEMA).format("json")
        clicks = reader.load(str(lines)).withWatermark("ts", "5 seconds")
        sessions = clicks.groupBy(
            F.session_window("ts", f"{field_data.GAP_MS} milliseconds").alias("session"), "key"
        ).agg(F.count("*").alias("n"), F.sum("value").alias("total"))
        bounds = [F.col("session.start").alias("window_start"), F.col("session.end").alias("window_end")]
        peers.overwrite_until_done(sessions.select(*bounds, "key", "n", "total"), out, checkpoint)

    count(warm, work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(lines, work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def given(scale: Scale, _work: Path) -> dict[str, Any]:
    whole, warm = both(scale)
    return {
        "lines": str(whole / "lines"),
        "units": JOB.units(scale),
        "warm_lines": str(warm / "lines"),
        "warm_units": WARM_EVENTS,
        "gap_ms": field_data.GAP_MS,
    }


def quix() -> Contender:
    """It sends each session anew with every event, and does not take back what has become part of another."""
    peer = field_peers.on_kafka(field_peers.QUIX, "sessions", given, both)

    def run(scale: Scale, work: Path) -> dict[str, float]:
        figures = peer.run(scale, work)
        rows = work / "out" / "rows.csv"
        longest(pl.read_csv(rows, has_header=False, new_columns=COLUMNS)).write_csv(
            rows, include_header=False
        )
        return figures

    return replace(peer, run=run)


def longest(sessions: pl.DataFrame) -> pl.DataFrame:
    """Those sessions that are not part of another one of the same key."""
    by_start = sessions.sort("key", "start_ms", "end_ms", descending=[False, False, True])
    latest_before = pl.col("end_ms").cum_max().shift(1).over("key")
    return by_start.filter((pl.col("end_ms") > latest_before).fill_null(True))


def prepare(scale: Scale) -> None:
    little = Scale(quick=True, times=scale.times)
    field_topics.fill(*both(scale), directory(little))


def check(scale: Scale, work: Path) -> None:
    expected = pq.read_table(directory(scale) / "expected.parquet")
    got = read_output(work / "out", COLUMNS)
    for bound in ("start", "end"):
        if f"window_{bound}" in got.column_names:
            got = got.append_column(f"{bound}_ms", milliseconds(got[f"window_{bound}"]))
    expect_equal(got.select(COLUMNS), expected, ["start_ms", "key"])


JOB = field_peers.job(
    Job(
        name="sessions",
        title="Sessions per key over 5 million JSON events",
        unit="events/s",
        contenders=(
            Contender(OURS, run_drivetrain),
            Contender(peers.TUNED, run_pyspark),
            field_peers.in_flink(peers.FLINK, "sessions", given),
        ),
        prepare=prepare,
        units=lambda scale: data.total(directory(scale), "n"),
        check=check,
    ),
    field_peers.in_python(field_peers.BYTEWAX, "sessions", given),
    field_peers.in_python(field_peers.PATHWAY, "sessions", given),
    field_peers.in_flink(field_peers.FLINK_STREAM, "sessions", given),
    field_peers.on_kafka(field_peers.KAFKA_STREAMS, "sessions", given, both),
    quix(),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
