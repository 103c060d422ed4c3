"""Rows of real batches in real databases: values, keys, and what does not fit."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from drivetrain.connectors.sql.sql_sink import SqlSinkWriter
from drivetrain.errors import OutputError
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.measure import small_batches

UTC = dt.UTC


def publish(writer: SqlSinkWriter, df: Any, batch: int) -> int:
    return writer.write(df, batch)


EVERY_TYPE = """
    select cast(1 as byte) as tiny, cast(2 as short) as small, 3 as whole, 4L as large,
        cast(1.5 as float) as narrow, 2.5D as wide, cast(12.340 as decimal(10, 3)) as exact,
        'naïve "quoted", \\n and , \\\\.' as text, '' as empty, unhex('00ff5c') as bytes, true as yes,
        timestamp '2024-02-29T23:59:59.123456Z' as instant, timestamp_ntz '2024-02-29T12:00:00' as wall,
        date '1969-12-31' as day, array(1, 2) as several, named_struct('a', 1, 'b', 'x') as record,
        map('k', 1.5D) as pairs
    union all select null, null, null, null, null, null, null, null, null, null, null, null, null, null,
        null, null, null
"""


def test_values_of_every_type_arrive(spark: SparkSession, database: Any) -> None:
    writer = database.open("everything")
    writer.validate()
    assert publish(writer, spark.sql(EVERY_TYPE), 0) == 2
    columns = "tiny, small, whole, large, narrow, wide, exact, text, empty, bytes, yes, instant, wall, day"
    first, second = database.run(f"select {columns} from everything order by whole is null")
    instant = dt.datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
    wall, day = dt.datetime(2024, 2, 29, 12), dt.date(1969, 12, 31)  # noqa: DTZ001 - a time without a zone
    text = 'naïve "quoted", \n and , \\.'
    wanted = [1, 2, 3, 4, 1.5, 2.5, Decimal("12.340"), text, "", b"\x00\xff\\", True, instant, wall, day]
    if database.kind == "mariadb":
        wanted[11] = instant.replace(tzinfo=None)
    if database.kind == "sqlite":
        wanted[6] = "12.340"
        wanted[11:] = ["2024-02-29T23:59:59.123456Z", "2024-02-29T12:00:00.000000", "1969-12-31"]
    assert list(first) == wanted
    assert list(second) == [None] * len(wanted)
    told = database.run("select several, record, pairs from everything where whole = 3")[0]
    told = [json.loads(v) if isinstance(v, str) else v for v in told]
    assert told == [[1, 2], {"a": 1, "b": "x"}, {"k": 1.5}]


def test_a_type_that_no_database_has_is_told(spark: SparkSession, database: Any) -> None:
    with pytest.raises(OutputError, match="the type of the column span has no equivalent") as caught:
        database.open("t").write(spark.sql("select interval '1' day as span"), 0)
    assert "string" in (caught.value.remedy or "")


def test_a_batch_that_comes_again_is_written_once(spark: SparkSession, database: Any) -> None:
    writer = database.open("t")
    assert publish(writer, spark.range(5), 0) == 5
    assert publish(writer, spark.range(5), 0) == 0
    again = database.open("t")
    again.validate()
    assert publish(again, spark.range(7), 0) == 0
    assert publish(again, spark.range(5, 7), 1) == 2
    assert database.run("select count(*), max(id) from t") == [(7, 6)]
    rows = {"mariadb": '"rows"'}.get(database.kind, "rows")  # a word of its language
    assert database.run(f"select sink, batch, {rows} from drivetrain_published") == [("t", 1, 7)]


def test_a_batch_without_rows_needs_nothing(spark: SparkSession, database: Any) -> None:
    writer = database.open("t")
    assert writer.prepare(spark.range(3), 0) == 3
    assert writer.prepare(spark.range(0), 0) == 0
    assert writer.prepared() == []
    assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 0}
    assert database.run("select count(*) from t") == [(0,)]


@pytest.mark.nightly("other tests of this module reach what it reaches")
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_large_batch_is_written_by_the_workers_in_its_order(
    spark: SparkSession, database: Any, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    key = {"key": ["k"]} if mode == "upsert" else {}
    writer = database.open("t", mode=mode, **key)
    df = spark.range(0, 20_000, numPartitions=4).selectExpr("id % 1000 as k", "id as v")
    assert publish(writer, df, 0) == 20_000
    rows, lowest = (1_000, 19_000) if mode == "upsert" else (20_000, 0)
    assert database.run("select count(*), min(v), max(v) from t") == [(rows, lowest, 19_999)]


def test_a_row_replaces_the_one_with_its_key(spark: SparkSession, database: Any) -> None:
    writer = database.open("accounts", mode="upsert", key=["account", "day"])
    columns = "as t(account, day, balance)"
    day = "date '2024-01-01'"
    publish(writer, spark.sql(f"select * from values ('a', {day}, 10), ('b', {day}, 20) {columns}"), 0)
    publish(writer, spark.sql(f"select * from values ('a', {day}, 7), ('c', {day}, null) {columns}"), 1)
    assert database.run("select account, balance from accounts order by account") == [
        ("a", 7),
        ("b", 20),
        ("c", None),
    ]


def test_of_several_rows_with_a_key_the_last_one_counts_or_the_newest(
    spark: SparkSession, database: Any
) -> None:
    df = spark.sql(
        "select * from values ('a', 3, 'x'), ('a', null, 'y'), ('a', 9, 'z'), ('a', 9, 'last'), "
        "('a', 5, 'end') as t(k, at, v)"
    ).coalesce(1)
    publish(database.open("by_order", mode="upsert", key="k"), df, 0)
    publish(database.open("by_time", mode="upsert", key="k", newest="at"), df, 0)
    assert database.run("select v from by_order") == [("end",)]
    assert database.run("select v from by_time") == [("last",)]


def test_a_key_that_is_all_of_the_row_is_fine(spark: SparkSession, database: Any) -> None:
    writer = database.open("seen", mode="upsert", key=["id"])
    publish(writer, spark.range(3), 0)
    publish(writer, spark.range(5), 1)
    assert database.run("select count(*) from seen") == [(5,)]


def test_a_row_without_a_key_is_told_and_nothing_is_written(spark: SparkSession, database: Any) -> None:
    writer = database.open("t", mode="upsert", key=["k"])
    with pytest.raises(OutputError, match="some rows have no key") as caught:
        writer.prepare(spark.sql("select 1 as k, 1 as v union all select null, 2"), 0)
    assert "rows have null in k" in (caught.value.got or "")
    assert writer.prepared() == []


def test_text_that_postgresql_cannot_hold_is_told_before_the_batch_is_kept(
    spark: SparkSession, database: Any
) -> None:
    writer = database.open("t")
    zero = spark.sql("select concat('a', char(0), 'b') as v")
    if database.kind != "postgresql":
        assert publish(writer, zero, 0) == 1
        assert database.run("select v from t") == [("a\0b",)]
        return
    with pytest.raises(OutputError, match="the character 0 in the column v"):
        writer.prepare(zero, 0)
    assert writer.prepared() == []


def test_awkward_names_are_only_names(spark: SparkSession, database: Any) -> None:
    writer = database.open('odd "table" %s', mode="upsert", key=['the "key"?'])
    publish(writer, spark.sql('select 1 as `the "key"?`, 2 as `%s; drop table x`, 3 as `Order`'), 0)
    assert database.run('select * from "odd ""table"" %s"') == [(1, 2, 3)]


# -- tables that are there -----------------------------------------------------------------------------


def test_a_table_that_is_missing_is_told_unless_it_may_be_made(spark: SparkSession, database: Any) -> None:
    database.run("create table another (id integer)")
    writer = database.open("t", create=False)
    with pytest.raises(OutputError, match="there is no such table") as caught:
        writer.validate()
    assert "create=True" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("table", "query", "what"),
    [
        ("id integer", "select 1 as id, 2 as amount", "has no column amount"),
        ("id integer, owner text not null", "select 1 as id", "requires a value for owner"),
        ("id integer, more text not null default 'x'", "select 1 as id", None),
        ("id integer", "select 'x' as account, 1 as id", "has no column account"),
    ],
)
def test_columns_of_a_table_are_checked_before_a_batch_is_kept(
    spark: SparkSession, database: Any, table: str, query: str, what: str | None
) -> None:
    database.run(f"create table t ({table})")
    writer = database.open("t")
    writer.validate()
    if what is None:
        assert publish(writer, spark.sql(query), 0) == 1
        return
    with pytest.raises(OutputError, match=what) as caught:
        writer.prepare(spark.sql(query), 0)
    assert caught.value.where == writer._sink.name
    assert writer.prepared() == []


def test_a_table_must_know_that_the_key_is_unique(spark: SparkSession, database: Any) -> None:
    database.run("create table t (k integer, v integer, unique (v, k))")
    with pytest.raises(OutputError, match="is not a unique key of the table") as caught:
        database.open("t", mode="upsert", key=["k"]).validate()
    assert caught.value.got == "(k, v)"
    writer = database.open("t", mode="upsert", key=["k", "v"])
    writer.validate()
    assert publish(writer, spark.sql("select 1 as k, 2 as v"), 0) == 1


def test_a_key_that_the_sink_does_not_have_is_told(spark: SparkSession, database: Any) -> None:
    with pytest.raises(OutputError, match="the sink has no column account"):
        database.open("t", mode="upsert", key=["account"]).prepare(spark.range(1), 0)


def test_what_a_constraint_refuses_waits_until_the_cause_is_gone(spark: SparkSession, database: Any) -> None:
    database.run("create table t (id bigint, constraint small check (id < 3))")
    writer, other = database.open("t"), database.open("u")
    both = {"t": writer, "u": other}
    writer.prepare(spark.range(5), 0)
    other.prepare(spark.range(5), 0)
    for _ in range(2):
        with pytest.raises(OutputError, match="constraint"):
            publish_transaction(both, 1, {"t": 0, "u": 0})
    assert database.run("select count(*) from u") == [(0,)]
    if database.kind == "sqlite":
        database.run("drop table t")
        database.run("create table t (id bigint)")
    else:
        database.run("alter table t drop constraint small")
    assert publish_transaction(both, 1, {"t": 0, "u": 0}) == {"t": 5, "u": 5}


# -- states --------------------------------------------------------------------------------------------


def test_rows_of_a_state_that_is_gone_are_not_added_to(spark: SparkSession, database: Any) -> None:
    publish(database.open("t"), spark.range(3), 0)
    another = database.open("t", "another")
    with pytest.raises(OutputError, match="another state directory"):
        another.validate()
    with pytest.raises(OutputError, match="3 rows were published"):
        another.check_fresh()
    emptying = database.open("t", "another", on_fresh="empty")
    emptying.check_fresh()
    emptying.fresh()
    emptying.validate()
    assert publish(emptying, spark.range(4), 0) == 4
    assert database.run("select count(*) from t") == [(4,)]
    keeping = database.open("t", "another", on_fresh="keep")
    keeping.check_fresh()
    keeping.fresh()
    keeping.validate()
    assert publish(keeping, spark.range(4), 0) == 4
    assert database.run("select count(*) from t") == [(8,)]


def test_a_state_that_is_gone_does_not_matter_where_rows_replace_each_other(
    spark: SparkSession, database: Any
) -> None:
    settings: dict[str, Any] = {"mode": "upsert", "key": ["id"]}
    publish(database.open("t", **settings), spark.range(3), 5)
    another = database.open("t", "another", **settings)
    another.validate()
    another.check_fresh()
    assert publish(another, spark.range(4), 0) == 4
    assert database.run("select count(*) from t") == [(4,)]


def test_fresh_before_anything_was_written_is_fine(database: Any) -> None:
    writer = database.open("t")
    writer.check_fresh()
    writer.fresh()
    writer.validate()
    assert writer.prepared() == []
