"""Messages to Arrow columns and back: every type that can be declared, nulls, and what does not fit."""

from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from drivetrain.api.types import MessageType, message_type
from drivetrain.errors import OperatorError
from drivetrain.spark.compile.arrow_messages import (
    columns_of,
    field_names,
    message_text,
    messages_of,
    row_class,
)
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered
from nightly_run import examples

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
UTC_STAMPS = st.integers(-2 * 10**15, 8 * 10**15).map(
    lambda us: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us)
)
DECIMALS = st.decimals(-(10**19), 10**19, places=18, allow_nan=False)
TS = pa.timestamp("us", "UTC")
SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), INT64),
    (pa.string(), TEXT),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.binary(), st.binary(max_size=8)),
    (TS, UTC_STAMPS),
    (pa.date32(), st.dates()),
    (pa.decimal128(38, 18), DECIMALS),
    (pa.list_(pa.int64()), st.lists(INT64, max_size=3)),
    (pa.list_(pa.list_(pa.string())), st.lists(st.lists(TEXT, max_size=2), max_size=2)),
    (pa.map_(pa.string(), pa.int64()), st.dictionaries(TEXT, INT64, max_size=3)),
    (pa.list_(pa.map_(pa.string(), pa.int64())), st.lists(st.dictionaries(TEXT, INT64, max_size=2))),
    (pa.map_(pa.int64(), pa.list_(TS)), st.dictionaries(INT64, st.lists(UTC_STAMPS, max_size=2), max_size=2)),
]  # fmt: skip
ONE = MessageType("value x", (("value", "x"),), None, scalar=True)


@dataclass(frozen=True)
class Flight:
    carrier: str | None
    delay: int | None


class Leg(NamedTuple):
    carrier: str | None
    delay: int | None


RECORD = pa.schema([("carrier", pa.string()), ("delay", pa.int64())])
KEYED = pa.schema([("key", pa.string()), ("value", pa.int64())])
TWO = pa.schema([("a", pa.string()), ("b", pa.string())])


def columns(messages: list[Any], declared: MessageType, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns_of(messages, declared, schema, "map (app.py:3)"), schema=schema)


def misfit(messages: list[Any], declared: MessageType, schema: pa.Schema) -> OperatorError:
    with pytest.raises(EmbeddedError) as caught:
        columns_of(messages, declared, schema, "map (app.py:3)")
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert error.operator == "map (app.py:3)"
    return error


# -- round trips ------------------------------------------------------------------------------------------


@given(st.sampled_from(SCALARS), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_a_value_of_any_type_or_none_comes_back_as_it_was(
    kind: tuple[pa.DataType, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    type_, values = kind
    messages = data.draw(st.lists(st.none() | values, max_size=6))
    batch = columns(messages, ONE, pa.schema([("value", type_)]))
    assert messages_of(batch, ("value",), None) == messages


@given(st.lists(st.builds(Flight, st.none() | TEXT, st.none() | INT64), max_size=6))
@settings(deadline=None)
def test_dataclasses_come_back_equal(messages: list[Flight]) -> None:
    batch = columns(messages, message_type(Flight), RECORD)
    assert messages_of(batch, ("carrier", "delay"), Flight) == messages


@given(st.lists(st.builds(Leg, st.none() | TEXT, st.none() | INT64), max_size=6))
@settings(deadline=None)
def test_named_tuples_come_back_equal_and_so_do_rows(messages: list[Leg]) -> None:
    batch = columns(messages, message_type(Leg), RECORD)
    assert messages_of(batch, ("carrier", "delay"), Leg) == messages
    rows = messages_of(batch, ("carrier", "delay"), None)
    assert rows == messages
    assert all((r.carrier, r.delay) == m for r, m in zip(rows, messages, strict=True))


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | INT64), max_size=6), st.booleans())
@settings(deadline=None)
def test_tuples_come_back_equal_also_where_the_type_is_text(messages: list[Any], as_text: bool) -> None:
    declared = MessageType("key string, value bigint") if as_text else message_type(tuple[str, int])
    schema = pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert messages_of(columns(messages, declared, schema), ("key", "value"), tuple) == messages


def test_a_class_finds_its_fields_among_more_columns_in_any_order() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [0], "delay": [5], "carrier": ["UA"]})
    assert messages_of(batch, ("x", "delay", "carrier"), Flight) == [Flight("UA", 5)]


def test_columns_whose_names_are_no_attributes_are_found_by_position() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["class", "2nd"])
    ((first, second),) = messages_of(batch, ("class", "2nd"), None)
    assert (first, second) == (1, 2)


def test_nested_dataclasses_tuples_and_sets_are_columns_as_declared() -> None:
    type_ = pa.list_(pa.struct([("carrier", pa.string()), ("delay", pa.int64())]))
    batch = columns([[Flight("UA", 1)], [Leg("AA", 2)]], ONE, pa.schema([("value", type_)]))
    assert messages_of(batch, ("value",), None) == [
        [{"carrier": "UA", "delay": 1}],
        [{"carrier": "AA", "delay": 2}],
    ]
    sets = columns([frozenset({1}), {2}], ONE, pa.schema([("value", pa.list_(pa.int64()))]))
    assert messages_of(sets, ("value",), None) == [[1], [2]]


