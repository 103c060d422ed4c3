"""Small batches come to the driver whole, large ones not at all."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from drivetrain.spark import at_driver
from drivetrain.spark.at_driver import small_table


def rows(spark: SparkSession, count: int, letters: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("id", f"repeat('x', {letters}) as `a ``text`")


def test_a_small_batch_is_a_table_with_all_rows_in_order(spark: SparkSession) -> None:
    table = small_table(rows(spark, 1000, 3))
    assert table is not None
    assert table.column_names == ["id", "a `text"]
    assert table["id"].to_pylist() == list(range(1000))
    none = small_table(rows(spark, 1000, 3).where("id < 0"))
    assert none is not None
    assert none.num_rows == 0


@pytest.mark.parametrize("letters", [0, 100, 5000])
def test_a_batch_is_handed_over_up_to_about_the_limit(
    spark: SparkSession, letters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_driver, "LIMIT_BYTES", 400_000)
    fitting = 400_000 // (16 + letters)
    assert small_table(rows(spark, fitting * 9 // 10, letters)) is not None
    assert small_table(rows(spark, fitting * 12 // 10, letters)) is None


def test_one_large_partition_is_too_much(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_driver, "LIMIT_BYTES", 40_000)
    assert small_table(rows(spark, 2000, 0).where("id >= 1000")) is not None
    assert small_table(rows(spark, 4000, 0).where("id >= 2000")) is None


def test_other_errors_are_raised(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no such luck"):
        small_table(spark.range(10).selectExpr("if(id = 5, raise_error('no such luck'), id) as id"))
