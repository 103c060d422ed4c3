"""When the state of a join forgets messages that cannot match any more: its results do not depend on it."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness, at, events, has_change
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain import Application
from drivetrain.crash_points import CrashPoint, armed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ts timestamp, key string, n bigint"
STEP_S, NEAR_S, BATCHES = 5, 40, 26


def batches(spark: SparkSession, directory: Path, how: str) -> tuple[Counter[tuple[int, ...]], list[int]]:
    """The pairs of a join of a stream with itself, of one message in each batch, and how many messages its
    state forgot in each batch."""

    def read(time: str, number: str) -> DataFrame:
        stream = spark.readStream.schema("at timestamp, n bigint").option("maxFilesPerTrigger", 1)
        named = stream.parquet(str(directory / "in")).selectExpr(f"at AS {time}", f"n AS {number}")
        return named.withWatermark(time, "0 seconds").withColumn(f"k_{number}", F.lit("a"))

    (directory / "in").mkdir()
    for n in range(BATCHES):
        moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=n * STEP_S)
        message = pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC")), "n": [n]})
        pq.write_table(message, directory / "in" / f"{n:02}.parquet")
        os.utime(directory / "in" / f"{n:02}.parquet", (n, n))  # Spark takes them in the order of their times
    near = f"k_n = k_m AND b BETWEEN a - INTERVAL {NEAR_S} SECONDS AND a + INTERVAL {NEAR_S} SECONDS"
    joined = read("a", "n").join(read("b", "m"), F.expr(near), how).select("n", "m")
    pairs: Counter[tuple[int, ...]] = Counter()
    writer = joined.writeStream.option("checkpointLocation", str(directory / "state"))
    writer = writer.foreachBatch(lambda df, _: pairs.update(tuple(row) for row in df.collect()))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(300)
    progress = query.recentProgress
    return pairs, [int(of["stateOperators"][0]["numRowsRemoved"]) for of in progress if of["stateOperators"]]


def test_an_inner_join_forgets_when_the_clock_has_moved_by_a_quarter_of_what_it_needs(
    spark: SparkSession, tmp_path: Path
) -> None:
    pairs, forgotten = batches(spark, tmp_path, "inner")
    numbers = range(BATCHES)
    assert pairs == Counter((n, m) for n in numbers for m in numbers if abs(n - m) * STEP_S <= NEAR_S)
    at_once = [index for index, count in enumerate(forgotten) if count]
    assert at_once, "Spark keeps the newest twenty reports only, of which the last ones forget"
    steps = [later - before for before, later in pairwise(at_once)]
    wanted = NEAR_S // 4 // STEP_S if has_change(spark, "ForgetJoinedLater") else 1
    assert min(steps) == max(steps) == wanted
    assert {forgotten[index] for index in at_once[1:]} == {2 * wanted}, "none is kept for good"


def test_an_outer_join_forgets_in_each_batch_as_its_results_are_what_it_forgets(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, forgotten = batches(spark, tmp_path, "leftOuter")
    at_once = [index for index, count in enumerate(forgotten) if count]
    assert at_once == list(range(at_once[0], len(forgotten)))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_an_inner_join_does_not_empty_its_state_after_the_end(
    drive: Harness, spark: SparkSession, how: str
) -> None:
    rows = [(at(n * 1000), "ab"[n % 2], n) for n in range(20)]
    app = Application("ended")
    one, other = events(app, rows, SCHEMA).select("key", "n"), events(app, rows, SCHEMA).select("key", m="n")
    drive.sink(one.join(other, on="key", within="1 s", how=how, name="pairs"))  # type: ignore[arg-type]
    result = drive.run(app)
    assert Counter((row["n"], row["m"]) for row in drive.rows()) == Counter((n, n) for n in range(20))
    (fragment,) = result.fragments
    assert (fragment.figures.state_rows == 0) == (how == "left" or not has_change(spark, "ForgetJoinedLater"))


def test_an_inner_join_that_dies_between_two_deletions_gives_each_pair_once(drive: Harness) -> None:
    rows = [(at(n * 1000), "ab"[n % 2], n) for n in range(240)]

    def app() -> Application:
        made = Application("dies")
        one, other = (
            events(made, rows, SCHEMA).select("key", "n"),
            events(made, rows, SCHEMA).select("key", m="n"),
        )
        drive.sink(one.join(other, on="key", within="12 s", name="pairs"))
        return made

    def dies(point: CrashPoint, times: int) -> None:
        left = [times]

        def die(at_point: CrashPoint) -> None:
            left[0] -= at_point is point
            if left[0] == 0:
                raise RuntimeError("died")

        with armed(die), pytest.raises(Exception, match="died"):
            drive.run(app(), run__max_batch_bytes="1 KiB")

    dies(CrashPoint.AFTER_SINK, 3)
    dies(CrashPoint.BEFORE_COMMIT, 2)
    drive.run(app(), run__max_batch_bytes="1 KiB")
    near = {(n, m) for n in range(240) for m in range(240) if (n - m) % 2 == 0 and abs(n - m) <= 12}
    assert Counter((row["n"], row["m"]) for row in drive.rows()) == Counter(near)
