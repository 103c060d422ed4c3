"""Databases that do not answer, do not let in, are locked, full or not there: what is told of it."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrow_frame import ArrowFrame
from sink_worlds import stage

from drivetrain.api import sinks
from drivetrain.connectors.sql import postgresql
from drivetrain.connectors.sql.sql_database import SqlSession
from drivetrain.connectors.sql.sql_sink import SqlSinkWriter, open_sql
from drivetrain.connectors.sql.sqlite import SqliteDatabase
from drivetrain.errors import DiskFullError, OutputError, UnavailableError
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext
from postgres_server import PostgresServer

SECRET = "S3cr3t-of-the-test"
IDS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    made = PostgresServer()
    made.start()
    monkeypatch.setenv("BANK_PASSWORD", made.password)
    yield made
    made.close()


def bank(server: PostgresServer, directory: Path, **settings: Any) -> SqlSinkWriter:
    sink = sinks.postgresql(server.url("postgres", "BANK_PASSWORD"), "ledger", **settings)
    return open_sql(sink, SinkContext("app-1", "ledger", str(directory / "state")))


def test_a_machine_that_is_gone_keeps_no_lock(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction is open, and neither goes on nor ends; a successor publishes."""
    monkeypatch.setattr(postgresql, "_IDLE_S", 1)
    writer = bank(server, tmp_path, timeout="500 ms")
    stage(writer, 0, IDS)
    gone = writer._database.transaction("app-1")
    gone.__enter__()
    began_s = time.monotonic()
    while True:
        try:
            assert publish_transaction({"ledger": writer}, 1, {"ledger": 0}) == {"ledger": 3}
            break
        except UnavailableError:
            assert time.monotonic() - began_s < 20, "the lock is kept"
    with pytest.raises(Exception, match=r"terminat|idle") as ended:
        gone.__exit__(None, None, None)
    assert isinstance(writer._database.meaning(ended.value), UnavailableError)


def test_what_the_server_cannot_hold_is_what_a_batch_is_checked_for(
    server: PostgresServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id jsonb, day date)")
    writer = bank(server, tmp_path)
    for bad in (
        pa.table({"id": [r'{"device": "a\u0000b"}'], "day": [dt.date(2024, 1, 1)]}),
        pa.table({"id": pa.array([None], pa.string()), "day": pa.array([-800_000], pa.date32())}),
    ):
        stage(writer, 0, bad)
        with pytest.raises(OutputError, match="the database refuses"):
            publish_transaction({"ledger": writer}, 1, {"ledger": 0})
        with pytest.raises(OutputError, match=r"character 0|cannot read"):
            writer._database.require_values(bad.to_batches()[0], writer._fit(ArrowFrame(bad).schema))
    good = {"id": [r'{"path": "C:\\u0000"}'], "day": pa.array([3_000_000], pa.date32())}
    stage(writer, 0, pa.table(good))
    assert publish_transaction({"ledger": writer}, 1, {"ledger": 0}) == {"ledger": 1}
    assert server.run("select id ->> 'path', extract(year from day) from ledger") == [("C:\\u0000", 10183)]


