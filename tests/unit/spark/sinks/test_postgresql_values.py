"""What PostgreSQL cannot hold, and which of its refusals pass."""

from __future__ import annotations

import datetime as dt

import psycopg
import pyarrow as pa
import pytest

from drivetrain.api.sinks import postgresql
from drivetrain.connectors.sql.postgresql import PostgresqlDatabase
from drivetrain.connectors.sql.postgresql_values import require_postgresql_values
from drivetrain.connectors.sql.sql_columns import SqlTable, TableColumn
from drivetrain.errors import OutputError, UnavailableError

TABLE = SqlTable({"doc": TableColumn("doc", "jsonb", False), "old": TableColumn("old", "json", False)}, [])


def batch(**columns: pa.Array | list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize("text", [r'{"a": "\u0000"}', r'["\\\u0000"]', r"\u0000", "a\0"])
def test_the_character_0_is_refused_also_escaped_in_json(text: str) -> None:
    with pytest.raises(OutputError, match="character 0"):
        require_postgresql_values(batch(doc=["{}", None, text]), TABLE, "t")


def test_what_only_looks_like_it_is_accepted() -> None:
    text = r'{"path": "C:\\u0000 \u00001"}'.replace(r"\u00001", r"\u0001")
    require_postgresql_values(batch(doc=[text, None], other=[r"\u0000", None]), TABLE, "t")
    require_postgresql_values(batch(old=[r"\u0000"]), TABLE, "t")  # kept as text


def test_years_before_1_are_refused() -> None:
    years = pa.array([None, dt.datetime(1, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    require_postgresql_values(batch(at=years, day=years.cast(pa.date32())), TABLE, "t")
    require_postgresql_values(batch(at=pa.array([None], pa.date32())), TABLE, "t")
    before = pa.array([-62_135_596_800_000_001], pa.timestamp("ms", "UTC"))
    for column in (before, pa.array([-720_000], pa.date32())):
        with pytest.raises(OutputError, match="the year"):
            require_postgresql_values(batch(at=column), TABLE, "t")


@pytest.mark.parametrize(
    "error", [psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout]
)
def test_a_server_that_is_not_the_primary_yet_is_waited_for(error: type[psycopg.Error]) -> None:
    database = PostgresqlDatabase(postgresql("postgresql://bank@db/bank", "t"))
    assert isinstance(database.meaning(error("not now")), UnavailableError)
