"""Small batches come to the driver whole, large ones not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.spark.measure import small_batches
from drivetrain.spark.measure.small_batches import SmallBatches, observed, small_table, taking


@pytest.fixture(autouse=True)
def _two_partitions(spark: SparkSession) -> Iterator[None]:
    """As many as `rows` has: an application of another test may have left another number in the session."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, str(before))


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
    monkeypatch.setattr(small_batches, "LIMIT_BYTES", 400_000)
    fitting = 400_000 // (16 + letters)
    assert small_table(rows(spark, fitting * 9 // 10, letters)) is not None
    assert small_table(rows(spark, fitting * 12 // 10, letters)) is None


def test_one_large_partition_is_too_much(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "LIMIT_BYTES", 40_000)
    assert small_table(rows(spark, 2000, 0).where("id >= 1000")) is not None
    assert small_table(rows(spark, 4000, 0).where("id >= 2000")) is None


def test_other_errors_are_raised(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="no such luck"):
        small_table(spark.range(10).selectExpr("if(id = 5, raise_error('no such luck'), id) as id"))


@pytest.mark.parametrize(
    "column",
    [
        "repeat(cast(id as string), 500)",
        "array_repeat(id, 250)",
        "named_struct('a', repeat('x', 2000), 'b', id)",
        "map_from_arrays(sequence(0, 50), array_repeat('y', 51))",
    ],
)
def test_values_count_by_what_they_hold(
    spark: SparkSession, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "LIMIT_BYTES", 400_000)
    wide = spark.range(0, 1000, 1, 2).selectExpr(f"if(id % 7 = 0, null, {column}) as wide")
    assert small_table(wide) is None
    few = small_table(wide.limit(20))
    assert few is not None
    assert few.num_rows == 20
    assert few["wide"].null_count > 0


@pytest.mark.parametrize("limit_bytes", [1_000_000, 10_000])
def test_what_is_observed_is_of_the_whole_batch(
    spark: SparkSession, limit_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "LIMIT_BYTES", limit_bytes)
    seen = Observation()
    batch = rows(spark, 5_000, 3).observe(seen, F.count(F.lit(1)).alias("n"), F.max("id").alias("newest"))
    table = small_table(batch)
    assert (table is None) == (limit_bytes == 10_000)
    assert observed(seen) == {"n": 5_000, "newest": 4_999}


def test_a_batch_that_takes_much_is_not_tried_and_what_outputs_had_tells_how_much_is_much(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[DataFrame] = []
    monkeypatch.setattr(small_batches, "small_table", tried.append)
    small = SmallBatches(4 << 20)
    df = spark.range(1)

    def is_tried(input_bytes: int) -> bool:
        tried.clear()
        with taking(input_bytes):
            small.table(df)
        return bool(tried)

    assert is_tried(0)
    assert is_tried(4 << 20)
    assert not is_tried(5 << 20)
    with taking(40 << 20):
        small.record_output(10 << 20)  # a quarter of what it took
    assert is_tried(16 << 20)
    assert not is_tried(17 << 20)
    with taking(10):
        small.record_output(3 << 20)  # an input of nearly nothing says nothing of larger ones
    assert is_tried(1 << 20)
    assert not is_tried(2 << 20)


def test_a_batch_is_not_tried_if_it_may_have_a_large_state(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[DataFrame] = []
    monkeypatch.setattr(small_batches, "small_table", tried.append)
    small, df = SmallBatches(4 << 20), spark.range(1).selectExpr("id", "'' AS text")
    with taking(0, held_rows=100_000):
        small.table(df)
    assert tried == [df]
    with taking(0, held_rows=110_000):
        small.table(df)
    assert tried == [df], "a row has about 40 bytes"
