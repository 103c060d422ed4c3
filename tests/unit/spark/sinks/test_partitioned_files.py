"""Files in a directory for each partition: their names, their readers, and what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from arrow_frame import ArrowFrame, frame

from drivetrain import published_files
from drivetrain.api import sinks
from drivetrain.connectors.files import partitioned_files
from drivetrain.connectors.files.output_ownership import OutputDirectory
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import GraphError, OutputError
from drivetrain.spark.connector.sink import SinkContext

ODD = ["plain", "a/b", "a=b", "50%", "é ü", "x:y", "..", 'q"[{', "tab\t", "007", None]


def opened(directory: Path, partition_by: Any = "p", id: str = "a", **how: Any) -> Any:
    sink = sinks.parquet(directory / "out", partition_by=partition_by, **how)
    return open_sink(sink, SinkContext("app-1", id, str(directory / "state")))


def batch(first: int, *partitions: Any) -> ArrowFrame:
    ids = pa.array(range(first, first + len(partitions)), pa.int64())
    made: ArrowFrame = frame(p=pa.array(partitions, pa.string()), id=ids)
    return made


def files(directory: Path) -> list[str]:
    out = directory / "out"
    return sorted(str(path.relative_to(out)) for path in out.glob("**/*.parquet"))


def by_arrow(directory: Path, kind: pa.DataType | None = None) -> list[tuple[int, Any]]:
    schema = pa.schema([("id", pa.int64()), ("p", kind or pa.string())])
    table = ds.dataset(
        directory / "out", schema=schema, partitioning=ds.partitioning(schema.remove(0), flavor="hive")
    ).to_table()
    return sorted(zip(table["id"].to_pylist(), table["p"].to_pylist(), strict=True))


def test_each_partition_has_a_directory_and_its_files_do_not_repeat_its_columns(tmp_path: Path) -> None:
    sink = opened(tmp_path, ["country", "day"])
    day, next_day = dt.date(2024, 5, 1), dt.date(2024, 5, 2)
    columns = frame(
        country=pa.array(["FR", "DE", "FR"]), day=pa.array([day, day, next_day]), id=pa.array([1, 2, 3])
    )
    assert sink.write(columns, 7) == 3
    assert files(tmp_path) == [
        "country=DE/day=2024-05-01/part-a-00000007.parquet",
        "country=FR/day=2024-05-01/part-a-00000007.parquet",
        "country=FR/day=2024-05-02/part-a-00000007.parquet",
    ]
    assert all(pq.ParquetFile(tmp_path / "out" / one).schema_arrow.names == ["id"] for one in files(tmp_path))
    found = pl.read_parquet(tmp_path / "out" / "**/*.parquet", hive_partitioning=True)
    assert sorted(found.rows()) == [(1, "FR", day), (2, "DE", day), (3, "FR", next_day)]
    assert sink.write(columns, 7) == 0


def test_readers_find_the_values_again(tmp_path: Path) -> None:
    opened(tmp_path).write(batch(0, *ODD), 0)
    assert by_arrow(tmp_path) == list(enumerate(ODD))
    every = duckdb.read_parquet(str(tmp_path / "out" / "**/*.parquet"), hive_partitioning=True)
    assert sorted(every.select("id", "p").fetchall()) == list(enumerate(ODD))


def test_an_empty_text_is_in_the_partition_of_nulls(tmp_path: Path) -> None:
    opened(tmp_path).write(batch(0, "", None), 0)
    assert files(tmp_path) == ["p=__HIVE_DEFAULT_PARTITION__/part-a-00000000.parquet"]


def test_batches_are_joined_before_they_are_divided(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll="1 h")
    for number in range(3):
        sink.write(batch(2 * number, "x", "y"), number)
    assert files(tmp_path) == []
    sink.roll(2, ends=True)
    name = "part-a-00000000-to00000002.parquet"
    assert files(tmp_path) == [f"p=x/{name}", f"p=y/{name}"]
    assert by_arrow(tmp_path) == [(number, "yx"[number % 2 == 0]) for number in range(6)]


def test_with_checkpoints_a_transaction_is_one_file_for_each_partition(tmp_path: Path) -> None:
    sink = opened(tmp_path, together=tmp_path)
    for number in range(3):
        sink.prepare(batch(2 * number, "x", "y"), number)
    assert files(tmp_path) == []
    assert sink.publish(1, {"a": 1}, {"a": sink}) == {"a": 4}
    told = published_files(tmp_path)[str(tmp_path / "out")]
    assert sorted(told) == [f"{tmp_path}/out/{one}" for one in files(tmp_path)]
    assert len(told) == 2


def test_more_partitions_than_files_may_be_open_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned_files, "_OPEN_FILES", 7)
    monkeypatch.setattr(partitioned_files, "_HELD_BYTES", 1)
    values = [str(n % 50) for n in range(1_000)]
    opened(tmp_path).write(batch(0, *values), 0)
    assert len(files(tmp_path)) == 50
    assert by_arrow(tmp_path) == list(enumerate(values))


def test_whole_batches_only_are_told_to_readers_who_ask_for_them(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(batch(0, "x", "y"), 0)
    told: list[int] = []

    def looked(*args: Any) -> None:
        publish(*args)
        told.append(len(published_files(tmp_path / "out")[str(tmp_path / "out")]))

    publish = OutputDirectory.publish
    with patch.object(OutputDirectory, "publish", looked):
        sink.write(batch(2, "x", "y", "z"), 1)
    assert told == [2, 2, 2, 2], "when it was taken, and after each part"
    assert len(published_files(tmp_path / "out")[str(tmp_path / "out")]) == 5


@pytest.mark.parametrize("columns", ["q", "at", ["p", "id", "at"], "half"])
def test_columns_that_cannot_divide_are_refused(tmp_path: Path, columns: Any) -> None:
    at = pa.array([dt.datetime(2024, 5, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    rows = frame(p=pa.array(["x"]), id=pa.array([1]), at=at, half=pa.array([0.5]))
    if columns == ["p", "id", "at"]:
        columns, rows = ["p", "id"], frame(p=pa.array(["x"]), id=pa.array([1]))
    with pytest.raises(OutputError, match="partition"):
        opened(tmp_path, columns).write(rows, 0)
    with pytest.raises(GraphError, match="each column once"):
        sinks.csv("out", partition_by=["p", "p"])


def test_a_value_that_is_too_long_is_refused_before_its_batch_counts(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    with pytest.raises(OutputError, match="too long"):
        sink.write(batch(0, "x", "y" * 254), 0)
    assert files(tmp_path) == []
    assert opened(tmp_path).write(batch(0, "x", "y" * 253), 0) == 2


def test_a_directory_with_other_partitions_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).write(batch(0, "x"), 0)
    opened(tmp_path).validate()
    for columns in ((), "id"):
        with pytest.raises(OutputError, match="divided by other columns"):
            opened(tmp_path, columns).validate()


def test_a_fresh_start_removes_partitions_and_leaves_what_others_put_there(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(batch(0, "x", "y"), 0)
    (tmp_path / "out" / "p=y" / "note.md").write_text("theirs")
    sink.check_fresh()
    sink.fresh()
    left = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert left == {"p=y", "p=y/note.md"}
