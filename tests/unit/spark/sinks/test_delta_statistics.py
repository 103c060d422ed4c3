"""Readers that skip files by their statistics find every row, whoever wrote the file."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_frame import frame
from table_worlds import DeltaWorld

import drivetrain
from drivetrain.connectors.delta.library_files import settings_of

pytestmark = pytest.mark.usefixtures("_staged")

NEAR = Decimal("9007199254740993.0001")
"""The next floating-point number is larger."""
WIDE = Decimal("123456789012345678901234567890123456.78")
AT = dt.datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=dt.UTC)
DECIMALS = {"near": pa.decimal128(20, 4), "wide": pa.decimal128(38, 2)}


def batch(first: int) -> Any:
    inside = pa.struct([("near", pa.decimal128(20, 4)), ("real", pa.float32())])
    return frame(
        id=pa.array([first, first + 1], pa.int64()),
        near=pa.array([NEAR, NEAR], DECIMALS["near"]),
        wide=pa.array([WIDE, WIDE], DECIMALS["wide"]),
        real=pa.array([1.0, float("nan")], pa.float64()),
        inside=pa.array([{"near": NEAR, "real": 1.0}, {"near": NEAR, "real": float("nan")}], inside),
        at=pa.array([AT, AT], pa.timestamp("us", "UTC")),
        **{"a-text": pa.array(["x" * 100, "y" * 100])},
    )


@pytest.fixture(params=["append", "upsert", "compacted"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaWorld:
    """Four rows, of two batches."""
    tables = DeltaWorld(tmp_path)
    how = {"mode": "upsert", "key": "id"} if request.param == "upsert" else {}
    sink = tables.open(**how)
    sink.write(batch(1), 0)
    sink.write(batch(3), 1)
    if how:
        sink.write(batch(3), 2)
    if request.param == "compacted":
        assert drivetrain.compact(tables.declared()).written_files == 1
    return tables


def test_polars_finds_what_equals_a_decimal_or_is_no_number(table: DeltaWorld) -> None:
    scan = pl.scan_delta(table.place)
    assert scan.filter(pl.col("near") == NEAR).collect().height == 4
    assert scan.filter(pl.col("wide") >= WIDE).collect().height == 4
    assert scan.filter(pl.col("real").is_nan()).collect().height == 2
    assert scan.filter(pl.col("real") > 5).collect().height == 2, "Polars takes NaN for the largest number"
    assert scan.filter(pl.col("inside").struct.field("near") == NEAR).collect().height == 4
    assert scan.filter(pl.col("at") == AT).collect().height == 4
    assert scan.filter(pl.col("a-text") > "y").collect().height == 2


def test_the_librarys_own_readers_find_it_too(table: DeltaWorld) -> None:
    opened = deltalake.DeltaTable(table.place)
    dataset = opened.to_pyarrow_dataset()
    for name, value in (("near", NEAR), ("wide", WIDE)):
        wanted = pc.field(name) == pa.scalar(value, DECIMALS[name])
        assert dataset.to_table(filter=wanted, columns=["id"]).num_rows == 4
    asked = deltalake.QueryBuilder().register("t", opened)
    for where, count in (
        (f"near = cast('{NEAR}' as decimal(20, 4))", 4),
        (f"wide >= cast('{WIDE}' as decimal(38, 2))", 4),
        (f"at = timestamp '{AT.isoformat()}'", 4),
    ):
        assert pa.table(asked.execute(f"select id from t where {where}").read_all()).num_rows == count, where


def test_no_statistics_are_of_other_columns(table: DeltaWorld) -> None:
    log = Path(table.place) / "_delta_log"
    newest = [json.loads(line) for line in max(log.glob("*.json")).read_text().splitlines()]
    statistics = [json.loads(action["add"]["stats"]) for action in newest if "add" in action]
    assert statistics
    for one in statistics:
        assert {*one["minValues"], *one["maxValues"]} <= {"id", "at", "a-text", "real"}
        assert "real" not in one["maxValues"]


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ({"a": pa.int64(), "b": pa.date32()}, {}),
        ({"a": pa.float32(), "b": pa.list_(pa.int8())}, {"delta.dataSkippingNumIndexedCols": "0"}),
        ({"a-b": pa.string(), "n": pa.float64()}, {"delta.dataSkippingStatsColumns": "`a-b`"}),
        (
            {"a`b": pa.string(), "c": pa.int8(), "n": pa.decimal128(3, 1)},
            {"delta.dataSkippingStatsColumns": "`a``b`,c"},
        ),
    ],
)
def test_a_new_table_says_which_columns_have_statistics(
    columns: dict[str, pa.DataType], settings: dict[str, str]
) -> None:
    assert settings_of(pa.schema(columns)) == settings
