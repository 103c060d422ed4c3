"""The word count with the split as a plain Python function, over 50 MB of text.

Ours is `lines.flat_map(split)`. The peers are the two ways in which one would write it by hand for speed,
with Drivetrain's Spark settings: a user-defined function over Arrow (`udf(..., useArrow=True)`) that returns
an array to explode, and a function over Arrow batches (`mapInArrow`). The better of them is the one to beat.

    python -m benchmarks.python_split [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, read_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WARM_MB = 1
ARROW_UDF = "pyspark, Arrow udf"
MAP_IN_ARROW = "pyspark, mapInArrow"


def directory(scale: Scale) -> Path:
    return data.text(5 if scale.quick else 50)


def split(line: str) -> list[str]:
    """The user's function."""
    return line.split()


def application(lines: Path, out: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, agg, sinks, sources

    app = Application("python_split")
    words = app.read(sources.text(lines)).flat_map(split, returns=str)
    words.group_by(word="value").aggregate(count=agg.count()).sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    run(application(data.text(WARM_MB) / "lines", work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(directory(scale) / "lines", work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def words_by_arrow_udf(lines: DataFrame) -> DataFrame:
    """One word per row, by a function of one line whose arguments and results travel as Arrow."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    by_line = F.udf(split, "array<string>", useArrow=True)
    return lines.select(F.explode(by_line("value")).alias("word"))


def words_by_map_in_arrow(lines: DataFrame) -> DataFrame:
    """One word per row, by a function of Arrow batches."""

    def by_batch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = [word for line in batch.column(0).to_pylist() for word in split(line)]
            yield pa.RecordBatch.from_arrays([pa.array(words, pa.string())], names=["word"])

    return lines.mapInArrow(by_batch, "word string")


def run_pyspark(name: str, scale: Scale, work: Path) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(peers.TUNED)
    words_of = {ARROW_UDF: words_by_arrow_udf, MAP_IN_ARROW: words_by_map_in_arrow}[name]

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        words = words_of(spark.readStream.text(str(lines)))
        peers.overwrite_until_done(words.groupBy("word").count(), out, checkpoint)

    count(data.text(WARM_MB) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(directory(scale) / "lines", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def check(scale: Scale, work: Path) -> None:
    expected = pq.read_table(directory(scale) / "expected.parquet")
    expect_equal(read_output(work / "out", expected.column_names), expected, ["word"])


def prepare(scale: Scale) -> None:
    data.read_files(data.text(WARM_MB), directory(scale))


JOB = Job(
    name="python_split",
    title="Word count of 50 MB of text, split by a Python function",
    unit="words/s",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(ARROW_UDF, lambda scale, work: run_pyspark(ARROW_UDF, scale, work)),
        Contender(MAP_IN_ARROW, lambda scale, work: run_pyspark(MAP_IN_ARROW, scale, work)),
    ),
    prepare=prepare,
    units=lambda scale: data.total(directory(scale), "count"),
    check=check,
    goals={ARROW_UDF: 1.0, MAP_IN_ARROW: 1.0},
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
