"""Databases that the tests of SQL sinks write to: SQLite's file, and one of each server of the run."""

from __future__ import annotations

import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drivetrain.api import sinks
from drivetrain.api.sinks import MysqlSink, PostgresqlSink, SqliteSink
from drivetrain.connectors.sql.sql_sink import SqlSinkWriter, open_sql
from drivetrain.spark.connector.sink import SinkContext
from mariadb_server import MariadbServer
from postgres_server import PostgresServer

# The unit tests of the sinks have helpers for batches without Spark.
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "spark" / "sinks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "changes"))  # runs that are killed

PASSWORD = "TESTS_PASSWORD"


class SqliteDatabaseOfTest:
    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "results.db"

    def sink(self, table: str, **settings: Any) -> SqliteSink:
        return sinks.sqlite(self.path, table, **settings)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None, timeout=20)) as connection:
            return connection.execute(statement).fetchall()

    def open(self, table: str, state: str = "state", **settings: Any) -> SqlSinkWriter:
        context = SinkContext("app-1", table, str(self.directory / state / table))
        return open_sql(self.sink(table, **settings), context)


class PostgresDatabaseOfTest(SqliteDatabaseOfTest):
    kind = "postgresql"

    def __init__(self, directory: Path, server: PostgresServer) -> None:
        super().__init__(directory)
        self.server = server
        self.name = f"test_{uuid.uuid4().hex[:10]}"
        server.create_database(self.name)

    def sink(self, table: str, **settings: Any) -> PostgresqlSink:  # type: ignore[override]
        return sinks.postgresql(self.server.url(self.name, PASSWORD), table, **settings)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, self.name)


class MariadbDatabaseOfTest(SqliteDatabaseOfTest):
    kind = "mariadb"

    def __init__(self, directory: Path, server: MariadbServer) -> None:
        super().__init__(directory)
        self.server = server
        self.name = f"test_{uuid.uuid4().hex[:10]}"
        server.run(f"create database {self.name}")

    def sink(self, table: str, **settings: Any) -> MysqlSink:  # type: ignore[override]
        return sinks.mysql(self.server.url(self.name, PASSWORD, scheme="mariadb"), table, **settings)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.run(statement, self.name)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteDatabaseOfTest]:
    """An empty database: once of each kind."""
    if request.param == "sqlite":
        yield SqliteDatabaseOfTest(tmp_path)
        return
    if request.param == "mariadb":
        mariadb = request.getfixturevalue("mariadb")
        monkeypatch.setenv(PASSWORD, mariadb.password)
        other = MariadbDatabaseOfTest(tmp_path, mariadb)
        yield other
        mariadb.run(f"drop database {other.name}")
        return
    server = request.getfixturevalue("postgres")
    monkeypatch.setenv(PASSWORD, server.password)
    made = PostgresDatabaseOfTest(tmp_path, server)
    yield made
    server.run(f'drop database "{made.name}" with (force)')
