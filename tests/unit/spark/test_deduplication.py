"""Deduplication as Spark's workers do it, without Spark: any batches, any disorder, any types of columns."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from fake_group import FakeGroup
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS
from drivetrain.core.state.paged_state import BUCKETS
from drivetrain.core.state.state_keys import canonical_key
from drivetrain.errors import InputError
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.compile.deduplication import DeduplicateFunction, RowPack, UnpackRows
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered

TS = pa.timestamp("us", "UTC")
SECOND = 1_000_000
ISSUED = [0, 30, 60, 61, 119, 121, 180, 500, 5_000, 50_000]


class Buckets:
    """Spark, as far as a deduplication sees it: groups, batches, timeouts."""

    def __init__(self, span_us: int, keys: tuple[str, ...] = ("key",)) -> None:
        self.function = DeduplicateFunction(span_us, "once (app.py:1)")
        self.keys = keys
        self.groups: dict[int, FakeGroup] = defaultdict(FakeGroup)
        self.late = 0

    def batch(self, rows: pa.Table | None, clock_ms: int) -> list[dict[str, Any]]:
        payloads: dict[int, list[bytes]] = defaultdict(list)
        columns = () if rows is None else tuple(rows.column_names)
        for packed in RowPack(self.keys, columns)(iter([] if rows is None else rows.to_batches())):
            for bucket, payload in zip(*(packed.column(i).to_pylist() for i in (0, 1)), strict=True):
                payloads[bucket].append(payload)
        passed: list[dict[str, Any]] = []
        for bucket in range(BUCKETS):
            group = self.groups[bucket]
            due = group.timeout_ms is not None and group.timeout_ms < watermark_of(clock_ms)
            if bucket in payloads or due:
                group.clock_ms, group.hasTimedOut, group.timeout_ms = clock_ms, bucket not in payloads, None
                frame = pd.DataFrame({"payload": payloads[bucket]})
                for out in self.function((bucket,), iter([frame]), group):
                    self.late += out["late"][0]
                    if out["payload"][0] is not None:
                        given_batch = pa.RecordBatch.from_arrays(
                            [pa.array(list(out["payload"]))], names=["payload"]
                        )
                        names = ("key", "n", "__ts")
                        for made in UnpackRows(names)(iter([given_batch])):
                            passed += made.to_pylist()
        return passed


def table(times_us: list[int], keys: list[Any], type_: pa.DataType | None = None) -> pa.Table:
    return pa.table(
        {"key": pa.array(keys, type_), "n": range(len(keys)), "__ts": pa.array(times_us, TS)}
    )  # fmt: skip


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, int]]:
    return sorted((row["key"], pa.scalar(row["__ts"], TS).value) for row in rows)


def one_pass(messages: list[tuple[int, Any]], span_us: int) -> list[tuple[Any, int]]:
    """The first of each key, and each that is farther than the span from the last one that passed."""
    last: dict[Any, int] = {}
    passed = []
    for time, key in sorted(messages):
        if key not in last or time - last[key] > span_us:
            last[key] = time
            passed.append((key, time))
    return sorted(passed)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_messages_farther_than_the_span_pass_whatever_shares_a_batch(size: int) -> None:
    spark = Buckets(60 * SECOND)
    passed, clock_ms = [], 0
    for begin in range(0, len(ISSUED), size):
        times = ISSUED[begin : begin + size]
        passed += spark.batch(table([t * SECOND for t in times], ["k"] * len(times)), clock_ms)
        clock_ms = times[-1] * 1000
        passed += spark.batch(None, clock_ms)
    passed += spark.batch(None, FINAL_CLOCK_MS)
    assert [t // SECOND for _, t in told(passed)] == [0, 61, 180, 500, 5_000, 50_000]
    assert all(group.value is None for group in spark.groups.values())


@given(
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 5)), max_size=60),
    st.integers(0, 12_000),
    st.integers(0, 9_000),
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_disorder_in_any_batches_gives_what_one_pass_in_order_gives(
    messages: list[tuple[int, int]], span_us: int, disorder_us: int, sizes: list[int], draw: random.Random
) -> None:
    arriving = sorted(messages, key=lambda m: m[0] + draw.randint(0, disorder_us))
    spark, passed, newest_us, clock_ms, at = Buckets(span_us), [], 0, 0, 0
    while at < len(arriving):
        size = sizes[at % len(sizes)]
        part = arriving[at : at + size]
        made = spark.batch(table([t for t, _ in part], [k for _, k in part], pa.int64()), clock_ms)
        assert all(time <= clock_ms * 1000 for _, time in told(made))
        passed += made
        newest_us = max(newest_us, *(time for time, _ in part))
        clock_ms = max(clock_ms, (newest_us - disorder_us) // 1000)
        at += size
    passed += spark.batch(None, FINAL_CLOCK_MS)
    assert told(passed) == one_pass(messages, span_us)
    assert spark.late == 0


def test_messages_from_before_1970_and_of_no_end_are_messages_as_any() -> None:
    year, no_end = -86_400 * 365 * SECOND, FINAL_CLOCK_MS * 1000 + 5
    spark = Buckets(60 * SECOND)
    passed = spark.batch(table([year, year + 1, year + 61 * SECOND, no_end], ["a"] * 4), NO_CLOCK_MS)
    passed += spark.batch(None, year // 1000 + 61_000)
    assert [row["n"] for row in passed] == [0, 2]
    assert [row["n"] for row in spark.batch(None, FINAL_CLOCK_MS)] == [3]
    assert spark.late == 0


def test_late_messages_are_counted_and_do_not_pass() -> None:
    spark = Buckets(10)
    assert told(spark.batch(table([5_000, 4_999], ["a", "b"]), 5)) == [("a", 5_000)]
    assert spark.late == 1


def test_of_messages_of_one_key_and_time_one_passes_whatever_their_order() -> None:
    rows = table([7, 7, 7], ["a"] * 3)
    found = set()
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        spark = Buckets(10)
        (row,) = spark.batch(rows.take(order), 0) + spark.batch(None, FINAL_CLOCK_MS)
        found.add(row["n"])
    assert found == {0}


def test_keys_are_equal_where_spark_groups_them_together() -> None:
    place = pa.struct([("x", pa.float64()), ("of", pa.list_(pa.float64()))])
    nan = float("nan")
    keys = [{"x": nan, "of": [0.0]}, {"x": -nan, "of": [-0.0]}, {"x": 1.0, "of": None}, None, None,
            {"x": 1.0, "of": [None, 1.0]}, {"x": 1.0, "of": [1.0, None]}]  # fmt: skip
    spark = Buckets(SECOND)
    rows = table(list(range(len(keys))), keys, place)
    passed = spark.batch(rows, 0) + spark.batch(None, FINAL_CLOCK_MS)
    assert sorted(row["n"] for row in passed) == [0, 2, 3, 5, 6]
    assert {canonical_key(row["key"]) for row in passed} == {canonical_key(key) for key in keys}


def test_a_state_that_is_of_another_span_is_refused_by_name() -> None:
    spark, other = Buckets(10), Buckets(11)
    spark.batch(table([1], ["a"]), 0)
    other.groups = spark.groups
    with pytest.raises(EmbeddedError, match="another span") as caught:
        other.batch(table([2], ["a"]), 0)
    error = recovered(str(caught.value))
    assert isinstance(error, InputError)
    assert error.where == "once (app.py:1)"