# -- what does not fit ----------------------------------------------------------------------------------

WRONG: list[tuple[Any, pa.DataType]] = [
    ("7", pa.int64()),
    (1.5, pa.int64()),
    (float("nan"), pa.int64()),
    (Decimal("1.5"), pa.int64()),
    (True, pa.int64()),
    (2**63, pa.int64()),
    (7, pa.string()),
    ("\ud800", pa.string()),
    (b"\xff", pa.string()),
    (1, pa.bool_()),
    ("x", pa.float64()),
    (5, TS),
    (1.5, TS),
    (dt.date(2026, 1, 1), TS),
    (5, pa.date32()),
    (1.5, pa.decimal128(38, 18)),
    (Decimal("NaN"), pa.decimal128(38, 18)),
    (Decimal(10) ** 30, pa.decimal128(38, 18)),
    ("abc", pa.list_(pa.string())),
    (b"abc", pa.list_(pa.int64())),
    ([1.5], pa.list_(pa.int64())),
    ([[1], [1.5]], pa.list_(pa.list_(pa.int64()))),
    ((1.5,), pa.list_(pa.int64())),
    ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
    ({1.5: "a"}, pa.map_(pa.int64(), pa.string())),
    ({"a": 5}, pa.map_(pa.string(), TS)),
    ({"a": 1.5}, pa.struct([("a", pa.int64())])),
    ((1.5,), pa.struct([("a", pa.int64())])),
    (Flight("UA", 1.5), pa.struct([("carrier", pa.string()), ("delay", pa.int64())])),  # type: ignore[arg-type]
    (object(), pa.int64()),
    (7, pa.list_(pa.int64())),
]


@pytest.mark.parametrize(("value", "type_"), WRONG, ids=[f"{v!r:.20} as {t}" for v, t in WRONG])
def test_a_value_that_does_not_fit_is_an_error_that_shows_it(value: Any, type_: pa.DataType) -> None:
    """Never another value in the column: what Arrow would cut or take apart is refused."""
    error = misfit([None, value], ONE, pa.schema([("value", type_)]))
    assert f"column value to be {type_}" in error.what
    assert f"got {value!r} ({type(value).__name__})" in error.what
    assert error.message == repr(value)


@pytest.mark.parametrize("value", [2.0, Decimal(2), 2])
def test_a_whole_number_fits_an_integer_column_whatever_its_class(value: Any) -> None:
    batch = columns([value], ONE, pa.schema([("value", pa.int64())]))
    assert batch.column(0).to_pylist() == [2]


@pytest.mark.parametrize(
    ("declared", "schema", "value"),
    [
        (message_type(tuple[str, int]), KEYED, ("a", 1, 2)),
        (message_type(tuple[str, int]), KEYED, None),
        (message_type(tuple[str, int]), KEYED, 7),
        (MessageType("a string, b string"), TWO, "xy"),
        (MessageType("a string, b string"), TWO, {"b": 1, "a": 2}),
        (message_type(Flight), RECORD, ("UA", 7)),
        (message_type(Flight), RECORD, None),
    ],
)  # fmt: skip
def test_a_result_of_another_shape_is_an_error_that_shows_it(
    declared: MessageType, schema: pa.Schema, value: Any
) -> None:
    error = misfit([value], declared, schema)
    assert "a result does not have the declared type" in error.what
    assert error.message == repr(value)


def test_the_culprit_is_found_among_good_messages() -> None:
    good = [Flight("UA", n) for n in range(50)]
    error = misfit([*good, Flight("AA", "late"), *good], message_type(Flight), RECORD)  # type: ignore[arg-type]
    assert "column delay to be int64, got 'late' (str)" in error.what
    assert error.message == "Flight(carrier='AA', delay='late')"


# -- for people -----------------------------------------------------------------------------------------


@given(st.text(max_size=1200))
def test_a_long_message_is_cut_and_says_so(text: str) -> None:
    shown = message_text(text)
    assert len(shown) <= 500
    assert shown == repr(text) if len(repr(text)) <= 500 else shown.endswith("…")


def test_fields_are_told_in_order_and_rows_of_one_shape_share_a_class() -> None:
    assert field_names(Flight) == field_names(Leg) == ("carrier", "delay")
    assert field_names(int) == ()
    assert row_class(("a", "b")) is row_class(("a", "b"))


def test_a_row_is_pickled_by_the_names_of_its_columns_and_not_with_its_class() -> None:
    row = row_class(("key", "odd name"))("a", 1)
    pickled = pickle.dumps(row)
    assert pickle.loads(pickled) == row
    assert type(pickle.loads(pickled)) is type(row)
    assert len(cloudpickle.dumps(row)) < 200
