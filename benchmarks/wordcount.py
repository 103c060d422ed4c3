"""Word count over 200 MB of text: files → split → count by word → Parquet.

Everything runs in Spark expressions (or Flink SQL); `python_split` is the same with a Python function.

    python -m benchmarks.wordcount [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, read_output

WARM_MB = 1


def directory(scale: Scale) -> Path:
    return data.text((5 if scale.quick else 200) * scale.times)


def application(lines: Path, out: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, F, agg, col, sinks, sources

    app = Application("wordcount")
    text = app.read(sources.text(lines))
    words = text.select(word=F.explode(F.split(F.col("value"), r"\s+"))).filter(col("word") != "")
    words.group_by("word").aggregate(count=agg.count()).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    run(application(data.text(WARM_MB) / "lines", work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(directory(scale) / "lines", work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(name: str, scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(name)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        text = spark.readStream.text(str(lines))
        words = text.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''")
        peers.overwrite_until_done(words.groupBy("word").count(), out, checkpoint)

    count(data.text(WARM_MB) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(directory(scale) / "lines", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_flink(scale: Scale, work: Path) -> dict[str, float]:
    return peers.run_flink("wordcount", directory(scale) / "lines", data.text(WARM_MB) / "lines", work)


def check(scale: Scale, work: Path) -> None:
    expected = pq.read_table(directory(scale) / "expected.parquet")
    expect_equal(read_output(work / "out", expected.column_names), expected, ["word"])


def prepare(scale: Scale) -> None:
    data.read_files(data.text(WARM_MB), directory(scale))


JOB = Job(
    name="wordcount",
    title="Word count of 200 MB of text",
    unit="words/s",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(peers.TUNED, scale, work)),
        Contender(
            peers.DEFAULTS, lambda scale, work: run_pyspark(peers.DEFAULTS, scale, work), reference=True
        ),
        Contender(peers.FLINK, run_flink, peers.flink_missing, reference=True),
    ),
    prepare=prepare,
    units=lambda scale: data.total(directory(scale), "count"),
    check=check,
    goals={peers.TUNED: 0.95, peers.DEFAULTS: 1.2},
    grows=True,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
