from __future__ import annotations

import csv
import datetime as dt
import io
from pathlib import Path
from typing import Any

import pytest
from file_reading import read
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from drivetrain.api import sources
from drivetrain.connectors.files import blocks
from drivetrain.connectors.files.csv_decoder import check_csv_schema
from drivetrain.connectors.schema import to_arrow
from drivetrain.errors import InputError
from nightly_run import examples

FLIGHT = StructType().add("carrier", StringType()).add("delay", DoubleType())
PAIR = StructType().add("a", StringType()).add("b", StringType())
quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100), deadline=None
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 32)


def write(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines))
    return path


cell = st.text(alphabet=st.characters(exclude_characters="\x00\r", codec="utf-8"), max_size=8)


@quick
@given(st.lists(st.tuples(cell, cell), max_size=8), st.lists(st.integers(0, 500), max_size=3), st.booleans())
def test_what_a_csv_writer_wrote_is_read_back(
    tmp_path: Path, small_blocks: None, rows: list[tuple[str, str]], cuts: list[int], multiline: bool
) -> None:
    if not multiline:
        rows = [(a.replace("\n", " "), b.replace("\n", " ")) for a, b in rows]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    path = tmp_path / "f.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    found = read(sources.csv(path, schema="", multiline=multiline), PAIR, cuts)
    assert [(row["a"], row["b"]) for row in found] == rows


broken = st.sampled_from(["AA", "AA,1,2", "AA,x", '"AA,1', 'A"A",1"', b"\xff,1", "AA,1\rBB,2", "AA,1e", ",,"])
good = st.tuples(st.sampled_from(["AA", "", "B B"]), st.none() | st.integers(-9, 9))


@quick
@given(
    st.lists(good | broken | st.just(""), max_size=12),
    st.lists(st.integers(0, 1000), max_size=3),
)
def test_each_line_is_read_or_set_aside_whatever_the_splits(
    tmp_path: Path, small_blocks: None, lines: list[Any], cuts: list[int]
) -> None:
    written: list[str | bytes] = []
    expected: list[tuple[str | None, float | None, int | None]] = []
    for number, line in enumerate(lines, 2):
        if isinstance(line, tuple):
            carrier, delay = line
            written.append(f"{carrier},{'' if delay is None else delay}")
            expected.append((carrier or None, delay, None))
        else:
            written.append(line)
            if line:
                expected.append((None, None, number))
    path = write(tmp_path / "f.csv", "carrier,delay", *written)
    rows = read(sources.csv(path, schema="", on_bad_record="dead_letter"), FLIGHT, cuts)
    assert [(r["carrier"], r["delay"], r["__bad"] and r["__bad"]["line"]) for r in rows] == expected


@pytest.mark.parametrize(
    ("line", "what", "expected", "got"),
    [
        ("AA,late", "column delay", "double", "'late'"),
        ("AA", "number of fields", "2 fields", "1 fields"),
        ("AA,1,2", "number of fields", "2 fields", "3 fields"),
        ('"AA,1', "not valid CSV", "quotes that close", '"AA,1'),
    ],
)
def test_a_bad_line_stops_with_file_line_column_type_and_text(
    tmp_path: Path, line: str, what: str, expected: str, got: str
) -> None:
    path = write(tmp_path / "f.csv", "carrier,delay", *["UA,1.5"] * 500, line, *["UA,1.5"] * 500)
    with pytest.raises(InputError) as caught:
        read(sources.csv(path, schema=""), FLIGHT)
    error = caught.value
    assert error.where == f"{path}, line 502"
    assert what in error.what
    assert expected in str(error.expected)
    assert got in str(error.got)
    assert line in str(error.got)


def test_columns_are_found_by_name_in_any_order_and_others_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "x,delay,carrier", "1,2.5,AA", "what,,UA")
    assert read(sources.csv(path, schema=""), FLIGHT) == [
        {"carrier": "AA", "delay": 2.5},
        {"carrier": "UA", "delay": None},
    ]


def test_without_header_columns_are_found_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "AA;1", "'U;A';2")
    source = sources.csv(path, schema="", header=False, delimiter=";", quote="'")
    assert read(source, FLIGHT) == [{"carrier": "AA", "delay": 1.0}, {"carrier": "U;A", "delay": 2.0}]


def test_null_words_are_null_unless_quoted(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "carrier,delay", "NA,NA", '"NA",', "AA,1")
    source = sources.csv(path, schema="", nulls=["NA", ""])
    assert [(r["carrier"], r["delay"]) for r in read(source, FLIGHT)] == [
        (None, None),
        ("NA", None),
        ("AA", 1.0),
    ]


@pytest.mark.parametrize(
    ("header", "what"), [("carrier,late", "no column delay"), ("carrier,delay,delay", "delay twice")]
)
def test_a_header_without_a_column_of_the_schema_is_an_error(tmp_path: Path, header: str, what: str) -> None:
    path = write(tmp_path / "f.csv", header, "AA,1")
    for policy in ("fail", "dead_letter"):
        with pytest.raises(InputError, match=what) as caught:
            read(sources.csv(path, schema="", on_bad_record=policy), FLIGHT)  # type: ignore[arg-type]
        assert caught.value.where == str(path)
        assert caught.value.got == header.replace(",", ", ")


def test_types(tmp_path: Path) -> None:
    struct = (
        StructType()
        .add("at", TimestampType())
        .add("day", DateType())
        .add("n", LongType())
        .add("ok", BooleanType())
    )
    path = write(tmp_path / "f.csv", "at,day,n,ok", "2024-01-01 00:00:00,2024-02-29,7,true", ",,,")
    assert read(sources.csv(path, schema=""), struct) == [
        {"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "day": dt.date(2024, 2, 29), "n": 7, "ok": True},
        {"at": None, "day": None, "n": None, "ok": None},
    ]


def test_an_empty_file_and_one_with_only_a_header_have_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", "carrier,delay")
    assert read(sources.csv(path, schema=""), FLIGHT) == []
    path.write_bytes(b"")
    assert read(sources.csv(path, schema=""), FLIGHT) == []


def test_a_compressed_file_reads_like_its_content(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(b"carrier,delay\nAA,1\nUA,x\n"))
    rows = read(sources.csv(path, schema="", on_bad_record="dead_letter"), FLIGHT)
    assert [(r["carrier"], r["__bad"] and r["__bad"]["line"]) for r in rows] == [("AA", None), (None, 3)]


def test_nested_types_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be read from CSV"):
        check_csv_schema(to_arrow(StructType().add("c", ArrayType(LongType()))), "f.csv")
