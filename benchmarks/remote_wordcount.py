"""Word count with the state in an object store, beside the disk, and PySpark's checkpoint there.

The job of `wordcount`, 200 MB of text, in batches of a file of 25 MB, so that there is something to write at
each. Results go to this machine's disk in all cases.

    python -m benchmarks.remote_wordcount [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import data, peers, wordcount
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
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
from drivetrain.config import Config

BATCH = {"run.max-batch-bytes": f"{data.TEXT_FILE_BYTES + 1_000_000} B"}


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    with remote_config(work, "words", run__max_batch_bytes=BATCH["run.max-batch-bytes"]) as (
        config,
        requests,
    ):
        return with_requests(_run(scale, work, config), requests)


def run_local(scale: Scale, work: Path) -> dict[str, float]:
    return _run(scale, work, Config.load(None, {}, {"state.dir": str(work / "state"), **BATCH}))


def _run(scale: Scale, work: Path, config: Config) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    warm = data.text(wordcount.WARM_MB) / "lines"
    run(wordcount.application(warm, work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(wordcount.application(wordcount.directory(scale) / "lines", work / "out"), config)
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    with store_of(work) as store:
        return _pyspark(scale, work, "s3a://states/words", spark_settings(store))


def _pyspark(scale: Scale, work: Path, checkpoint: str, conf: dict[str, str]) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED, **conf)

    def count(lines: Path, out: Path, place: str) -> int:
        text = spark.readStream.option("maxFilesPerTrigger", 1).text(str(lines))
        words = text.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word != ''")
        return peers.overwrite_until_done(words.groupBy("word").count(), out, place)

    warm = data.text(wordcount.WARM_MB) / "lines"
    count(warm, work / "warm-out", str(work / "warm-checkpoint"))
    before = spark_requests(spark) if conf else None
    with Timed() as timed:
        batches = count(wordcount.directory(scale) / "lines", work / "out", checkpoint)
    figures = timed.figures(start_s=start_s, batches=batches)
    return figures if before is None else with_requests(figures, spark_requests(spark) - before)


JOB = Job(
    name="remote_wordcount",
    title="A state in an object store: word count of 200 MB of text in batches of 25 MB",
    unit="words/s",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(LOCAL, run_local),
        Contender(IN_STORE, run_pyspark),
        Contender(ON_DISK, lambda scale, work: _pyspark(scale, work, str(work / "checkpoint"), {})),
    ),
    prepare=wordcount.prepare,
    units=wordcount.JOB.units,
    check=wordcount.check,
    columns=(("seconds", "seconds"), ("cpu_s", "CPU s"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
