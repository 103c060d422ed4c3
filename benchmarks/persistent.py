"""A state for each word of 200 MB of text, kept in Python: a persistent Task, and what else there is.

Every contender splits lines natively and ends with the count of every word, by word. The persistent Task is
measured with a built-in aggregation, with a monoid of the user's own, and with an `on_next` that looks at
every message. The native aggregate needs no Python at all; `transformWithStateInPandas` is the same logic
written per key as its documentation does, on a twentieth of the text, because it has a floor for each key:
its words per second are those of that.

    python -m benchmarks.persistent [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks import data, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, read_output

if TYPE_CHECKING:
    import pandas as pd

WARM_MB = 1
OWN_MONOID = "drivetrain, own monoid"
EVERY_MESSAGE = "drivetrain, on_next"
PER_KEY = "transformWithStateInPandas"


def megabytes(scale: Scale) -> int:
    return 5 if scale.quick else 200


def application(kind: str, lines: Path, out: Path) -> Any:
    """The job as a Drivetrain application, with one of three persistent Tasks."""
    from drivetrain import Application, F, Monoid, PersistentTask, State, agg, col, sinks, sources

    class Counted(Monoid[str, int]):
        def zero(self) -> int:
            return 0

        def add(self, state: int, message: str) -> int:
            return state + 1

        def plus(self, left: int, right: int) -> int:
            return left + right

        def result(self, state: int) -> int:
            return state

    class Words(PersistentTask[str, tuple[str, int]]):
        key = "word"
        state = State(agg.count())

        def on_change(self, word: str, count: int) -> Iterable[tuple[str, int]]:
            return [(word, count)]

    class OwnMonoid(Words):
        state = State(Counted())

    class EveryMessage(Words):
        def on_next(self, message: str) -> None:  # type: ignore[override]
            self.state.update(message)

    tasks = {OURS: Words, OWN_MONOID: OwnMonoid, EVERY_MESSAGE: EveryMessage}
    app = Application("persistent")
    text = app.read(sources.text(lines))
    words = text.select(word=F.explode(F.split(F.col("value"), r"\s+"))).filter(col("word") != "")
    words.process(tasks[kind], name="counts").sink(sinks.parquet(out))
    return app


def run_drivetrain(kind: str, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    warm = application(kind, data.text(WARM_MB) / "lines", work / "warm-out")
    run(warm, peers.config(work / "warm"))
    with Timed() as timed:
        result = run(
            application(kind, data.text(megabytes(scale)) / "lines", work / "out"), peers.config(work)
        )
    return timed.figures(start_s=start_s, batches=result.batches)


def run_native(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        text = spark.readStream.text(str(lines))
        words = text.select(F.explode(F.split("value", r"\s+")).alias("key")).where("key != ''")
        counted = words.groupBy("key").agg(F.count("*").alias("value"))
        peers.overwrite_until_done(counted, out, checkpoint)

    count(data.text(WARM_MB) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(data.text(megabytes(scale)) / "lines", work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_per_key(scale: Scale, work: Path) -> dict[str, float]:
    """A twentieth of the text; `seconds` is for all of it, as if it went on like that."""
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    class Counts(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n bigint")

        def handleInputRows(  # noqa: N802 - Spark's own name
            self, key: Any, rows: Iterator[pd.DataFrame], timers: Any
        ) -> Iterator[pd.DataFrame]:
            known = self.count.get()
            count = (known[0] if known is not None else 0) + sum(len(frame) for frame in rows)
            self.count.update((count,))
            yield pd.DataFrame({"key": [key[0]], "value": [count]})

        def close(self) -> None:
            """Nothing is open."""

    spark, start_s = peers.start_pyspark(peers.TUNED)

    def count(lines: Path, out: Path, checkpoint: Path) -> None:
        text = spark.readStream.text(str(lines))
        words = text.select(F.explode(F.split("value", r"\s+")).alias("key")).where("key != ''")
        made = words.groupBy("key").transformWithStateInPandas(
            Counts(), "key string, value bigint", "append", "None"
        )
        written = made.writeStream.foreachBatch(
            lambda batch, _: batch.write.mode("append").parquet(str(out))
        ).option("checkpointLocation", str(checkpoint))
        written.trigger(availableNow=True).start().awaitTermination()

    part = max(1, megabytes(scale) // 20)
    count(data.text(WARM_MB) / "lines", work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        count(data.text(part) / "lines", work / "out", work / "checkpoint")
    (work / "megabytes").write_text(str(part))
    figures = timed.figures(start_s=start_s)
    share = data.total(data.text(megabytes(scale)), "count") / data.total(data.text(part), "count")
    return {**figures, "seconds": figures["seconds"] * share, "measured_s": figures["seconds"]}


def check(scale: Scale, work: Path) -> None:
    part = work / "megabytes"
    size = int(part.read_text()) if part.exists() else megabytes(scale)
    found = read_output(work / "out", ["key", "value"])
    newest = found.group_by("key").aggregate([("value", "max")]).rename_columns(["word", "count"])
    expect_equal(
        newest, pq.read_table(data.text(size) / "expected.parquet", columns=["word", "count"]), ["word"]
    )


def prepare(scale: Scale) -> None:
    for size in (WARM_MB, megabytes(scale), max(1, megabytes(scale) // 20)):
        data.read_files(data.text(size))


JOB = Job(
    name="persistent",
    title="A persistent state for each word of 200 MB of text",
    unit="words/s",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain(OURS, scale, work)),
        Contender(OWN_MONOID, lambda scale, work: run_drivetrain(OWN_MONOID, scale, work)),
        Contender(
            EVERY_MESSAGE, lambda scale, work: run_drivetrain(EVERY_MESSAGE, scale, work), reference=True
        ),
        Contender(peers.TUNED, run_native),
        Contender(PER_KEY, run_per_key, reference=True),
    ),
    prepare=prepare,
    units=lambda scale: data.total(data.text(megabytes(scale)), "count"),
    check=check,
    goals={peers.TUNED: 1 / 3, PER_KEY: 5.0},
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
