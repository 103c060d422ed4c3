from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from drivetrain.connectors.in_process.generator import GeneratorPlan, GeneratorReader
from nightly_run import examples


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def ids(reader: GeneratorReader, start: int, end: int) -> list[int]:
    tables = [
        pa.Table.from_batches([batch])
        for part in reader.partitions({"rows": start}, {"rows": end})
        for batch in reader.read(part)
    ]
    return [n for table in tables for row in table.to_pylist() for n in range(row["lo"], row["hi"])]


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 300_000), st.integers(30_000, 200_000), st.integers(1, 4))
def test_batches_give_every_id_once_and_end(rows: int, most: int, parallelism: int) -> None:
    reader = GeneratorReader(GeneratorPlan(rows, None, most, parallelism))
    offset = reader.initialOffset()
    found: list[int] = []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        assert end["rows"] - offset["rows"] <= most
        found += ids(reader, offset["rows"], end["rows"])
        offset = end
    assert found == list(range(rows))


def test_a_rate_holds_rows_back_until_their_time_and_counts_from_the_start_of_the_run() -> None:
    clock = Clock()
    reader = GeneratorReader(GeneratorPlan(1000, 10.0, 500, 2), clock)
    assert reader.latestOffset({"rows": 40}, ReadMaxRows(500)) == {"rows": 40}
    clock.now_s += 1.55
    assert reader.latestOffset({"rows": 40}, ReadMaxRows(500)) == {"rows": 55}
    clock.now_s += 1000
    assert reader.latestOffset({"rows": 55}, ReadMaxRows(500)) == {"rows": 555}
    assert reader.latestOffset({"rows": 555}, ReadAllAvailable()) == {"rows": 1000}


def test_available_now_ends_an_endless_generator_after_what_was_there() -> None:
    reader = GeneratorReader(GeneratorPlan(None, None, 100, 2))
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"rows": 30}, ReadMaxRows(100)) == {"rows": 130}
    assert reader.latestOffset({"rows": 130}, ReadMaxRows(100)) == {"rows": 130}


def test_a_small_batch_is_one_task() -> None:
    reader = GeneratorReader(GeneratorPlan(None, None, 100, 8))
    assert len(reader.partitions({"rows": 0}, {"rows": 100})) == 1
    assert reader.partitions({"rows": 5}, {"rows": 5}) == []
