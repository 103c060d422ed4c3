"""Parts of plans that are kept between the batches of a compilation: they are the same, and are released."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from harness import Harness
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import drivetrain
from drivetrain import Application, sources
from drivetrain.api.accumulators import accumulator
from drivetrain.spark.batch.branches import Branches
from drivetrain.spark.compile.compiled_parts import CompiledParts, mapped

LARGE_BYTES = 3 << 20
"""More than PySpark sends with a task."""
SIZES = StructType([StructField("n", LongType()), StructField("size", LongType())])
BATCHES = 4


cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Sizes:
    """A function that is large when it is pickled."""

    def __init__(self, size: int) -> None:
        self.table = bytes(size)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sizes = pa.array([len(self.table)] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column(0), sizes], names=["n", "size"])


def broadcast_files(spark: SparkSession) -> set[Path]:
    """The files of PySpark's broadcasts: each is deleted when its broadcast is destroyed."""
    return set(Path(str(spark.sparkContext._temp_dir)).iterdir())


def sizes(df: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["n"], row["size"]) for row in df.collect())


def test_a_large_function_is_sent_once_and_released(spark: SparkSession) -> None:
    df = spark.range(3).withColumnRenamed("id", "n").repartition(2)
    before, parts = broadcast_files(spark), CompiledParts()
    expected = [(n, LARGE_BYTES) for n in range(3)]
    with parts.active():
        assert sizes(mapped(df, Sizes(LARGE_BYTES), SIZES, "sizes")) == expected
        sent = broadcast_files(spark) - before
        assert len(sent) == 1
        assert sizes(mapped(df, Sizes(LARGE_BYTES), SIZES, "sizes")) == expected
        assert broadcast_files(spark) - before == sent, "the function was sent again"

        longer = mapped(df, Sizes(LARGE_BYTES + 1), SIZES, "sizes", of="another clock")
        assert sizes(longer) == [(n, LARGE_BYTES + 1) for n in range(3)]
        replaced = broadcast_files(spark) - before
        assert len(replaced) == 1
        assert replaced != sent

        parts.release()
        assert broadcast_files(spark) == before
        assert sizes(mapped(df, Sizes(LARGE_BYTES), SIZES, "sizes")) == expected, "it is computed again"
        parts.release()
    assert broadcast_files(spark) == before


def test_a_kept_function_gives_what_pyspark_gives(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "a"), (2, None)], "n bigint, `a b` string")
    with CompiledParts().active():
        kept, again = (mapped(df, Sizes(5), SIZES, "sizes") for _ in range(2))
    usual = df.mapInArrow(Sizes(5), SIZES)
    assert kept.__dict__["schema"] == usual.schema
    assert sizes(kept) == sizes(again) == sizes(usual) == [(1, 5), (2, 5)]


def test_large_functions_of_an_application_are_sent_once_and_gone_after_its_run(
    drive: Harness, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, seen = bytes(LARGE_BYTES), accumulator("seen")

    def size(n: int) -> int:
        seen.add(1)
        return n + len(table)

    def sum_of(n: int) -> int:
        return sum((n, len(table)))

    def difference(n: int) -> int:
        return max(0, len(table) - n)

    app = Application("large")
    stream = app.read(sources.items(list(range(12)), schema="n bigint"))
    drive.sink(stream.map(size, returns=int), "mapped")
    drive.sink(stream.select(n=sum_of, m=difference), "selected")
    before, during = broadcast_files(spark), list[set[Path]]()
    write = Branches._write_letters

    def written(self: Branches, *given: object) -> None:
        during.append(broadcast_files(spark) - before)
        write(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Branches, "_write_letters", written)

    result = drive.run(app, run__max_batch_rows="3")

    assert len(during) >= BATCHES
    assert during == [during[0]] * len(during), "a function was sent again"
    assert len(during[0]) == 3
    assert broadcast_files(spark) == before
    assert result.accumulators == {"seen": 12}
    for name in ("mapped", "selected"):
        assert sorted(row["n" if name == "selected" else "value"] for row in drive.rows(name)) == [
            n + LARGE_BYTES for n in range(12)
        ]


def test_columns_that_are_drawn_are_drawn_for_each_batch(drive: Harness) -> None:
    """A kept seed would give each batch the same numbers."""
    app = Application("drawn")
    stream = app.read(sources.items(list(range(12)), schema="n bigint"))
    drawn = stream.select("n", id=drivetrain.F.uuid(), number=drivetrain.F.rand())
    drive.sink(drawn, "drawn")

    drive.run(app, run__max_batch_rows="3")

    rows = drive.rows("drawn")
    assert len(rows) == 12
    assert len({row["id"] for row in rows}) == len({row["number"] for row in rows}) == 12