def test_a_server_that_restarts_is_waited_for(server: PostgresServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    server.stop()
    told: dict[str, int] = {}
    publishing = threading.Thread(
        target=lambda: told.update(publish_transaction({"ledger": writer}, 1, {"ledger": 0}))
    )
    publishing.start()
    time.sleep(1)
    assert publishing.is_alive()
    server.start()
    publishing.join(90)
    assert told == {"ledger": 3}
    assert server.run("select count(*) from ledger") == [(3,)]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_server_that_stays_away_is_told_and_the_batch_waits(server: PostgresServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path, timeout="1 s")
    stage(writer, 0, IDS)
    server.stop()
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        publish_transaction({"ledger": writer}, 1, {"ledger": 0})
    assert "refused" in str(caught.value)
    assert server.password not in str(caught.value)
    server.start()
    again = bank(server, tmp_path)
    assert publish_transaction({"ledger": again}, 1, {"ledger": 0}) == {"ledger": 3}


def test_a_connection_that_is_cut_is_made_again(server: PostgresServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    cut = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'drivetrain'"
    server.run("create table gate (id bigint)")
    import psycopg

    told: dict[str, int] = {}
    with psycopg.connect(server.dsn()) as holding:
        holding.execute("lock table ledger in exclusive mode")
        publishing = threading.Thread(
            target=lambda: told.update(publish_transaction({"ledger": writer}, 1, {"ledger": 0}))
        )
        publishing.start()
        until = time.monotonic() + 60
        while not server.run(cut) and time.monotonic() < until:
            time.sleep(0.05)
    publishing.join(90)
    assert told == {"ledger": 3}
    assert server.run("select count(*) from ledger") == [(3,)]


def test_a_wrong_password_is_told_and_not_repeated(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", SECRET)
    with pytest.raises(OutputError, match="refuses the login") as caught:
        bank(server, tmp_path).validate()
    assert SECRET not in str(caught.value)
    assert "PGPASSWORD" in (caught.value.remedy or "")


def test_no_password_is_kept_anywhere(server: PostgresServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    writer.validate()
    stage(writer, 0, IDS)
    publish_transaction({"ledger": writer}, 1, {"ledger": 0})
    stage(writer, 1, IDS)
    assert server.password not in repr(writer._sink) + writer._sink.name + writer.group
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert server.password.encode() not in path.read_bytes(), path


def test_a_variable_that_is_not_set_and_a_database_that_is_not_there_are_told(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = sinks.postgresql(server.url("nowhere", "BANK_PASSWORD"), "ledger")
    with pytest.raises(OutputError, match="no such database"):
        open_sql(nowhere, SinkContext("app-1", "ledger", str(tmp_path))).validate()
    monkeypatch.delenv("BANK_PASSWORD")
    with pytest.raises(OutputError, match="BANK_PASSWORD, which is not set"):
        bank(server, tmp_path).validate()


def test_the_whole_address_can_come_from_the_environment(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", server.dsn())
    sink = sinks.postgresql("${DATABASE_URL}", "ledger")
    writer = open_sql(sink, SinkContext("app-1", "ledger", str(tmp_path)))
    writer.validate()
    stage(writer, 0, IDS)
    assert publish_transaction({"ledger": writer}, 1, {"ledger": 0}) == {"ledger": 3}
    assert sink.name == "ledger in ${DATABASE_URL}"


def test_a_user_who_may_not_write_is_told_what_it_takes(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run(f"create role reader login password '{SECRET}'")
    server.run("create table ledger (id bigint)")
    monkeypatch.setenv("READER_PASSWORD", SECRET)
    url = f"postgresql://reader:${{READER_PASSWORD}}@127.0.0.1:{server.port}/postgres"
    writer = open_sql(sinks.postgresql(url, "ledger"), SinkContext("app-1", "ledger", str(tmp_path)))
    writer.validate()
    stage(writer, 0, IDS)
    with pytest.raises(OutputError, match="may not do that") as caught:
        publish_transaction({"ledger": writer}, 1, {"ledger": 0})
    assert "grant" in (caught.value.remedy or "")


def test_a_type_that_the_column_does_not_take_is_told_before_the_batch_is_kept(
    server: PostgresServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id boolean)")
    writer = bank(server, tmp_path)
    with pytest.raises(OutputError, match="column id has a type that does not fit") as caught:
        stage(writer, 0, IDS)
    assert (caught.value.expected, caught.value.got) == ("bigint, or a wider type", "bool")
    assert writer.prepared() == []


@pytest.mark.nightly("test_sql_values reaches what it reaches")
def test_what_the_server_does_by_default_does_not_matter(server: PostgresServer, tmp_path: Path) -> None:
    server.run("alter database postgres set default_transaction_isolation = 'serializable'")
    server.run("alter database postgres set synchronous_commit = 'off'")
    server.run("alter database postgres set datestyle = 'German, DMY'")
    server.run("alter database postgres set timezone = 'America/New_York'")
    database = bank(server, tmp_path)._database

    def settings(session: SqlSession) -> list[Any]:
        asked = ("transaction_isolation", "synchronous_commit")
        return [session.execute(f"show {name}").fetchone()[0] for name in asked]

    assert database.transacted("app-1", settings) == ["read committed", "on"]
    writer = bank(server, tmp_path)
    at = dt.datetime(2024, 3, 4, 5, 6, 7, 8, dt.UTC)
    times = {"at": pa.array([at], pa.timestamp("us", "UTC")), "day": pa.array([at.date()])}
    stage(writer, 0, pa.table(times))
    publish_transaction({"ledger": writer}, 1, {"ledger": 0})
    told = "to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), to_char(day, 'YYYY-MM-DD')"
    assert server.run(f"select {told} from ledger") == [("2024-03-04 05:06:07.000008", "2024-03-04")]


# -- SQLite --------------------------------------------------------------------------------------------


def results(path: Path, state: Path, **settings: Any) -> SqlSinkWriter:
    return open_sql(sinks.sqlite(path, "t", **settings), SinkContext("app-1", "t", str(state)))


def test_a_writer_who_holds_the_database_is_waited_for_and_told(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    writer = results(path, tmp_path / "state", timeout="300 ms")
    stage(writer, 0, IDS)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(UnavailableError, match="another process has locked"):
            publish_transaction({"t": writer}, 1, {"t": 0})
        other.execute("rollback")
    assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 3}


def test_readers_in_the_middle_of_reading_hold_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    writer = results(path, tmp_path / "state", timeout="300 ms")
    stage(writer, 0, IDS)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        assert reader.execute("select count(*) from t").fetchone() == (0,)
        assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 3}
        assert reader.execute("select count(*) from t").fetchone() == (0,)
        reader.execute("commit")
        assert reader.execute("select count(*) from t").fetchone() == (3,)


def test_a_place_where_no_database_can_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        results(Path("/proc/results.db"), tmp_path / "a").validate()
    with pytest.raises(OutputError, match="cannot be written"):
        results(tmp_path / "missing" / "results.db", tmp_path / "b").validate()
    text = tmp_path / "text.db"
    text.write_text("not a database, whatever its name says\n" * 100)
    with pytest.raises(OutputError, match="not a SQLite database"):
        results(text, tmp_path / "c").validate()


def test_a_full_disk_and_a_database_that_is_read_only_are_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    database = SqliteDatabase(sinks.sqlite(path, "t"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t (v)")
        connection.execute("pragma max_page_count = 3")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.executemany("insert into t values (?)", [("x" * 4000,)] * 10)
    assert type(database.meaning(full.value)) is DiskFullError
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError) as read_only,
    ):
        connection.execute("insert into t values (1)")
    meant = database.meaning(read_only.value)
    assert type(meant) is OutputError
    assert "cannot be written" in meant.what
    assert database.meaning(ValueError("something else")) is None


def test_a_full_disk_under_the_database_is_told_and_nothing_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.db"
    writer = results(path, tmp_path / "state")
    stage(writer, 0, pa.table({"v": ["x" * 5000] * 100}))
    connect = SqliteDatabase._connect

    def small(self: SqliteDatabase, mode: str) -> sqlite3.Connection:
        connection = connect(self, mode)
        connection.execute("pragma max_page_count = 20")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(SqliteDatabase, "_connect", small)
        with pytest.raises(DiskFullError, match="no space left"):
            publish_transaction({"t": writer}, 1, {"t": 0})
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from t").fetchone() == (0,)
    assert publish_transaction({"t": writer}, 1, {"t": 0}) == {"t": 100}
