"""Annotations as column types, and what has none."""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest

from drivetrain.api.types import (
    MessageType,
    UnsupportedTypeError,
    column_type,
    element_annotation,
    message_type,
    record_fields,
    returned_annotation,
    schema_of,
)


@dataclass
class Leg:
    origin: str
    miles: float | None


@dataclass
class Trip:
    legs: list[Leg]
    by: dict[str, int]


class Pair(NamedTuple):
    a: int
    b: bytes


@pytest.mark.parametrize(
    ("annotation", "ddl"),
    [
        (str, "string"),
        (int, "bigint"),
        (float, "double"),
        (bool, "boolean"),
        (bytes, "binary"),
        (dt.datetime, "timestamp"),
        (dt.date, "date"),
        (Decimal, "decimal(38,18)"),
        (int | None, "bigint"),
        (typing.Optional[str], "string"),  # noqa: UP045 - the old form is asked for
        (Annotated[int, ["metadata", "that has no hash"]], "bigint"),
        (list[str], "array<string>"),
        (typing.List[str], "array<string>"),  # noqa: UP006 - the old form is asked for
        (set[int], "array<bigint>"),
        (Sequence[int], "array<bigint>"),
        (tuple[int, ...], "array<bigint>"),
        (tuple[int, str, bool], "struct<_1:bigint,_2:string,_3:boolean>"),
        (dict[str, list[int]], "map<string,array<bigint>>"),
        (Leg, "struct<origin:string,miles:double>"),
        (list[Pair], "array<struct<a:bigint,b:binary>>"),
        ("decimal(10,2)", "decimal(10,2)"),
    ],
)
def test_an_annotation_has_a_column_type(annotation: object, ddl: str) -> None:
    assert column_type(annotation) == ddl


@pytest.mark.parametrize(
    "annotation",
    [
        object, Any, complex, int | str, list, dict, tuple, set, typing.List, typing.Dict, typing.Tuple,  # noqa: UP006
        type(None), None, 7, [str], {"a": int}, tuple[()], list[object], dict[str, object],
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_column_type_is_refused_by_name(annotation: object) -> None:
    with pytest.raises(UnsupportedTypeError):
        column_type(annotation)
    with pytest.raises(UnsupportedTypeError):
        message_type(annotation)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, MessageType("value bigint", (("value", "bigint"),), None, scalar=True)),
        (list[str], MessageType("value array<string>", (("value", "array<string>"),), None, scalar=True)),
        (
            tuple[str, int],
            MessageType("key string, value bigint", (("key", "string"), ("value", "bigint")), tuple),
        ),
        (Leg, MessageType("origin string, miles double", (("origin", "string"), ("miles", "double")), Leg)),
        (Pair, MessageType("a bigint, b binary", (("a", "bigint"), ("b", "binary")), Pair)),
        ("a int, b string", MessageType("a int, b string")),
    ],
)
def test_a_message_has_columns(annotation: object, expected: MessageType) -> None:
    assert message_type(annotation) == expected
    assert schema_of(annotation) == str(expected)


def test_records_inside_records_are_structs() -> None:
    assert message_type(Trip).ddl == "legs array<struct<origin:string,miles:double>>, by map<string,bigint>"


def test_only_dataclasses_and_named_tuples_are_records() -> None:
    assert record_fields(Pair) == (("a", "bigint"), ("b", "binary"))
    assert record_fields(tuple) is None
    assert record_fields(Leg("a", 1)) is None


def test_a_record_whose_annotations_name_nothing_is_refused_by_name() -> None:
    @dataclass
    class Local:
        other: Nowhere  # type: ignore[name-defined]  # noqa: F821 - that is the point

    with pytest.raises(UnsupportedTypeError, match="Local"):
        message_type(Local)


@pytest.mark.parametrize(
    ("annotation", "element"),
    [
        (list[str], str),
        (Iterable[int], int),
        (Iterator[Leg], Leg),
        (Generator[int, None, None], int),
        (Sequence[int], int),
        (list[str] | None, str),
        (tuple[int, ...], int),
        (str, None),
        (list, None),
        (tuple[int, str], None),
        (dict[str, int], None),
    ],
)
def test_the_element_of_an_iterable(annotation: object, element: object) -> None:
    assert element_annotation(annotation) == element


class Showing:
    def __call__(self, x: int) -> str:
        return str(x)


def test_what_a_function_says_it_returns() -> None:
    def told() -> dt.date: ...

    def untold(): ...  # type: ignore[no-untyped-def]

    def unknown() -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821 - that is the point

    def unknown_attribute() -> dt.nothing: ...  # type: ignore[name-defined]

    assert returned_annotation(told) is dt.date
    assert returned_annotation(Showing()) is str
    for fn in (untold, unknown, unknown_attribute, lambda: 1, len, str.upper):
        assert returned_annotation(fn) is None
