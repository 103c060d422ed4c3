"""Partial results of batches merge to what a pass over the messages gives."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from drivetrain.connectors.schema import to_arrow
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import UserError
from drivetrain.runtime.channel.columns import WM
from drivetrain.spark.channel import reduced_batches
from drivetrain.spark.channel.reduced_batches import Reducer
from drivetrain.spark.channel.watermark import END_WATERMARK_MS, SHIFT_MS
from drivetrain.spark.connector.reduction import END, ROWS, PartialValue, Reduction, name_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COLUMNS = (
    StructType()
    .add("at", TimestampType())
    .add("k", StringType())
    .add("b", BooleanType())
    .add("n", LongType())
    .add("i", IntegerType())
    .add("d", DateType())
)
VALUES = (
    PartialValue("count"),
    PartialValue("count", "k"),
    PartialValue("sum", "n"),
    PartialValue("sum", "i"),
    PartialValue("min", "n"),
    PartialValue("max", "i"),
    PartialValue("min", "d"),
    PartialValue("max", "at"),
)
NO_END = EPOCH + dt.timedelta(milliseconds=FINAL_CLOCK_MS)

FIRST_US = -SHIFT_MS * 1000
times = st.one_of(st.integers(0, 60_000_000), st.integers(FIRST_US, 0), st.just(FINAL_CLOCK_MS * 1000)).map(
    lambda us: EPOCH + dt.timedelta(microseconds=us)
)
messages = st.fixed_dictionaries(
    {
        "at": times,
        "k": st.sampled_from([None, "", "a", "ä"]),
        "b": st.sampled_from([None, True, False]),
        "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5)),
        "i": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "d": st.one_of(st.none(), st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 9))),
    }
)


def reduction(keys: tuple[str, ...] = ("k", "b"), size_ms: int = 10_000) -> Reduction:
    return Reduction(keys, VALUES, "at", size_ms, SHIFT_MS % size_ms, 5_000, "read")


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Rows with timestamps as µs: some are beyond Python's."""
    found = []
    for batch in batches:
        as_numbers = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in batch.columns
        ]
        found += pa.RecordBatch.from_arrays(as_numbers, batch.schema.names).to_pylist()
    return found


