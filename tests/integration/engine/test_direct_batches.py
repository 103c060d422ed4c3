"""Batches of Parquet files: Spark reads the columns that the branches use, and counts stay right."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from harness import Harness

from drivetrain import Application, agg, col, sinks, sources, windows
from drivetrain.errors import UserError
from drivetrain.spark.batch import direct_batches, spark_engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from drivetrain.spark.prepare.trunk import Trunk

ROWS = 1_000


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each batch was read from: the plan of a batch that keeps one column of it."""
    plans: list[str] = []

    def noted(*args: Any) -> DataFrame:
        df = direct_batches.direct_batch(*args)
        plans.append(df.select("k")._jdf.queryExecution().executedPlan().toString())
        return df

    monkeypatch.setattr(spark_engine, "direct_batch", noted)
    return plans


def files(directory: Path, *, last_time: dt.datetime | None = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)) -> Path:
    """Five files, whose columns are a key, a text and a time."""
    directory.mkdir()
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    for number in range(5):
        ids = range(number * ROWS // 5, (number + 1) * ROWS // 5)
        times: list[dt.datetime | None] = [begin + dt.timedelta(seconds=id) for id in ids]
        if number == 4:
            times[-1] = last_time
        columns = {"k": list(ids), "text": [f"text {id}" for id in ids], "at": times}
        kinds = pa.schema({"k": pa.int64(), "text": pa.string(), "at": pa.timestamp("us", tz="UTC")})
        pq.write_table(pa.table(columns, schema=kinds), directory / f"{number}.parquet")
    return directory


def test_only_columns_that_are_used_are_read_and_all_messages_are_counted(
    drive: Harness, read: list[str]
) -> None:
    source = sources.parquet(files(drive.directory / "in"), event_time="at")
    app = Application("direct")
    rows = app.read(source, name="rows")
    rows.filter(col("k") % 2 == 0).select("k").sink(sinks.parquet(drive.out("even")), name="even")
    rows.select("text").sink(sinks.parquet(drive.out("texts")), name="texts")
    result = drive.run(app, run__max_batch_bytes="10 KiB")
    assert result.batches > 1
    assert len(read) == result.batches
    assert all("FileScan parquet [k#" in plan and "text#" not in plan for plan in read)
    assert [row["k"] for row in sorted(drive.rows("even"), key=lambda row: row["k"])] == [*range(0, ROWS, 2)]
    assert {row["text"] for row in drive.rows("texts")} == {f"text {id}" for id in range(ROWS)}
    counts = {one.processor: one.messages_out for one in result.processors}
    assert counts["rows"] == ROWS
    assert {one.processor: one.messages for one in result.outputs} == {"even": ROWS // 2, "texts": ROWS}


def test_messages_are_counted_of_files_that_are_deleted_when_their_batch_has_run(drive: Harness) -> None:
    source = files(drive.directory / "in")

    def delete(batch: pa.Table, _number: int) -> None:
        assert batch.num_rows == ROWS
        shutil.rmtree(source)

    app = Application("deleted")
    app.read(sources.parquet(source), name="rows").select("k").sink(sinks.batches(delete))
    result = drive.run(app)
    assert {one.processor: one.messages_out for one in result.processors}["rows"] == ROWS


def test_without_our_class_a_batch_is_what_spark_passes(
    drive: Harness, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_batches, "java_class", lambda *_: None)
    app = Application("passed")
    app.read(sources.parquet(files(drive.directory / "in")), name="rows").select("k").sink(
        sinks.parquet(drive.out()), name="out"
    )
    result = drive.run(app)
    assert all("FileScan" not in plan for plan in read)
    assert {one.processor: one.messages_out for one in result.processors}["rows"] == ROWS
    assert len(drive.rows()) == ROWS


def test_two_sources_together_are_what_spark_passes(drive: Harness, read: list[str]) -> None:
    app = Application("two")
    one = app.read(sources.parquet(files(drive.directory / "one")), name="one")
    two = app.read(sources.parquet(files(drive.directory / "two")), name="two")
    one.union(two).select("k").sink(sinks.parquet(drive.out()), name="out")
    result = drive.run(app)
    assert all("FileScan" not in plan for plan in read)
    counts = {each.processor: each.messages_out for each in result.processors}
    assert (counts["one"], counts["two"], len(drive.rows())) == (ROWS, ROWS, 2 * ROWS)


def test_a_window_reads_no_column_for_the_error_of_a_message_without_time(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []

    def noted(_trunk: Trunk, df: DataFrame, spark: SparkSession) -> DataFrame:
        id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = spark._jsparkSession.streams().get(id).streamingQuery()
        plans.append(query.lastExecution().executedPlan().toString())
        return df

    monkeypatch.setattr(spark_engine, "direct_batch", noted)
    app = Application("windowed")
    source = sources.parquet(files(drive.directory / "in"), event_time="at")
    rows = app.read(source, name="rows")
    kept = rows.filter("k >= 0")  # so that our reader cannot deliver partial results in place of messages
    kept.window(windows.tumbling("1 min")).aggregate(n=agg.count()).sink(sinks.parquet(drive.out()))
    drive.run(app)
    assert sum(row["n"] for row in drive.rows()) == ROWS
    assert any("FileScan parquet" in plan for plan in plans)
    assert not any("text#" in plan.split("FileScan parquet")[-1].split("]")[0] for plan in plans)


def test_a_message_without_time_ends_the_run_with_the_name_of_the_column(drive: Harness) -> None:
    app = Application("timeless")
    source = sources.parquet(files(drive.directory / "in", last_time=None), event_time="at")
    app.read(source, name="rows").select("k", "at").sink(sinks.parquet(drive.out()))
    with pytest.raises(UserError, match=r"rows .*: a message has no event timestamp: at is null"):
        drive.run(app)
