"""File sources and the generator inside real streaming queries."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drivetrain.api import sources
from drivetrain.connectors.opening import open_source, read_whole
from drivetrain.errors import GraphError, InputError
from drivetrain.spark.connector.source import OpenedSource, SourceContext
from drivetrain.spark.session.spark_errors import recovered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FLIGHTS = "ts timestamp, carrier string, delay double"


def context(spark: SparkSession, tmp_path: Path, **limits: Any) -> SourceContext:
    spark_log = str(tmp_path / "checkpoint" / "sources" / "0")
    return SourceContext(spark, str(tmp_path / "state"), "app", "source-1", spark_log=spark_log, **limits)


class Batches:
    """Collects every batch of a query, keyed by batch id."""

    def __init__(self) -> None:
        self.rows: dict[int, list[Any]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = [row.asDict(recursive=True) for row in df.collect()]

    @property
    def all(self) -> list[Any]:
        return [row for batch_id in sorted(self.rows) for row in self.rows[batch_id]]


def start(opened: OpenedSource, tmp_path: Path, batches: Batches, **trigger: Any) -> StreamingQuery:
    return (
        opened.df.writeStream.foreachBatch(batches)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )


def run(opened: OpenedSource, tmp_path: Path) -> Batches:
    batches = Batches()
    query = start(opened, tmp_path, batches)
    assert query.awaitTermination(60)
    return batches


def wait_until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def arrive(path: Path, text: str) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(text)
    os.rename(hidden, path)


@pytest.mark.nightly("test_random_applications reaches what it reaches")
@pytest.mark.parametrize("kind", ["text", "csv", "jsonl", "parquet"])
def test_bounded_files_are_read_to_their_end_in_limited_batches(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    data = tmp_path / "in"
    data.mkdir()
    values = [f"v{number:04d}" for number in range(1000)]
    for part in range(4):
        chunk = values[part * 250 : part * 250 + 250]
        path = data / f"part{part}"
        if kind == "text":
            path.write_text("\n".join(chunk))
        elif kind == "csv":
            path.write_text("value\n" + "\n".join(chunk))
        elif kind == "jsonl":
            path.write_text("\n".join(json.dumps({"value": value}) for value in chunk))
        else:
            pq.write_table(pa.table({"value": chunk}), path, row_group_size=50)
    (data / "_hidden").write_text("no")
    source = {
        "text": sources.text(data),
        "csv": sources.csv(data, schema="value string"),
        "jsonl": sources.json(data, schema="value string"),
        "parquet": sources.parquet(data),
    }[kind]
    total = sum(path.stat().st_size for path in data.glob("part*"))
    opened = open_source(source, context(spark, tmp_path, max_batch_bytes=total // 5))
    assert opened.bounded
    assert (opened.total, opened.unit) == (total, "bytes")
    assert not opened.position(None).finished
    batches = run(opened, tmp_path)
    assert [row["value"] for row in batches.all] == values
    assert len(batches.rows) >= 5
    assert opened.position(json.dumps({"bytes": total, "end": 0})).finished


def test_a_bounded_source_keeps_to_the_files_of_its_first_start(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "in"
    data.mkdir()
    (data / "b.txt").write_text("b1\nb2\n")
    opened = open_source(sources.text(data), context(spark, tmp_path))
    (data / "a.txt").write_text("a1\n")
    assert [row["value"] for row in run(opened, tmp_path).all] == ["b1", "b2"]
    again = open_source(sources.text(data), context(spark, tmp_path))
    assert run(again, tmp_path).all == []


def test_a_watched_directory_is_read_as_it_fills(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "in"
    data.mkdir()
    opened = open_source(sources.text(data, watch=True), context(spark, tmp_path))
    assert not opened.bounded
    batches = Batches()
    query = start(opened, tmp_path, batches, processingTime="0 seconds")
    try:
        for number in range(3):
            arrive(data / f"f{number}.txt", f"line {number}\n")
            wait_until(lambda n=number: len(batches.all) == n + 1)  # type: ignore[misc]
        (data / "_ignored").write_text("no\n")
        arrive(data / "last.txt", "last\n")
        wait_until(lambda: len(batches.all) == 4)
        query.processAllAvailable()  # a batch that was stopped before it was committed would come again
    finally:
        query.stop()
    assert [row["value"] for row in batches.all] == ["line 0", "line 1", "line 2", "last"]
    arrive(data / "late.txt", "after the restart\n")
    restarted = Batches()
    query = start(open_source(sources.text(data, watch=True), context(spark, tmp_path)), tmp_path, restarted)
    assert query.awaitTermination(60)
    assert [row["value"] for row in restarted.all] == ["after the restart"]


def test_a_batch_that_failed_is_replayed_with_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "in"
    data.mkdir()
    for number in range(4):
        (data / f"f{number}.txt").write_text(f"{number}\n" * 10)
    ctx = context(spark, tmp_path, max_batch_bytes=30)
    seen: dict[int, list[str]] = {}

    def breaks(df: DataFrame, batch_id: int) -> None:
        seen[batch_id] = [row.value for row in df.collect()]
        if batch_id == 1:
            raise RuntimeError("crash before the commit")

    opened = open_source(sources.text(data, watch=True), ctx)
    query = (
        opened.df.writeStream.foreachBatch(breaks)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="crash before the commit"):
        query.awaitTermination(60)
    arrive(data / "a-new-one.txt", "new\n")
    after = run(open_source(sources.text(data, watch=True), ctx), tmp_path)
    assert [row["value"] for row in after.rows[1]] == seen[1]
    everything = seen[0] + [row["value"] for row in after.all]
    assert everything == [str(number) for number in range(4) for _ in range(10)] + ["new"]


def test_a_bad_record_stops_the_query_with_an_error_that_can_be_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"carrier":"AA","delay":1.5}\n{"carrier":"AA","delay":"late"}\n')
    opened = open_source(sources.json(path, schema=FLIGHTS), context(spark, tmp_path))
    query = start(opened, tmp_path, Batches())
    with pytest.raises(Exception, match="delay") as caught:
        query.awaitTermination(60)
    error = recovered(str(caught.value))
    assert isinstance(error, InputError)
    assert error.where == f"{path}, line 2"
    assert error.expected == "double"
    assert error.got == '"late", in the record: {"carrier":"AA","delay":"late"}'
    assert len(str(error).splitlines()) == 4


def test_bad_records_are_set_aside_in_the_bad_column(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("carrier,delay,ts\nAA,1,2024-01-01\nUA,late,2024-01-01\n\nUA,3,2024-01-01\n")
    source = sources.csv(path, schema=FLIGHTS, on_bad_record="dead_letter")
    opened = open_source(source, context(spark, tmp_path))
    assert opened.bad_column == "__bad"
    rows = run(opened, tmp_path).all
    assert [(row["carrier"], row["delay"]) for row in rows] == [("AA", 1.0), (None, None), ("UA", 3.0)]
    assert rows[1]["__bad"] == {
        "raw": "UA,late,2024-01-01",
        "file": str(path),
        "line": 3,
        "error": "column delay: does not fit the type, expected double, got 'late'",
    }


def test_a_wrong_header_or_schema_is_found_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("carrier,late\nAA,1\n")
    with pytest.raises(InputError, match="no column"):
        open_source(sources.csv(tmp_path / "in.csv", schema=FLIGHTS), context(spark, tmp_path))
    with pytest.raises(InputError, match="schema cannot be read"):
        open_source(sources.csv(tmp_path / "in.csv", schema="carrier strin"), context(spark, tmp_path))
    data = tmp_path / "parquet"
    data.mkdir()
    pq.write_table(pa.table({"a": [1]}), data / "0.parquet")
    pq.write_table(pa.table({"a": ["x"]}), data / "1.parquet")
    with pytest.raises(InputError, match="another type") as caught:
        open_source(sources.parquet(data), context(spark, tmp_path))
    assert caught.value.where == str(data / "1.parquet")
    assert not (tmp_path / "state").exists()


@pytest.mark.nightly("random applications draw JSON")
def test_a_windowed_count_over_json_equals_a_batch_query(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    events = [
        {"ts": f"2024-01-01T00:{n // 60:02d}:{n % 60:02d}Z", "carrier": "AB"[n % 2]} for n in range(600)
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    opened = open_source(
        sources.json(path, schema=FLIGHTS, event_time="ts"), context(spark, tmp_path, max_batch_bytes=5000)
    )
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

    def counted(df: DataFrame) -> DataFrame:
        return df.groupBy(F.window("ts", "10 seconds"), "carrier").count()

    query = (
        counted(opened.df)
        .writeStream.format("memory")
        .queryName("windowed_json")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    streamed = {tuple(row) for row in spark.table("windowed_json").collect()}
    batch = {tuple(row) for row in counted(spark.read.schema(FLIGHTS).json(str(path))).collect()}
    assert streamed == batch
    assert len(batch) == 120


def test_a_bounded_source_can_be_read_whole_as_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("carrier,delay,ts\nAA,1,2024-01-01\nUA,2,2024-01-01\n")
    source = sources.csv(tmp_path / "in.csv", schema=FLIGHTS)
    rows = read_whole(source, context(spark, tmp_path)).collect()
    assert [(row.carrier, row.delay) for row in rows] == [("AA", 1.0), ("UA", 2.0)]
    generated = sources.generate(rows=5, columns={"key": "id * 2"})
    assert [row.key for row in read_whole(generated, context(spark, tmp_path)).collect()] == [0, 2, 4, 6, 8]
    items = sources.items([("a", 1), ("b", 2)], "key string, n long")
    assert [tuple(row) for row in read_whole(items, context(spark, tmp_path)).collect()] == [
        ("a", 1),
        ("b", 2),
    ]
    with pytest.raises(GraphError, match="without end"):
        read_whole(sources.text(tmp_path, watch=True), context(spark, tmp_path))


def test_directories_that_spark_has_divided_are_read_with_their_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = spark.sql(
        "select id, if(id % 4 = 3, null, concat('c/', id % 4)) as country, "
        "date_add(date'2024-05-01', cast(id % 2 as int)) as day from range(20)"
    )
    made.write.partitionBy("country", "day").json(str(tmp_path / "in"))
    (tmp_path / "in" / "_drivetrain").mkdir()
    (tmp_path / "in" / "_drivetrain" / "owner.json").write_text("{}")
    how: dict[str, Any] = {"schema": "id long", "partition_columns": "country string, day date"}
    source = sources.json(tmp_path / "in", glob="*.json", **how)
    found = run(open_source(source, context(spark, tmp_path)), tmp_path).all
    wanted = [row.asDict() for row in made.collect()]
    assert sorted(found, key=lambda row: row["id"]) == wanted
    whole = read_whole(source, context(spark, tmp_path / "table"))
    assert sorted(map(tuple, whole.collect())) == sorted(map(tuple, made.collect()))
    wrong = {**how, "partition_columns": "country int"}
    with pytest.raises(InputError, match="another type"):
        open_source(sources.json(tmp_path / "in", **wrong), context(spark, tmp_path / "wrong"))
    both = {**how, "schema": "id long, day date"}
    with pytest.raises(InputError, match="in the files and in the names of their directories"):
        open_source(sources.json(tmp_path / "in", **both), context(spark, tmp_path / "both"))


def test_the_generator_makes_the_same_rows_on_every_run(spark: SparkSession, tmp_path: Path) -> None:
    source = sources.generate(rows=10_000, every="500 us", columns={"key": "concat('k', id % 3)"})
    first = run(open_source(source, context(spark, tmp_path / "1", max_batch_rows=3000)), tmp_path / "1")
    second = run(open_source(source, context(spark, tmp_path / "2")), tmp_path / "2")
    assert len(first.rows) == 4
    assert first.all == second.all
    assert [row["id"] for row in first.all] == list(range(10_000))
    assert first.all[7]["key"] == "k1"
    assert (first.all[2]["ts"] - first.all[0]["ts"]).total_seconds() == 0.001


@pytest.mark.nightly("test_lost_machine reaches what it reaches")
def test_a_generator_with_a_rate_is_paced_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    opened = open_source(sources.generate(rows=300, rate_per_s=200.0), context(spark, tmp_path))
    batches = Batches()
    query = start(opened, tmp_path, batches, processingTime="0 seconds")
    try:

        def position() -> Any:
            progress = query.lastProgress
            return opened.position(progress["sources"][0]["endOffset"] if progress else None)

        wait_until(lambda: bool(position().finished))
    finally:
        query.stop()
    assert [row["id"] for row in batches.all] == list(range(300))
    assert len(batches.rows) > 1


def test_a_wrong_generator_expression_is_an_error_that_names_the_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    for columns, what in (({"key": "nope + 1"}, "column key"), ({"id": "1"}, "column id")):
        with pytest.raises(InputError, match=what):
            open_source(sources.generate(rows=1, columns=columns), context(spark, tmp_path))
