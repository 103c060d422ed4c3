"""Java writes the same Parquet files as Python and the driver, and leaves to Python what it cannot write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from columns_of_types import COLUMNS
from drivetrain.api import sinks
from drivetrain.connectors.files import java_parts, staging
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches

ALL_TYPES = (
    "id",
    *COLUMNS,
    "cast(id AS decimal(9, 3)) AS x9",
    "cast(id AS decimal(18, 3)) AS x18",
    "cast(id AS decimal(38, 3)) AS x38",
    "date'0001-01-01' AS day",
    "timestamp'1500-01-01 00:00:00.000001' AS old",
    "timestamp_micros(id * 1000 - 500001) AS at",
)


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is taken for one that is too large for the driver."""
    monkeypatch.setattr(small_batches, "small_table", lambda _: None)


@pytest.fixture
def by_java(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether Java wrote each batch that was written."""
    written: list[bool] = []

    def noted(*args: object) -> list[java_parts.Part] | None:
        parts = java_parts.java_parts(*args)  # type: ignore[arg-type]
        written.append(parts is not None)
        return parts

    monkeypatch.setattr(staging, "java_parts", noted)
    return written


def write(df: DataFrame, place: Path, batch: int = 0, **how: str) -> int:
    context = SinkContext("app-1", "sink-1", str(place / "state"))
    return open_sink(sinks.parquet(place / "out", **how), context).write(df, batch)  # type: ignore[arg-type]


def file_of(place: Path) -> Path:
    (file,) = (place / "out").glob("part-*")
    return file


def left(place: Path) -> list[Path]:
    return [path for path in (place / "out" / "_drivetrain" / "staging").rglob("*") if path.is_file()]


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip", "none"])
def test_java_python_and_the_driver_write_the_same_columns_and_rows(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_java: list[bool],
    compression: str,
) -> None:
    df = spark.range(0, 300, 1, 3).selectExpr(*ALL_TYPES)
    assert write(df, tmp_path / "java", compression=compression) == 300
    assert by_java == [True], "the class is on Java's path"
    monkeypatch.setattr(staging, "java_parts", lambda *_: None)
    assert write(df, tmp_path / "python", compression=compression) == 300
    monkeypatch.undo()
    assert write(df, tmp_path / "driver", compression=compression) == 300
    found = {who: pq.read_table(file_of(tmp_path / who)) for who in ("java", "python", "driver")}
    assert found["java"].schema.equals(found["driver"].schema), "reading converts nothing"
    assert found["java"].equals(found["python"])
    assert found["java"].equals(found["driver"])
    codec = pq.ParquetFile(file_of(tmp_path / "java")).metadata.row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert left(tmp_path / "java") == []
    expected = df.orderBy("id").collect()
    assert spark.read.parquet(str(tmp_path / "java" / "out")).orderBy("id").collect() == expected


def test_large_parts_are_joined_group_by_group_in_order(
    spark: SparkSession, tmp_path: Path, by_java: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[bool] = []

    def noted(*args: object) -> bool:
        joined.append(java_parts.joined_by_java(*args))  # type: ignore[arg-type]
        return joined[-1]

    monkeypatch.setattr(staging, "joined_by_java", noted)
    df = spark.range(0, 60_000, 1, 3).selectExpr("id", "repeat(cast(hash(id) AS string), 10) AS text")
    assert write(df, tmp_path) == 60_000
    assert (by_java, joined) == ([True], [True])
    file = pq.ParquetFile(file_of(tmp_path))
    assert file.metadata.num_row_groups == 3
    assert file.read()["id"].to_pylist() == list(range(60_000))
    assert left(tmp_path) == []


def test_small_parts_become_one_group_of_rows(
    spark: SparkSession, tmp_path: Path, by_java: list[bool]
) -> None:
    assert write(spark.range(0, 90, 1, 9).toDF("id"), tmp_path) == 90
    assert by_java == [True]
    file = pq.ParquetFile(file_of(tmp_path))
    assert file.metadata.num_row_groups == 1
    assert file.read()["id"].to_pylist() == list(range(90))


def test_one_part_is_the_file_and_no_rows_are_none(
    spark: SparkSession, tmp_path: Path, by_java: list[bool]
) -> None:
    df = spark.range(0, 90, 1, 9).toDF("id")
    assert write(df.filter("id = 42"), tmp_path / "one") == 1
    assert ds.dataset(tmp_path / "one" / "out").to_table().to_pydict() == {"id": [42]}
    assert write(df.filter("id < 0"), tmp_path / "none") == 0
    assert list((tmp_path / "none" / "out").glob("part-*")) == []
    assert by_java == [True, True]


def test_files_are_divided_among_partitions(spark: SparkSession, tmp_path: Path, by_java: list[bool]) -> None:
    df = spark.range(0, 90, 1, 3).selectExpr("id", "id % 2 AS odd")
    assert write(df, tmp_path, partition_by=["odd"]) == 90  # type: ignore[arg-type]
    assert by_java == [True]
    found = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == [(n, n % 2) for n in range(90)]


def test_types_that_arrow_writes_otherwise_are_left_to_python(
    spark: SparkSession, tmp_path: Path, by_java: list[bool]
) -> None:
    assert write(spark.range(3).selectExpr("id", "interval '3' day AS i"), tmp_path) == 3
    assert by_java == [False]
    assert pa.types.is_duration(pq.read_schema(file_of(tmp_path)).field("i").type)


def test_what_is_observed_of_a_batch_is_of_all_its_rows(
    spark: SparkSession, tmp_path: Path, by_java: list[bool]
) -> None:
    counted = Observation()
    df = spark.range(0, 90, 1, 9).toDF("id").observe(counted, F.count(F.lit(1)).alias("n"))
    assert write(df, tmp_path) == 90
    assert (by_java, counted.get) == ([True], {"n": 90})


def test_an_error_of_the_batch_is_raised_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, by_java: list[bool]
) -> None:
    broken = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, raise_error('no'), id) AS n")
    with pytest.raises(Exception, match="no"):
        write(broken, tmp_path)
    assert by_java == [], "Python does not compute it again"
    assert list((tmp_path / "out").glob("part-*")) == []
    assert left(tmp_path) == []


def test_a_place_that_java_cannot_write_to_is_left_to_python(spark: SparkSession, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    df = spark.range(0, 90, 1, 3).toDF("id")
    assert java_parts.java_parts(df, str(in_the_way / "folder"), "x", "snappy") is None


def test_parts_that_cannot_be_joined_by_java_are_joined_by_python(
    spark: SparkSession, tmp_path: Path, by_java: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_parts, "_LEAST_BYTES", 0)
    df = spark.range(0, 90, 1, 3).toDF("id")
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = java_parts.java_parts(df, str(folder), "x", "snappy")
    assert parts is not None
    assert not java_parts.joined_by_java(df, parts, "/proc/sys/whole"), "nobody can write there"
    assert java_parts.joined_by_java(df, parts, str(tmp_path / "whole"))
    assert pq.read_table(tmp_path / "whole")["id"].to_pylist() == list(range(90))
