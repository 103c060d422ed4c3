"""What waits for a database, and what a database needs."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from sink_worlds import stage

from drivetrain.api import sinks
from drivetrain.connectors.opening import open_sink
from drivetrain.connectors.sql.sql_sink import SqlSinkWriter
from drivetrain.errors import MissingDependencyError, OutputError
from drivetrain.spark.connector.publishing import is_transactional, publish_transaction
from drivetrain.spark.connector.sink import SinkContext


def test_a_batch_that_was_damaged_while_it_waited_is_told_and_nothing_is_published(tmp_path: Path) -> None:
    writer = open_sink(
        sinks.sqlite(tmp_path / "r.db", "t"), SinkContext("app-1", "t", str(tmp_path / "state"))
    )
    assert isinstance(writer, SqlSinkWriter)
    assert is_transactional(writer)
    ids = pa.table({"id": [1, 2, 3]})
    stage(writer, 0, ids)
    stage(writer, 1, ids)
    damaged = max((tmp_path / "state").rglob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(OutputError, match="batch 1 waits to be published, and is damaged"):
        publish_transaction({"t": writer}, 1, {"t": 1})
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (0,)
    assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 3}


@pytest.mark.parametrize(
    ("newer", "older", "kind"),
    [
        (Decimal("10.50"), Decimal("9.50"), pa.decimal128(10, 2)),
        (Decimal("-1.00"), Decimal("-2.00"), pa.decimal128(10, 2)),
        (Decimal("0.0000001"), Decimal("0.0000000002"), pa.decimal128(20, 10)),
        (400_000_000_000_000, 1, pa.timestamp("ms", "UTC")),
        (1.5, None, pa.float64()),
    ],
)
def test_the_newest_row_of_a_key_counts_in_sqlite_whatever_its_type(
    tmp_path: Path, newer: object, older: object, kind: pa.DataType
) -> None:
    sink = sinks.sqlite(tmp_path / "r.db", "t", mode="upsert", key="id", newest="at")
    writer = open_sink(sink, SinkContext("app-1", "t", str(tmp_path / "state")))
    assert isinstance(writer, SqlSinkWriter)
    at = pa.array([older, newer, older, newer, older], kind)
    stage(writer, 0, pa.table({"id": [1] * 5, "at": at, "text": list("abcde")}))
    assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 5}
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        assert connection.execute("select text from t").fetchall() == [("d",)]


def test_postgresql_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError) as caught:
        open_sink(sinks.postgresql("postgresql:///bank", "t"), SinkContext("app-1", "t", str(tmp_path)))
    assert caught.value.remedy == "pip install 'drivetrain[postgresql]'"


def test_mysql_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(MissingDependencyError) as caught:
        open_sink(sinks.mysql("mysql://db/bank", "t"), SinkContext("app-1", "t", str(tmp_path)))
    assert caught.value.remedy == "pip install 'drivetrain[mysql]'"


def test_sinks_share_a_transaction_when_they_name_the_same_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB", "postgresql://bank:hidden@db:5432/bank")

    def group(sink: sinks.Sink) -> str:
        writer = open_sink(sink, SinkContext("app-1", "t", str(tmp_path)))
        assert isinstance(writer, SqlSinkWriter)
        return writer.group

    monkeypatch.chdir(tmp_path)
    assert group(sinks.sqlite("r.db", "a")) == group(sinks.sqlite(tmp_path / "." / "r.db", "b"))
    assert group(sinks.sqlite("r.db", "a")) != group(sinks.sqlite("s.db", "a"))
    one = group(sinks.postgresql("${DB}", "a"))
    assert one == group(sinks.postgresql("host=db port=5432 user=bank dbname=bank", "b"))
    assert one != group(sinks.postgresql("postgresql://bank@db:5432/other", "a"))
    assert "hidden" not in one
    monkeypatch.setenv("MY", "mysql://bank:hidden@db/shop")
    shop = group(sinks.mysql("${MY}", "a"))
    assert shop == group(sinks.mysql("mariadb://bank@db:3306/shop?ssl_ca=/ca.pem", "b"))
    assert shop != group(sinks.mysql("mysql://other@db/shop", "a"))
    assert "hidden" not in shop
    (tmp_path / "user").write_text("bank\n")
    assert one == group(sinks.postgresql(f"postgresql://${{file:{tmp_path}/user}}@db:5432/bank", "a"))
