"""Durations, sizes, numbers and tables are read as written and shown so that they can be read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.config import (
    Parser,
    boolean,
    choice,
    duration_ms,
    integer,
    local_path,
    number,
    show_duration_ms,
    show_size_bytes,
    size_bytes,
    table,
    text,
)


@pytest.mark.parametrize(
    ("written", "expected_ms"),
    [
        ("200 ms", 200),
        ("100 s", 100_000),
        ("1.5s", 1_500),
        ("5 min", 300_000),
        ("2 h", 7_200_000),
        ("1 day", 86_400_000),
        ("3 Hours", 10_800_000),
    ],
)
def test_duration_becomes_whole_milliseconds(written: str, expected_ms: int) -> None:
    assert duration_ms().read(written) == expected_ms


@pytest.mark.parametrize(
    ("written", "expected_bytes"),
    [("10 MiB", 10_485_760), ("2 GiB", 2**31), ("512kB", 512_000), ("1 byte", 1), ("1.5 KiB", 1536)],
)
def test_size_becomes_whole_bytes(written: str, expected_bytes: int) -> None:
    assert size_bytes().read(written) == expected_bytes


@pytest.mark.parametrize(
    "raw", ["100", 100, "1.5 ms", "-1 s", "s", "1 fortnight", "", True, None, "1 s 2 ms"]
)
def test_duration_without_a_clear_meaning_is_refused(raw: object) -> None:
    with pytest.raises(ValueError):
        duration_ms().read(raw)


@pytest.mark.parametrize("raw", ["100", 1024, "1.5 B", "-1 MiB", "1 MiB/s", [], None])
def test_size_without_a_clear_meaning_is_refused(raw: object) -> None:
    with pytest.raises(ValueError):
        size_bytes().read(raw)


@given(st.integers(min_value=0, max_value=10**15))
def test_shown_durations_and_sizes_read_back_as_the_same_value(value: int) -> None:
    assert duration_ms().read(show_duration_ms(value)) == value
    assert size_bytes().read(show_size_bytes(value)) == value


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans()))
def test_shown_table_reads_back_as_the_same_table(written: dict[str, object]) -> None:
    value = table().read(written)
    assert table().read(table().show(value)) == value


@given(st.floats(min_value=1.0, max_value=100.0))
def test_shown_number_reads_back_as_the_same_number(value: float) -> None:
    parser = number(1.0, 100.0)
    assert parser.read(parser.show(value)) == value


def test_nested_tables_become_dotted_names_and_booleans_are_written_as_spark_writes_them() -> None:
    assert table().read({"spark": {"sql": {"ansi.enabled": True, "n": 3}}}) == {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.n": "3",
    }


@pytest.mark.parametrize(
    ("parser", "raw"),
    [
        (integer(1, 10), 0),
        (integer(1, 10), "11"),
        (integer(), "1.0"),
        (integer(), True),
        (integer(), 2.0),
        (number(), "nan"),
        (number(), "inf"),
        (number(0), -0.1),
        (number(), False),
        (boolean(), "maybe"),
        (boolean(), 1),
        (choice("lz4", "zstd"), "gzip"),
        (text(), "  "),
        (text(), 5),
        (local_path(), "s3://bucket/state"),
        (local_path(), ""),
        (table(), "[1]"),
        (table(), "not json"),
        (table(), {"a": [1]}),
    ],
)
def test_value_outside_of_what_is_expected_is_refused(parser: Parser[object], raw: object) -> None:
    with pytest.raises(ValueError):
        parser.read(raw)


@pytest.mark.parametrize(("raw", "value"), [("yes", True), ("OFF", False), (True, True), ("0", False)])
def test_boolean_takes_the_usual_words(raw: object, value: bool) -> None:
    assert boolean().read(raw) is value