def micros(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(microseconds=1)


def naive(given: list[dict[str, Any]], by: Reduction) -> dict[tuple[Any, ...], list[Any]]:
    """Each group's values, from all of its messages."""
    groups = defaultdict(list)
    for message in given:
        start = micros(message["at"]) // (by.size_ms * 1000) * by.size_ms * 1000
        end = start + by.size_ms * 1000 + SHIFT_MS * 1000
        groups[(*(message[key] for key in by.keys), end)].append({**message, "at": micros(message["at"])})
    return {group: [_value(value, of) for value in by.values] for group, of in groups.items()}


def _value(value: PartialValue, messages: list[dict[str, Any]]) -> Any:
    known = [m if value.column is None else m[value.column] for m in messages]
    known = [v for v in known if v is not None]
    if value.function == "count":
        return len(known)
    return {"sum": sum, "min": min, "max": max}[value.function](known) if known else None


def merged(rows: list[dict[str, Any]], by: Reduction) -> dict[tuple[Any, ...], list[Any]]:
    """What Spark's aggregation makes of partial results."""
    groups = defaultdict(list)
    for row in rows:
        groups[(*(row[key] for key in by.keys), row[END])].append(row)
    found = {}
    for group, partial in groups.items():
        values = []
        for number, value in enumerate(by.values):
            known = [row[name_of(number)] for row in partial if row[name_of(number)] is not None]
            how = "sum" if value.function == "count" else value.function
            values.append({"sum": sum, "min": min, "max": max}[how](known) if known else None)
        found[group] = values
    return found


@pytest.mark.parametrize("few", [0, 1_000])
@given(
    given=st.lists(st.lists(messages, max_size=8), max_size=4), keys=st.sampled_from([(), ("k",), ("k", "b")])
)
def test_partial_results_merge_to_the_results_of_the_messages(
    few: int, given: list[list[dict[str, Any]]], keys: tuple[str, ...]
) -> None:
    by = reduction(keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduced_batches, "_FEW", few)
        batches = [pa.RecordBatch.from_pylist(batch, schema=to_arrow(COLUMNS)) for batch in given]
        rows = rows_of(Reducer(by, COLUMNS).reduced(iter(batches), ends=False))
    everything = [message for batch in given for message in batch]
    assert merged(rows, by) == naive(everything, by)
    assert sum(row[ROWS] for row in rows) == len(everything)
    moving = [micros(m["at"]) + SHIFT_MS * 1000 if m["at"] < NO_END else 0 for m in everything]
    assert max((row[WM] for row in rows), default=0) == max(moving, default=0)


def test_messages_of_few_groups_are_grouped_and_others_are_not() -> None:
    def batch(keys: int) -> pa.RecordBatch:
        rows = [{"at": EPOCH, "k": f"k{n % keys}", "n": n} for n in range(2_000)]
        return pa.RecordBatch.from_pylist(rows, schema=to_arrow(COLUMNS))

    reducer = Reducer(reduction(("k",)), COLUMNS)
    sizes = [made.num_rows for made in reducer.reduced(iter([batch(3), batch(1_500), batch(3)]), ends=False)]
    assert sizes == [3, 1_500, 2_000]


def test_sums_that_could_overflow_are_not_made() -> None:
    rows = [{"at": EPOCH, "n": n} for n in (2**62, 2**62, -(2**62))]
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow(COLUMNS))
    (made,) = Reducer(reduction(()), COLUMNS).reduced(iter([batch]), ends=False)
    assert made[name_of(2)].to_pylist() == [2**62, 2**62, -(2**62)]


def test_the_end_is_a_row_that_stands_for_no_message() -> None:
    (end,) = rows_of(Reducer(reduction(), COLUMNS).reduced(iter([]), ends=True))
    assert end.pop(ROWS) == 0
    assert end.pop(WM) == (END_WATERMARK_MS + 5_000) * 1000
    assert set(end.values()) == {None}


def test_a_message_without_a_timestamp_is_an_error_that_shows_it() -> None:
    rows = [{"at": EPOCH, "k": "a"}, {"k": "lost", "n": 3}]
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow(COLUMNS))
    with pytest.raises(UserError, match="a message has no event timestamp") as raised:
        list(Reducer(reduction(), COLUMNS).reduced(iter([batch]), ends=False))
    assert (raised.value.where, raised.value.got) == ("read", '{"k": "lost", "n": 3}')


def test_a_timestamp_that_cannot_be_counted_is_an_error() -> None:
    far = pa.array([2**63 - 1]).cast(pa.timestamp("us", "UTC"))
    columns = [far, *(pa.nulls(1, field.type) for field in list(to_arrow(COLUMNS))[1:])]
    batch = pa.RecordBatch.from_arrays(columns, schema=to_arrow(COLUMNS))
    with pytest.raises(UserError, match="too late to be counted"):
        list(Reducer(reduction(), COLUMNS).reduced(iter([batch]), ends=False))


def test_only_types_whose_results_do_not_depend_on_the_grouping_are_reduced() -> None:
    assert reduction().fits(COLUMNS)
    for name, other in (
        ("k", DoubleType()),
        ("n", DoubleType()),
        ("at", LongType()),
        ("k", StringType("UNICODE")),
    ):
        fields = [(f.name, other if f.name == name else f.dataType) for f in COLUMNS.fields]
        changed = StructType()
        for field in fields:
            changed.add(*field)
        assert not reduction().fits(changed), (name, other)
    assert not reduction().fits(StructType(COLUMNS.fields).add("K", StringType())), "Spark takes them for one"
    assert not reduction(("other",)).fits(COLUMNS)
