"""Rows as statements of MySQL, and the values that its columns would change."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drivetrain.connectors.sql.mysql_rows import insert_statements, require_mysql_values
from drivetrain.connectors.sql.sql_columns import SqlTable, TableColumn, require_key
from drivetrain.errors import OutputError

START = 'insert into "t" ("a", "b") values '


def statements(*columns: Any, packet_bytes: int = 2**24) -> list[bytes]:
    return list(insert_statements(START, columns, packet_bytes, "t"))


def table(**digits: int | None) -> SqlTable:
    return SqlTable({n: TableColumn(n, "datetime", False, d) for n, d in digits.items()}, [])


def test_every_kind_of_value_becomes_a_literal_whose_only_special_character_is_the_quote() -> None:
    at = dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC)
    columns = [
        pa.array(["it's \\' \"x\"; --\0", None]),
        pa.array([b"\x00'\xff", b""]),
        pa.array([True, False]),
        pa.array([1.5, -1e300]),
        pa.array([Decimal("0.0000000001"), None], pa.decimal128(20, 10)),
        pa.array([at, None], pa.timestamp("us", "America/New_York")),
        pa.array([dt.date(1, 1, 1), None]),
        pa.array([dt.time(23, 59, 59, 7), None], pa.time64("us")),
    ]
    (statement,) = statements(*columns)
    first = (
        "('it''s \\'' \"x\"; --\0',x'0027ff',1,1.5,'1E-10','2024-02-29 01:02:03.000004','0001-01-01',"
        "'23:59:59.000007')"
    )
    assert statement.decode() == f"{START}{first},(NULL,x'',0,-1e+300,NULL,NULL,NULL,NULL)"


def test_statements_stay_below_what_the_server_accepts_and_have_all_rows_in_order() -> None:
    numbers = pa.array(range(1000), pa.int64())
    limit = len(START) + 300
    found = statements(numbers, numbers, packet_bytes=limit)
    assert len(found) > 10
    assert all(len(statement) < limit for statement in found)
    rows = b",".join(statement.removeprefix(START.encode()) for statement in found)
    assert rows == b",".join(b"(%d,%d)" % (n, n) for n in range(1000))
    assert statements(pa.array([], pa.int64())) == []


def test_a_row_that_is_larger_than_the_server_accepts_is_an_error_before_it_is_sent() -> None:
    with pytest.raises(OutputError, match="larger than the server accepts") as caught:
        statements(pa.array(["short", "x" * 1000]), packet_bytes=1000)
    assert "max_allowed_packet" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("column", "digits", "what"),
    [
        (pa.array([1.0, float("nan")]), None, "NaN or infinity"),
        (pa.array([float("-inf"), None]), None, "NaN or infinity"),
        (pa.array([1.0, None]), None, None),
        (pa.array([None, None], pa.float64()), None, None),
        (pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1)]), 0, "would round the times"),  # noqa: DTZ001
        (pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1000)]), 3, None),  # noqa: DTZ001
        (pa.array([dt.datetime(1969, 1, 1, 0, 0, 0, 1500)]), 3, "would round the times"),  # noqa: DTZ001
        (pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1)]), 6, None),  # noqa: DTZ001
        (pa.array([dt.time(1, 2, 3, 4)], pa.time64("us")), 0, "would round the times"),
        (pa.array([None], pa.timestamp("us", "UTC")), 0, None),
        (pa.array([3_000_000], pa.int32()).cast(pa.date32()), None, "years from 1 to 9999"),
    ],
)
def test_values_that_a_column_would_change_are_errors(
    column: Any, digits: int | None, what: str | None
) -> None:
    messages = pa.record_batch([column], ["v"])
    if what is None:
        require_mysql_values(messages, table(v=digits), "t")
        return
    with pytest.raises(OutputError) as caught:
        require_mysql_values(messages, table(v=digits), "t")
    assert what in f"{caught.value}"


@pytest.mark.parametrize(
    ("others", "numbered", "given", "is_refused"),
    [
        ([{"email"}], None, {"id", "email"}, True),
        ([{"id", "email"}], None, {"id", "email"}, False),
        ([{"row"}], "row", {"id", "email"}, False),
        ([{"row"}], "row", {"id", "row"}, True),
        ([{"row"}], "row", None, False),
        ([{"id(10)"}], None, {"id"}, True),
    ],
)
def test_no_other_key_may_replace_rows(
    others: list[set[str]], numbered: str | None, given: set[str] | None, is_refused: bool
) -> None:
    ours = frozenset({"id"})
    made = SqlTable({}, [ours], (ours, *map(frozenset, others)), numbered)
    if is_refused:
        with pytest.raises(OutputError, match="another unique key"):
            require_key(made, ("id",), "t", given)
    else:
        require_key(made, ("id",), "t", given)
