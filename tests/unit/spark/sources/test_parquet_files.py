from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_reading import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DoubleType, LongType, StringType, StructType, TimestampType

from drivetrain.api import sources
from drivetrain.errors import InputError

NUMBERS = StructType().add("n", LongType())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.integers(0, 40), st.integers(1, 10), st.lists(st.integers(0, 10_000), max_size=4))
def test_every_row_is_read_once_whatever_the_splits(
    tmp_path: Path, rows: int, group_rows: int, cuts: list[int]
) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": pa.array(range(rows), pa.int64())}), path, row_group_size=group_rows)
    assert [row["n"] for row in read(sources.parquet(path), NUMBERS, cuts)] == list(range(rows))


def test_columns_are_taken_by_name_and_cast_to_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    columns = {
        "other": pa.array([1.5]),
        "at": pa.array([moment], pa.timestamp("ns", tz="Europe/Paris")),
        "s": pa.array(["x"]).dictionary_encode(),
        "n": pa.array([7], pa.int32()),
    }
    pq.write_table(pa.table(columns), path)
    struct = (
        StructType()
        .add("n", LongType())
        .add("x", DoubleType())
        .add("s", StringType())
        .add("at", TimestampType())
    )
    with pytest.raises(InputError, match="no column x"):
        read(sources.parquet(path), struct)
    struct = StructType([field for field in struct if field.name != "x"])
    assert read(sources.parquet(path), struct) == [{"n": 7, "s": "x", "at": moment}]


def test_bytes_of_one_length_are_read_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"id": pa.array([b"1234", None], pa.binary(4))}), path)
    assert read(sources.parquet(path), StructType().add("id", BinaryType())) == [
        {"id": b"1234"},
        {"id": None},
    ]


def test_a_value_that_does_not_fit_the_declared_type_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": pa.array([2**63], pa.uint64())}), path)
    with pytest.raises(InputError, match="does not fit") as caught:
        read(sources.parquet(path), NUMBERS)
    assert caught.value.where == str(path)


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 this is not parquet")
    with pytest.raises(InputError, match="cannot be read") as caught:
        read(sources.parquet(path), NUMBERS)
    assert caught.value.where == str(path)
