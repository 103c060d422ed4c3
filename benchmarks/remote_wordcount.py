"""Word count with the state in an object store, beside the disk, and PySpark's checkpoint there.

The job of `wordcount`, 200 MB of text, in batches of a file of 25 MB, so that there is something to write at
each. Results go to this machine's disk in all cases.

    python -m benchmarks.remote_wordcount [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import data, peers, wordcount
from benchmarks.measure import Job, main
from benchmarks.remote_store import COLUMNS, RemoteJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def count(spark: SparkSession, lines: Path, out: Path, checkpoint: str) -> int:
    """The job in PySpark; how many batches it took."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
    words = text.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''")
    return peers.overwrite_until_done(words.groupBy("word").count(), out, checkpoint)


JOB = Job(
    name="remote_wordcount",
    title="A state in an object store: word count of 200 MB of text in batches of 25 MB",
    unit="words/s",
    contenders=RemoteJob(
        "words",
        warm=lambda _scale: data.text(wordcount.WARM_MB) / "lines",
        input=lambda scale: wordcount.directory(scale) / "lines",
        batch=lambda _scale: f"{data.TEXT_FILE_BYTES + 1_000_000} B",
        application=wordcount.application,
        pyspark=count,
    ).contenders(),
    prepare=wordcount.prepare,
    units=wordcount.JOB.units,
    check=wordcount.check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
