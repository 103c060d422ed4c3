"""The pure parts of Delta sinks: columns that fit, partitions as text, statistics, marks."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.connectors.partition_values import (
    folder_of,
    require_partitions,
    runs,
    text_of,
    value_of,
)
from drivetrain.connectors.tables.column_statistics import Statistics
from drivetrain.connectors.tables.table_columns import fit, nullable, require_types, same
from drivetrain.connectors.tables.table_marks import NOBODY, Marks
from drivetrain.core.checkpoint.publication import NONE
from drivetrain.errors import OutputError

# -- columns -------------------------------------------------------------------------------------------


def fitted(given_type: pa.DataType, table_type: pa.DataType) -> pa.DataType:
    return (
        fit(pa.schema([("c", given_type)]), pa.schema([("c", table_type)]), "t", evolve=False).columns[0].type
    )


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (pa.int8(), pa.int16()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(8, 2), pa.decimal128(10, 3)),
    ],
)
def test_a_narrower_type_is_written_as_the_tables_and_a_wider_one_is_refused(
    narrow: pa.DataType, wide: pa.DataType
) -> None:
    assert fitted(narrow, wide) == wide
    with pytest.raises(OutputError, match="another type in the table"):
        fitted(wide, narrow)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.float64()),
        (pa.string(), pa.binary()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.decimal128(9, 2), pa.decimal128(9, 3)),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())])),
    ],
)
def test_types_that_could_lose_something_do_not_fit(one: pa.DataType, other: pa.DataType) -> None:
    for pair in ((one, other), (other, one)):
        with pytest.raises(OutputError, match="another type in the table"):
            fitted(*pair)


def test_parts_of_nested_types_may_have_other_names_but_not_other_nulls() -> None:
    ours = pa.list_(pa.field("item", pa.struct([("a", pa.string())])))
    theirs = pa.list_(pa.field("element", pa.struct([("a", pa.large_string())])))
    assert same(ours, theirs)
    strict = pa.list_(pa.field("element", pa.struct([pa.field("a", pa.string(), nullable=False)])))
    with pytest.raises(OutputError, match="no null within the column c"):
        fitted(ours, strict)
    relaxed = nullable(pa.schema([pa.field("c", strict, nullable=False)]))
    assert same(fitted(ours, relaxed[0].type), ours)
    assert relaxed[0].nullable


def test_columns_that_are_missing_on_either_side() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    less = fit(pa.schema([("id", pa.int64())]), table, "t", evolve=False)
    assert (less.columns.names, less.required, less.added) == (["id"], ("id",), ())
    more = fit(pa.schema([("id", pa.int64()), ("new", pa.date32())]), table, "t", evolve=True)
    assert [field.name for field in more.added] == ["new"]
    with pytest.raises(OutputError, match="requires a value for id"):
        fit(pa.schema([("v", pa.string())]), table, "t", evolve=True)


def test_types_without_equivalent_are_found_at_any_depth() -> None:
    deep = pa.struct([("x", pa.list_(pa.map_(pa.string(), pa.time64("us"))))])
    with pytest.raises(OutputError, match="type of the column deep"):
        require_types(pa.schema([("deep", deep)]), "t")


# -- partitions ----------------------------------------------------------------------------------------

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(st.characters(codec="utf-8"), min_size=1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(dt.datetime(1000, 1, 1), timezones=st.just(dt.UTC))),  # noqa: DTZ001
    (pa.timestamp("us"), st.datetimes(dt.datetime(1000, 1, 1))),  # noqa: DTZ001
    (pa.decimal128(12, 3), st.decimals(-1000, 1000, places=3)),
]


@given(st.sampled_from(VALUES).flatmap(lambda kind: st.tuples(st.just(kind[0]), st.none() | kind[1])))
def test_a_partitions_value_is_the_same_after_it_was_text(one: tuple[pa.DataType, Any]) -> None:
    kind, value = one
    assert value_of(text_of(value), kind).as_py() == value


def test_values_of_partitions_as_text_and_as_folders() -> None:
    assert text_of("") == ""
    assert folder_of({"p": ""}) == folder_of({"p": None})
    assert text_of(Decimal("1.50")) == "1.50"
    assert folder_of({}) == ""
    assert folder_of({"a b": "x/y=1 %", "n": None}) == "a%20b=x%2Fy%3D1%20%25/n=__HIVE_DEFAULT_PARTITION__"


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, None]))))
def test_runs_are_the_rows_in_order_and_each_has_one_partition(
    rows: list[tuple[str | None, int | None]],
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "p": pa.array([p for p, _ in rows], pa.string()),
            "q": pa.array([q for _, q in rows], pa.int64()),
            "at": pa.array(range(len(rows)), pa.int64()),
        }
    )
    seen, last = [], None
    for partition, part in runs(batch, ["p", "q"]):
        assert partition != last
        last = partition
        assert part.num_rows
        for row in part.to_pylist():
            assert {"p": text_of(row["p"]), "q": text_of(row["q"])} == partition
            seen.append(row["at"])
    assert seen == list(range(len(rows)))
    assert [part.num_rows for _, part in runs(batch, [])] == ([len(rows)] if rows else [])


def test_columns_that_cannot_be_partitions_are_refused() -> None:
    columns = pa.schema([("f", pa.float64()), ("l", pa.list_(pa.int32())), ("s", pa.string())])
    for name in ("f", "l"):
        with pytest.raises(OutputError, match="cannot divide a table"):
            require_partitions(columns, [name], "t")
    with pytest.raises(OutputError, match="every column is a partition column"):
        DeltaTarget("t", "t").require_partitions(pa.schema([("s", pa.string())]), ["s"])
    require_partitions(columns, ["s"], "t")


# -- statistics ----------------------------------------------------------------------------------------


def statistics(kind: pa.DataType, *batches: list[Any]) -> dict[str, Any]:
    schema = pa.schema([("c", kind)])
    made = Statistics(schema)
    for values in batches:
        made.add(pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema))
    return dict(json.loads(made.to_json()))


def test_statistics_are_bounds_in_the_form_of_the_log() -> None:
    assert statistics(pa.int64(), [3, None], [-1], [None]) == {
        "numRecords": 4,
        "minValues": {"c": -1},
        "maxValues": {"c": 3},
        "nullCount": {"c": 2},
    }
    instant = [dt.datetime(2024, 1, 1, 0, 0, 0, 1999, dt.UTC)]
    found = statistics(pa.timestamp("us", "UTC"), instant)
    assert found["minValues"] == {"c": "2024-01-01T00:00:00.001Z"}
    assert found["maxValues"] == {"c": "2024-01-01T00:00:00.002Z"}
    assert statistics(pa.date32(), [dt.date(2024, 2, 29)])["maxValues"] == {"c": "2024-02-29"}
    long = statistics(pa.string(), ["x" * 40, "é"])
    assert long["minValues"] == {"c": "x" * 32}
    assert long["maxValues"] == {"c": "é"}
    assert statistics(pa.string(), ["x" * 40])["maxValues"] == {}


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_of_numbers_that_readers_order_differently_nothing_is_said(odd: float) -> None:
    for batches in ([[1.0], [odd]], [[odd], [1.0]], [[1.0, odd]]):
        found = statistics(pa.float64(), *batches)
        assert found["minValues"] == found["maxValues"] == {}
        assert found["nullCount"] == {"c": 0}
    for kind, value in ((pa.decimal128(5, 1), Decimal("1.5")), (pa.binary(), b"x"), (pa.bool_(), True)):
        assert statistics(kind, [value])["maxValues"] == {}


# -- marks ---------------------------------------------------------------------------------------------


def test_marks_say_which_batches_a_table_has_of_a_state() -> None:
    marks, others = Marks("app", "s", "a" * 32), Marks("app", "s", "b" * 32)

    def published(owner: int | None, batch: int | None, **more: bool) -> int:
        return marks.published(owner, batch, "t", **{"may_mix": False, **more})

    assert marks.after(7) == {"drivetrain/app/s/owner": marks.number, "drivetrain/app/s/batch": 7}
    assert marks.number != others.number
    assert published(None, None) == NONE
    assert published(marks.number, 7) == 7
    assert published(NOBODY, NONE) == NONE
    assert published(others.number, 7, may_mix=True) == NONE
    with pytest.raises(OutputError, match="another state directory"):
        published(others.number, 7)
    for owner in (NOBODY, None, others.number):
        with pytest.raises(OutputError, match="taken over"):
            published(owner, 7, had=True, may_mix=True)
