"""MariaDB servers that are killed, do not let in, or have other settings; tables that do not suit."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_worlds import stage

from drivetrain.api import sinks
from drivetrain.api.connectors.sql_sink import MARKS
from drivetrain.connectors.sql.mysql import MysqlSession
from drivetrain.connectors.sql.sql_database import SqlSession
from drivetrain.connectors.sql.sql_sink import SqlSinkWriter, open_sql
from drivetrain.errors import OutputError, UnavailableError
from drivetrain.spark.connector.publishing import publish_transaction
from drivetrain.spark.connector.sink import SinkContext
from mariadb_server import MariadbServer

SECRET = "S3cr3t-of-the-test"
IDS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """A server that the tests of this module may stop."""
    made = MariadbServer()
    made.start()
    yield made
    made.close()


@pytest.fixture
def server(whole: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> MariadbServer:
    """The server, with an empty database `bank`."""
    monkeypatch.setenv("BANK_PASSWORD", whole.password)
    whole.run("create or replace database bank")
    return whole


def bank(server: MariadbServer, directory: Path, **settings: Any) -> SqlSinkWriter:
    sink = sinks.mysql(server.url("bank", "BANK_PASSWORD"), "ledger", **settings)
    return open_sql(sink, SinkContext("app-1", "ledger", str(directory / "state")))


def publish(writer: SqlSinkWriter, batch: int = 0) -> dict[str, int]:
    return publish_transaction({"ledger": writer}, 1, {"ledger": batch})


def count(server: MariadbServer) -> int:
    return int(server.run("select count(*) from ledger", "bank")[0][0])


# -- a server that is away -----------------------------------------------------------------------------


@pytest.mark.nightly("the unit tests of sinks die at every step; other tests use this server")
def test_a_server_that_is_killed_and_comes_back_is_waited_for(server: MariadbServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    server.kill()
    shown: dict[str, int] = {}
    publishing = threading.Thread(target=lambda: shown.update(publish(writer)))
    publishing.start()
    time.sleep(1)
    assert publishing.is_alive()
    server.start()
    publishing.join(90)
    assert shown == {"ledger": 3}
    assert count(server) == 3


@pytest.mark.nightly("the unit tests of sinks die at every step; other tests use this server")
def test_a_server_that_is_killed_again_and_again_while_rows_are_written_has_them_once(
    server: MariadbServer, tmp_path: Path
) -> None:
    writer = bank(server, tmp_path, timeout="120 s")
    batches = 25
    rows = 2_000

    def write() -> None:
        for batch in range(batches):
            ids = pa.array(range(batch * rows, (batch + 1) * rows), pa.int64())
            stage(writer, batch, pa.table({"id": ids}))
            publish(writer, batch)

    writing = threading.Thread(target=write)
    writing.start()
    kills = 0
    while kills < 6 and writing.is_alive():
        time.sleep(0.2)
        server.kill()
        kills += 1
        server.start()
    writing.join(300)
    assert not writing.is_alive()
    assert kills > 2
    found = server.run("select count(*), count(distinct id), max(id) from ledger", "bank")
    assert found == [(batches * rows, batches * rows, batches * rows - 1)]


@pytest.mark.nightly("test_sql_refused, with PostgreSQL")
def test_a_server_that_stays_away_is_an_error_with_a_remedy_and_the_batch_waits(
    server: MariadbServer, tmp_path: Path
) -> None:
    writer = bank(server, tmp_path, timeout="1 s")
    stage(writer, 0, IDS)
    server.kill()
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        publish(writer)
    assert "check that it runs" in (caught.value.remedy or "")
    assert server.password not in str(caught.value)
    server.start()
    assert publish(bank(server, tmp_path)) == {"ledger": 3}


def test_a_connection_that_is_cut_is_made_again(server: MariadbServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    shown: dict[str, int] = {}
    with closing(server.connect("bank")) as holding, holding.cursor() as cursor:
        cursor.execute("lock tables ledger write")
        publishing = threading.Thread(target=lambda: shown.update(publish(writer)))
        publishing.start()
        waiting = "select id from information_schema.processlist where info like 'insert into \"ledger\"%'"
        until = time.monotonic() + 60
        while not (found := server.run(waiting)) and time.monotonic() < until:
            time.sleep(0.05)
        server.run(f"kill {found[0][0]}")
        time.sleep(0.2)
    publishing.join(90)
    assert shown == {"ledger": 3}
    assert count(server) == 3


def test_a_commit_that_is_not_answered_is_found_out_and_not_repeated(
    server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pymysql

    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    commit, lost = pymysql.connections.Connection.commit, []

    def unanswered(connection: Any) -> None:
        commit(connection)
        if not lost:
            lost.append(connection)
            raise pymysql.err.OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(pymysql.connections.Connection, "commit", unanswered)
    publish(writer)
    assert len(lost) == 1
    assert count(server) == 3
    assert writer.prepared() == []


def test_the_process_that_was_taken_for_dead_publishes_nothing_twice(
    server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, sink = bank(server, tmp_path), bank(server, tmp_path)
    stage(sink, 0, IDS)
    waiting = late._outbox.prepared(0)
    assert waiting is not None
    load = MysqlSession.load
    within, go_on = threading.Event(), threading.Event()

    def slow(self: MysqlSession, *args: Any) -> int:
        if threading.current_thread() is zombie:
            within.set()
            go_on.wait(60)
        return load(self, *args)

    shown: list[dict[str, int]] = []
    zombie = threading.Thread(target=lambda: shown.append(publish(late)))
    monkeypatch.setattr(MysqlSession, "load", slow)
    zombie.start()
    assert within.wait(60)
    other = bank(server, tmp_path, timeout="1 s")
    with pytest.raises(UnavailableError, match="another process publishes"):
        publish(other)
    # Its machine is taken away: the server ends the connection, and with it the transaction.
    holder = server.run("select id from information_schema.processlist where db = 'bank'")
    for (id,) in holder:
        server.run(f"kill {id}")
    assert publish(sink) == {"ledger": 3}
    go_on.set()
    zombie.join(60)
    assert shown == [{"ledger": 0}]
    assert count(server) == 3


# -- who may do what -----------------------------------------------------------------------------------


def test_a_wrong_password_is_an_error_at_once(
    server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BANK_PASSWORD", SECRET)
    with pytest.raises(OutputError, match="refuses the login") as caught:
        bank(server, tmp_path).validate()
    assert SECRET not in str(caught.value)
    assert "MYSQL_PWD" in (caught.value.remedy or "")


def test_the_password_can_come_from_the_environment_or_an_option_file(
    server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"mysql://root@127.0.0.1:{server.port}/bank"
    monkeypatch.setenv("MYSQL_PWD", server.password)
    open_sql(sinks.mysql(url, "t"), SinkContext("app-1", "t", str(tmp_path / "a"))).validate()
    monkeypatch.delenv("MYSQL_PWD")
    options = tmp_path / "my.cnf"
    options.write_text(f"[client]\nuser=root\npassword={server.password}\n")
    named = f"mysql://127.0.0.1:{server.port}/bank?read_default_file={options}"
    open_sql(sinks.mysql(named, "t"), SinkContext("app-1", "t", str(tmp_path / "b"))).validate()
    with pytest.raises(OutputError, match="cannot be read") as caught:
        open_sql(
            sinks.mysql(f"{url}?charset=latin1", "t"), SinkContext("app-1", "t", str(tmp_path))
        ).validate()
    assert caught.value.got == "the option charset"


def test_no_password_is_kept_anywhere(server: MariadbServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path)
    writer.validate()
    stage(writer, 0, IDS)
    publish(writer)
    stage(writer, 1, IDS)
    assert server.password not in repr(writer._sink) + writer._sink.name + writer.group
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert server.password.encode() not in path.read_bytes(), path


def test_a_database_that_does_not_exist_is_an_error(server: MariadbServer, tmp_path: Path) -> None:
    nowhere = sinks.mysql(server.url("nowhere", "BANK_PASSWORD"), "ledger")
    with pytest.raises(OutputError, match="no such database"):
        open_sql(nowhere, SinkContext("app-1", "ledger", str(tmp_path))).validate()


def test_a_user_who_may_not_write_learns_which_rights_are_missing(
    server: MariadbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run(f"create or replace user reader@'127.0.0.1' identified by '{SECRET}'")
    server.run("grant select on bank.* to reader@'127.0.0.1'")
    server.run("create table ledger (id bigint)", "bank")
    monkeypatch.setenv("READER_PASSWORD", SECRET)
    sink = sinks.mysql(server.url("bank", "READER_PASSWORD", user="reader"), "ledger")
    writer = open_sql(sink, SinkContext("app-1", "ledger", str(tmp_path)))
    writer.validate()
    with pytest.raises(OutputError, match="may not do that") as caught:
        stage(writer, 0, IDS)
    assert "grant" in (caught.value.remedy or "")


# -- tables and settings -------------------------------------------------------------------------------


def test_a_table_without_transactions_is_refused_before_anything_is_kept(
    server: MariadbServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id bigint) engine=MyISAM", "bank")
    with pytest.raises(OutputError, match="not part of a transaction") as caught:
        bank(server, tmp_path).validate()
    assert caught.value.got == "the engine MyISAM"
    assert "engine=InnoDB" in (caught.value.remedy or "")
    server.run("alter table ledger engine=InnoDB", "bank")
    bank(server, tmp_path).validate()


def test_a_table_with_another_unique_key_is_refused_for_upserts(
    server: MariadbServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id bigint primary key, email varchar(50) unique)", "bank")
    with pytest.raises(OutputError, match="another unique key"):
        bank(server, tmp_path, mode="upsert", key="id").validate()
    bank(server, tmp_path).validate()
    server.run(
        "create or replace table ledger (row_id bigint auto_increment primary key, id bigint unique)", "bank"
    )
    writer = bank(server, tmp_path, mode="upsert", key="id")
    stage(writer, 0, IDS)
    assert publish(writer) == {"ledger": 3}
    stage(writer, 1, IDS)
    assert publish(writer, 1) == {"ledger": 3}
    assert count(server) == 3


def test_a_type_that_the_column_does_not_take_is_an_error_before_the_batch_is_kept(
    server: MariadbServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id date)", "bank")
    writer = bank(server, tmp_path)
    with pytest.raises(OutputError, match="column id has a type that does not fit") as caught:
        stage(writer, 0, IDS)
    assert (caught.value.expected, caught.value.got) == ("bigint, or a wider type", "date")
    assert writer.prepared() == []


def test_a_value_that_is_too_long_waits_until_the_column_is_wide_enough(
    server: MariadbServer, tmp_path: Path
) -> None:
    server.run("create table ledger (id varchar(3))", "bank")
    writer = bank(server, tmp_path)
    stage(writer, 0, pa.table({"id": ["long enough"]}))
    with pytest.raises(OutputError, match="does not fit into a column"):
        publish(writer)
    assert count(server) == 0
    server.run("alter table ledger modify id varchar(300)", "bank")
    assert publish(writer) == {"ledger": 1}


def test_keys_that_differ_in_case_or_spaces_are_different_rows(server: MariadbServer, tmp_path: Path) -> None:
    writer = bank(server, tmp_path, mode="upsert", key=["id", "more"])
    keys = ["a", "A", "a ", "ä", "a", "😀"]
    stage(writer, 0, pa.table({"id": keys, "more": ["x"] * 6, "n": list(range(6))}))
    publish(writer)
    found = server.run("select id, n from ledger order by n", "bank")
    assert found == [("A", 1), ("a ", 2), ("ä", 3), ("a", 4), ("😀", 5)]


def test_zero_is_no_request_for_a_number(server: MariadbServer, tmp_path: Path) -> None:
    server.run("create table ledger (id bigint auto_increment primary key)", "bank")
    writer = bank(server, tmp_path)
    stage(writer, 0, pa.table({"id": pa.array([0, 7], pa.int64())}))
    publish(writer)
    assert server.run("select id from ledger order by id", "bank") == [(0,), (7,)]


def test_the_settings_of_the_server_do_not_matter(server: MariadbServer, tmp_path: Path) -> None:
    changed = {
        "sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'", "time_zone": "'-05:00'",
        "tx_isolation": "'SERIALIZABLE'", "autocommit": "0", "max_allowed_packet": "16384",
        "character_set_server": "'latin1'",
    }  # fmt: skip
    before = {name: server.run(f"select @@global.{name}")[0][0] for name in changed}
    server.run("set global " + ", global ".join(f"{name} = {value}" for name, value in changed.items()))
    try:
        at = dt.datetime(2024, 3, 10, 7, 30, 0, 8, dt.UTC)  # a local time that New York does not have
        columns = {
            "at": pa.array([at] * 100, pa.timestamp("us", "UTC")),
            "text": ["back\\slash 'quoted' \"\" %s \n " + "x" * 1000] * 100,
        }
        writer = bank(server, tmp_path)
        stage(writer, 0, pa.table(columns))
        publish(writer)
        long = pa.table({"at": columns["at"].slice(0, 1), "text": ["x" * 20_000]})
        stage(writer, 1, long)
        with pytest.raises(OutputError, match="larger than the server accepts") as caught:
            publish(writer, 1)
        assert "max_allowed_packet" in (caught.value.remedy or "")
    finally:
        restored = (f"{n} = {v!r}" if isinstance(v, str) else f"{n} = {v}" for n, v in before.items())
        server.run("set global " + ", global ".join(restored))
    assert publish(bank(server, tmp_path), 1) == {"ledger": 1}
    told = server.run("select date_format(at, '%Y-%m-%d %T.%f'), text from ledger limit 1", "bank")
    assert told == [("2024-03-10 07:30:00.000008", columns["text"][0])]


def test_times_in_a_column_with_a_zone_are_the_same_instants(server: MariadbServer, tmp_path: Path) -> None:
    server.run("create table ledger (id timestamp(6) null)", "bank")
    server.run("set global time_zone = '+09:00'")
    try:
        writer = bank(server, tmp_path)
        at = dt.datetime(2024, 3, 4, 5, 6, 7, 8, dt.UTC)
        stage(writer, 0, pa.table({"id": pa.array([at], pa.timestamp("us", "UTC"))}))
        publish(writer)
        found = server.run("select cast(unix_timestamp(id) as char) from ledger", "bank")
        assert found == [(f"{at.timestamp():.6f}",)]
    finally:
        server.run("set global time_zone = 'SYSTEM'")


def test_a_server_that_may_lose_commits_is_reported(
    server: MariadbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.run("set global innodb_flush_log_at_trx_commit = 0")
    try:
        bank(server, tmp_path).validate()
    finally:
        server.run("set global innodb_flush_log_at_trx_commit = 1")
    assert "innodb_flush_log_at_trx_commit is 0" in caplog.text


def test_the_marks_are_made_outside_of_the_transaction_of_the_rows(
    server: MariadbServer, tmp_path: Path
) -> None:
    writer = bank(server, tmp_path)
    stage(writer, 0, IDS)
    server.run(f"drop table {MARKS}", "bank")

    def fail(session: SqlSession) -> None:
        session.load("ledger", ["id"], IDS.to_batches())
        session.mark("app-1", "ledger", session.marks("app-1")["missing"], 1)

    with pytest.raises(KeyError):
        writer._database.transacted("app-1", fail)
    assert count(server) == 0
    assert publish(writer) == {"ledger": 3}
