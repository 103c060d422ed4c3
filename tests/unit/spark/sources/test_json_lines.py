from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from file_reading import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from drivetrain.api import sources
from drivetrain.connectors.files import blocks
from drivetrain.connectors.files.json_decoder import check_json_schema
from drivetrain.connectors.schema import to_arrow
from drivetrain.errors import InputError
from nightly_run import examples

EVENT = StructType().add("ts", TimestampType()).add("key", StringType()).add("n", LongType())
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100), deadline=None
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


GOOD = '{"ts":"2024-01-01T00:00:00Z","key":"a","n":1}'

broken = st.sampled_from(
    [
        "null",
        " null",
        "[1]",
        "12",
        '{"n":"x"}',
        '{"n":1.5}',
        '{"key":5}',
        '{"ts":"yesterday"}',
        '{"n":1',
        '{"n":1} {"n":2}',
        '{"n":1} null',
        b'{"key":"\xff"}',
        b'{"other":"\xff"}',
        "not json",
        '{"n":1,"n":2}',
    ]
)
good = st.builds(
    lambda key, n: (
        json.dumps({"key": key, "n": n, "more": [key]}, ensure_ascii=False),
        {"key": key, "n": n},
    ),
    st.none() | st.text(max_size=8).filter(lambda text: text.isprintable()),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
blank = st.sampled_from(["", "  ", "\r"])


@quick
@given(
    st.lists(
        good.map(lambda pair: ("good", *pair))
        | broken.map(lambda b: ("bad", b, None))
        | blank.map(lambda b: ("blank", b, None)),
        max_size=12,
    ),
    st.lists(st.integers(0, 1000), max_size=3),
)
def test_each_line_is_read_or_set_aside_whatever_the_splits(
    tmp_path: Path, small_blocks: None, lines: list[tuple[str, Any, Any]], cuts: list[int]
) -> None:
    path = write(tmp_path / "f.jsonl", *(line for _, line, _ in lines))
    rows = read(sources.json(path, schema="", on_bad_record="dead_letter"), EVENT, cuts)
    expected = []
    for number, (kind, line, value) in enumerate(lines, 1):
        if kind == "good":
            expected.append((value["key"], value["n"], None, None))
        elif kind == "bad":
            raw = (line.encode() if isinstance(line, str) else line).decode(errors="backslashreplace")
            expected.append((None, None, number, raw))
    got = [
        (r["key"], r["n"], r["__bad"] and r["__bad"]["line"], r["__bad"] and r["__bad"]["raw"]) for r in rows
    ]
    assert got == expected


@pytest.mark.parametrize(
    ("line", "column", "expected", "got"),
    [
        ('{"n":"x"}', "column n", "bigint", '"x"'),
        ('{"key":5}', "column key", "string", "5"),
        ('{"ts":"yesterday"}', "column ts", "timestamp", '"yesterday"'),
        ('{"ts":17}', "column ts", "timestamp", "17"),
        ('{"n":1', "not valid JSON", "one JSON object per line", '{"n":1'),
        ("null", "not a JSON object", "one JSON object per line", "NoneType"),
    ],
)
def test_a_bad_line_stops_with_file_line_column_type_and_text(
    tmp_path: Path, line: str, column: str, expected: str, got: str
) -> None:
    path = write(tmp_path / "f.jsonl", *[GOOD] * 500, line, *[GOOD] * 500)
    with pytest.raises(InputError) as caught:
        read(sources.json(path, schema=""), EVENT)
    error = caught.value
    assert error.where == f"{path}, line 501"
    assert column in error.what
    assert error.expected == expected
    assert got in str(error.got)
    assert line in str(error.got)
    assert "dead_letter" in str(error.remedy)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01T10:00:00Z", "2024-03-01T10:00:00+00:00"),
        ("2024-03-01T10:00:00.123456789Z", "2024-03-01T10:00:00.123456+00:00"),
        ("2024-03-01 10:00:00", "2024-03-01T10:00:00+00:00"),
        ("2024-03-01", "2024-03-01T00:00:00+00:00"),
        ("2024-03-01T10:00:00+02:00", "2024-03-01T08:00:00+00:00"),
        ("2024-03-01T10:00:00.5-0130", "2024-03-01T11:30:00.500000+00:00"),
    ],
)
def test_timestamps_are_iso_8601_and_utc_when_no_zone_is_given(
    tmp_path: Path, text: str, expected: str
) -> None:
    alone = write(tmp_path / "a.jsonl", json.dumps({"ts": text}))
    mixed = write(tmp_path / "b.jsonl", GOOD, json.dumps({"ts": text}), '{"ts":"2024-01-01 00:00:00"}', "{}")
    moment = dt.datetime.fromisoformat(expected)
    assert [row["ts"] for row in read(sources.json(alone, schema=""), EVENT)] == [moment]
    assert read(sources.json(mixed, schema=""), EVENT)[1]["ts"] == moment


def test_timestamps_may_follow_a_pattern(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", '{"ts":"01/03/2024 10:00:00"}', "{}")
    day_first = sources.json(path, schema="", timestamp_format="%d/%m/%Y %H:%M:%S")
    moment = dt.datetime(2024, 3, 1, 10, tzinfo=dt.UTC)
    assert [row["ts"] for row in read(day_first, EVENT)] == [moment, None]
    path = write(tmp_path / "f.jsonl", '{"ts":"01/03/2024 10:00:00.25 +0100"}')
    with_zone = sources.json(path, schema="", timestamp_format="%d/%m/%Y %H:%M:%S.%f %z")
    moment = dt.datetime(2024, 3, 1, 9, 0, 0, 250000, tzinfo=dt.UTC)
    assert [row["ts"] for row in read(with_zone, EVENT)] == [moment]


def test_nested_values_dates_and_booleans(tmp_path: Path) -> None:
    inner = StructType().add("x", DoubleType()).add("tags", ArrayType(StringType()))
    struct = StructType().add("day", DateType()).add("ok", BooleanType()).add("inner", inner)
    path = write(
        tmp_path / "f.jsonl",
        '{"day":"2024-02-29","ok":true,"inner":{"x":1,"tags":["a",null],"more":{}}}',
        "{}",
    )
    assert read(sources.json(path, schema=""), struct) == [
        {"day": dt.date(2024, 2, 29), "ok": True, "inner": {"x": 1.0, "tags": ["a", None]}},
        {"day": None, "ok": None, "inner": None},
    ]


@pytest.mark.parametrize("kind", [MapType(StringType(), LongType()), BinaryType(), ArrayType(BinaryType())])
def test_a_type_without_a_json_form_is_refused_with_a_remedy(kind: Any) -> None:
    with pytest.raises(InputError, match="cannot be read from JSON") as caught:
        check_json_schema(to_arrow(StructType().add("c", kind)), "f.jsonl")
    assert caught.value.remedy


def test_a_missing_key_is_null_and_the_case_of_keys_matters(tmp_path: Path) -> None:
    path = write(tmp_path / "f.jsonl", '{"KEY":"a"}')
    assert read(sources.json(path, schema=""), EVENT) == [{"ts": None, "key": None, "n": None}]


def test_arrow_still_needs_the_guard_against_several_objects_on_a_line() -> None:
    import pyarrow.json as pajson

    table = pajson.read_json(pa.BufferReader(b'{"a":1} {"a":2}\n'))
    assert table.num_rows == 2, "Arrow became strict: the check in JsonDecoder can go"
