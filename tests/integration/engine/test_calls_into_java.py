"""How often a batch asks Java: each call takes time from both processes, in every batch."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import py4j.clientserver
import pyarrow as pa
import pytest
from harness import at, events
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import drivetrain
from drivetrain import Application, Task, agg, sinks, sources, windows
from drivetrain.api.stream import Stream
from drivetrain.config import Config
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.batch.spark_engine import _OnBatch
from drivetrain.spark.session import dataframe_calls
from nightly_run import some_by_day

MOST_CALLS = {"lines": 12, "windows": 13, "function": 14, "columns": 18, "task": 17, "several": 64}
BATCHES = 5
COLUMNS = 20


def doubled(n: int) -> int:
    return n * 2


class Doubling(Task[int, int]):
    def on_next(self, message: int) -> Iterator[int]:
        yield message * 2


def application(shape: str, place: Path) -> Application:
    """An application that reads lines of many columns."""
    app = Application(f"calls-{shape}")
    columns = ", ".join(f"c{i} string" for i in range(COLUMNS))
    stream: Any = app.read(sources.json(str(place / "in"), schema=f"ts timestamp, n bigint, {columns}"))
    match shape:
        case "windows":
            timed = stream.event_time("ts", max_disorder="0 s").group_by("c1")
            stream = timed.window(windows.tumbling("1 min")).aggregate(total=agg.sum("n"))
        case "function":
            stream = stream.select("n").map(doubled)
        case "columns":
            stream = stream.select("n", name=drivetrain.F.upper("c1")).filter("n > -1")
        case "task":
            stream = stream.select("n").process(Doubling)
        case "several":
            timed = stream.event_time("ts", max_disorder="0 s").filter("n > -1")
            timed.select("n").map(doubled, on_error="dead_letter").sink(sinks.json(str(place / "more")))
            stream = timed.select("c1", "n").rename(name="c1").drop("n")
    stream.sink(sinks.json(str(place / "out")))
    return app


@pytest.mark.parametrize("shape", some_by_day(MOST_CALLS, ["columns", "windows"], "the same calls, counted"))
def test_a_batch_asks_java_a_bounded_number_of_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """What is built for each batch must be text, which is one call, whatever is in it, or kept."""
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        of_all = {f"c{i}": str(i) for i in range(COLUMNS)}
        lines = [{"ts": f"2026-01-01T00:{batch:02}:{n:02}Z", "n": n, **of_all} for n in range(20)]
        (tmp_path / "in" / f"{batch}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    calls = _counted_calls(monkeypatch)
    sets = {"run.max-batch-bytes": "5 KiB", "state.dir": str(tmp_path / "state")}  # about a file

    drivetrain.run(application(shape, tmp_path), Config.load(None, {}, sets))

    assert len(calls) >= BATCHES
    assert sorted(calls)[len(calls) // 2] <= MOST_CALLS[shape], calls


@pytest.mark.parametrize(
    "shape", some_by_day(["stateless", "windows", "without copies"], ["windows"], "the same columns")
)
def test_the_columns_of_a_batch_are_those_of_its_trunk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """Java is not asked for them: Spark would say the same, down to what may be null."""
    app = Application("columns")
    rows = [(1, "a", 1.5, at(1000)), (2, None, 2.5, at(2000))]
    stream: Stream[Any] = events(app, rows, "id bigint, name string, price double, ts timestamp")
    if shape == "windows":
        grouped = stream.group_by("name").window(windows.tumbling("1 s"))
        stream = grouped.aggregate(n=agg.count(), most=agg.max("price"))
    elif shape == "without copies":
        stream = stream.deduplicate("id", within="1 h")
    stream.sink(sinks.json(str(tmp_path / "out")))
    compared: list[bool] = []
    on_batch = MicroBatchQuery._on_batch

    def batch(self: MicroBatchQuery, df: DataFrame, batch_id: int) -> None:
        compared.append(df.schema == ClassicDataFrame(df._jdf, df.sparkSession).schema)
        on_batch(self, df, batch_id)

    monkeypatch.setattr(MicroBatchQuery, "_on_batch", batch)

    drivetrain.run(app, Config.load(None, {}, {"state.dir": str(tmp_path / "state")}))

    assert compared
    assert all(compared)


def test_all_batches_of_a_query_are_in_the_session_of_the_first(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    for n in range(BATCHES):
        (tmp_path / "in" / f"{n}.txt").write_text("a line\n" * 200)
    app = Application("sessions")
    app.read(sources.text(str(tmp_path / "in"))).sink(sinks.text(str(tmp_path / "out")))
    same: list[bool] = []
    on_batch = MicroBatchQuery._on_batch

    def batch(self: MicroBatchQuery, df: DataFrame, batch_id: int) -> None:
        same.append(df._jdf.sparkSession().equals(df.sparkSession._jsparkSession))
        on_batch(self, df, batch_id)

    monkeypatch.setattr(MicroBatchQuery, "_on_batch", batch)
    sets = {"run.max-batch-bytes": "1 KiB", "state.dir": str(tmp_path / "state")}

    drivetrain.run(app, Config.load(None, {}, sets))

    assert len(same) >= BATCHES
    assert all(same)


def test_few_calls_do_what_many_did(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "a b"), (2, None), (3, "c")], "id bigint, text string").repartition(2)
    assert df.schema
    texts = ("id", "upper(text) AS `upper text`", "struct(id, text) AS both")
    counted, usual = Observation(), Observation()
    fast = dataframe_calls.observing(
        dataframe_calls.selected(df, *texts), counted, "count(1) AS n", "max(id) AS most"
    )
    slow = df.selectExpr(*texts).observe(usual, F.count(F.lit(1)).alias("n"), F.max("id").alias("most"))

    assert fast.__dict__["schema"] == slow.schema
    some = dataframe_calls.filtered(fast, "id > 1")
    table = pa.Table.from_batches(dataframe_calls.record_batches(some))
    assert sorted(table.to_pylist(), key=repr) == sorted(slow.where("id > 1").toArrow().to_pylist(), key=repr)
    assert dataframe_calls.answer(counted) == usual.get == {"n": 3, "most": 3}
    assert dataframe_calls.record_batches(dataframe_calls.filtered(fast, "id > 3")) == []


def test_an_error_of_a_job_is_the_one_that_pyspark_raises(spark: SparkSession) -> None:
    df = spark.range(1).selectExpr("raise_error('refused') AS id")
    with pytest.raises(PySparkException, match="refused"):
        dataframe_calls.record_batches(df)


def _counted_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The list to which the number of calls of each batch will be added, from the moment at which Spark calls
    until it gets the answer; without those that free objects."""
    calls: list[int] = []
    here = threading.local()
    send, called = py4j.clientserver.JavaClient.send_command, _OnBatch.call

    def counting(self: Any, command: str, *args: Any, **options: Any) -> Any:
        if not command.startswith("m\n"):
            here.calls = getattr(here, "calls", 0) + 1
        return send(self, command, *args, **options)

    def call(self: _OnBatch, jdf: Any, batch_id: int) -> None:
        here.calls = 0
        called(self, jdf, batch_id)
        calls.append(here.calls)

    monkeypatch.setattr(py4j.clientserver.JavaClient, "send_command", counting)
    monkeypatch.setattr(_OnBatch, "call", call)
    return calls
