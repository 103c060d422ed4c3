from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from drivetrain.api import sinks
from drivetrain.errors import GraphError

SECRET = "hunter2"


def test_only_sinks_that_are_seen_at_checkpoints_ask_for_them() -> None:
    asking = {
        sinks.sqlite("r.db", "t"): True,
        sinks.sqlite("r.db", "t", mode="upsert", key=["id"]): False,
        sinks.postgresql("postgresql:///bank", "t"): True,
        sinks.mysql("mysql://db/bank", "t"): True,
        sinks.parquet("out/a", together="out"): True,
        sinks.parquet("out"): False,
        sinks.memory("m"): False,
        sinks.kafka("b:9092", "t"): False,
    }
    assert {sink: sinks.needs_transactions(sink) for sink in asking} == asking


def test_a_sink_says_its_guarantee_and_why() -> None:
    appending = sinks.sqlite("r.db", "counts")
    assert (appending.guarantee, appending.name) == ("exactly once", "counts in r.db")
    assert appending.why.startswith("published with each checkpoint")
    upserting = sinks.postgresql(
        "postgresql://u@db:5432/bank?sslmode=require", "s.t", mode="upsert", key="id"
    )
    assert upserting.name == "s.t in postgresql://db:5432/bank"
    assert "by key (id)" in upserting.why
    assert upserting.key == ("id",)
    assert pickle.loads(pickle.dumps(upserting)) == upserting


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@db/bank",
        f"postgres://user:{SECRET}$@db/bank",
        f"postgresql://db/bank?password={SECRET}",
        f"postgresql://db/bank?user=u&sslpassword={SECRET}",
        f"host=db password={SECRET} dbname=bank",
        f"host=db password = '{SECRET} and more' dbname=bank",
        f"postgresql://user:${{NAME}}{SECRET}@db/bank",
    ],
)
def test_a_password_that_is_written_out_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(GraphError, match="there is a password in the address") as caught:
        sinks.postgresql(url, "t")
    assert SECRET not in str(caught.value)
    assert "PGPASSWORD" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user@db/bank",
        "postgresql://user:${DB_PASSWORD}@db/bank",
        "postgresql://user:${file:/run/secrets/db}@db/bank",
        "postgresql:///bank?host=/var/run/postgresql",
        "host=db password=${DB_PASSWORD} dbname=bank",
        "host=db dbname=password_store",
        "${DATABASE_URL}",
    ],
)
def test_an_address_with_a_reference_or_without_a_password_is_fine(url: str) -> None:
    assert sinks.postgresql(url, "t").url == url


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{SECRET}@db/bank",
        f"mariadb://user:{SECRET}$@db/bank",
        f"mysql://db/bank?password={SECRET}",
        f"mysql://user:${{NAME}}{SECRET}@db/bank",
    ],
)
def test_a_password_of_mysql_that_is_written_out_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(GraphError, match="there is a password in the address") as caught:
        sinks.mysql(url, "t")
    assert SECRET not in str(caught.value)
    assert "MYSQL_PWD" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user@db/bank",
        "mariadb://user:${DB_PASSWORD}@db:3307/bank?ssl_ca=/etc/db.pem",
        "mysql://user:${file:/run/secrets/db}@db/bank",
        "${DATABASE_URL}",
    ],
)
def test_an_address_of_mysql_with_a_reference_or_without_a_password_is_fine(url: str) -> None:
    sink = sinks.mysql(url, "t")
    assert sink.url == url
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert "DB_PASSWORD" not in sink.name


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: sinks.sqlite("r.db", ""), "not the name of a table"),
        (lambda: sinks.sqlite("r.db", "a.b.c"), "not the name of a table"),
        (lambda: sinks.sqlite("r.db", "drivetrain_published"), "its own marks"),
        (lambda: sinks.sqlite("r.db", "t", mode="merge"), "unknown mode"),  # type: ignore[arg-type]
        (lambda: sinks.sqlite("r.db", "t", mode="upsert"), "upsert needs a key"),
        (lambda: sinks.sqlite("r.db", "t", key=["id"]), "for replacing rows"),
        (lambda: sinks.sqlite("r.db", "t", newest="at"), "for replacing rows"),
        (lambda: sinks.sqlite("r.db", "t", mode="upsert", key=["a", "a"]), "each column once"),
        (lambda: sinks.sqlite("r.db", "t", on_fresh="drop"), "unknown on_fresh"),  # type: ignore[arg-type]
        (lambda: sinks.sqlite(":memory:", "t"), "not a file"),
        (lambda: sinks.sqlite("s3://bucket/r.db", "t"), "not a file"),
        (lambda: sinks.sqlite("r.db", "main.t"), "not the name of a table"),
        (lambda: sinks.sqlite("r.db", "t", timeout="soon"), "timeout"),
        (lambda: sinks.postgresql("", "t"), "needs an address"),
        (lambda: sinks.mysql("", "t"), "needs an address"),
        (lambda: sinks.mysql("postgresql://db/bank", "t"), "not the address of a MySQL database"),
        (lambda: sinks.mysql("mysql://db:3306", "t"), "names no database"),
        (lambda: sinks.mysql("mysql://[db/bank", "t"), "cannot be read"),
        (lambda: sinks.parquet("elsewhere/a", together="out"), "below their common directory"),
        (lambda: sinks.parquet("out", together="out"), "below their common directory"),
    ],
)
def test_a_wrong_argument_is_told_when_the_sink_is_written(build: Callable[[], object], what: str) -> None:
    with pytest.raises(GraphError, match=what):
        build()
