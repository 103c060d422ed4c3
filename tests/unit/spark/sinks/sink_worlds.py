"""Two sinks that publish together, on files or in a database, with crashes before every step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from arrow_frame import ArrowFrame, frame

from drivetrain.api import sinks
from drivetrain.connectors.files import rolling as rolling_module
from drivetrain.connectors.files.output_ownership import OutputDirectory
from drivetrain.connectors.files.publication_manifest import Manifest, published_files
from drivetrain.connectors.files.rolling import Rolling
from drivetrain.connectors.opening import open_sink
from drivetrain.connectors.outbox import Outbox, PreparedBatch
from drivetrain.connectors.sql.sql_sink import SqlSinkWriter
from drivetrain.connectors.sql.sqlite import SqliteSession
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import write_segment
from drivetrain.spark.connector.sink import SinkContext

IDS = ("balances", "ledger")


class Crash(BaseException):
    """The process is gone."""


class World(Protocol):
    def open(self) -> dict[str, Any]: ...
    def prepare(self, writer: Any, batch: int, *ids: int) -> None: ...
    def shown(self) -> dict[str, list[int]]: ...
    def steps(self, before: Callable[[], None]) -> Any: ...


class FileWorld:
    """Two directories below one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self) -> dict[str, Any]:
        home = self.directory / "out"
        return {
            id: open_sink(
                sinks.parquet(home / id, together=home),
                SinkContext("app-1", id, str(self.directory / "state" / id)),
            )
            for id in IDS
        }

    def prepare(self, writer: Any, batch: int, *ids: int) -> None:
        writer.prepare(frame(id=pa.array(ids, pa.int64())), batch)

    def shown(self) -> dict[str, list[int]]:
        """The results that a reader finds in one transaction."""
        home = self.directory / "out"
        try:
            found = published_files(home)
        except Exception:  # noqa: BLE001 - there is no manifest yet
            found = {}
        return {
            id: [v for path in found.get(str(home / id), []) for v in pq.read_table(path)["id"].to_pylist()]
            for id in IDS
        }

    @contextmanager
    def steps(self, before: Callable[[], None]) -> Iterator[None]:
        """Call `before` before every step of publishing."""
        with (
            patch.object(OutputDirectory, "publish", _with_before(OutputDirectory.publish, before)),
            patch.object(rolling_module, "join_files", _with_before(rolling_module.join_files, before)),
            patch.object(Rolling, "_delete_parts", _with_before(Rolling._delete_parts, before)),
            patch.object(Manifest, "replace", _with_before(Manifest.replace, before)),
        ):
            yield
            before()


class SqliteWorld:
    """Two tables of one database."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "bank.db"

    def open(self) -> dict[str, Any]:
        return {
            id: open_sink(
                sinks.sqlite(self.path, id), SinkContext("app-1", id, str(self.directory / "state" / id))
            )
            for id in IDS
        }

    def prepare(self, writer: Any, batch: int, *ids: int) -> None:
        stage(writer, batch, pa.table({"id": pa.array(ids, pa.int64())}))

    def shown(self) -> dict[str, list[int]]:
        """The results that a reader finds in one transaction."""
        if not self.path.exists():
            return {id: [] for id in IDS}
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("begin")
            there = {name for (name,) in connection.execute("select name from sqlite_master").fetchall()}
            return {
                id: [v for (v,) in connection.execute(f'select id from "{id}" order by rowid')]
                if id in there
                else []
                for id in IDS
            }

    @contextmanager
    def steps(self, before: Callable[[], None]) -> Iterator[None]:
        """Call `before` before every statement, and before a batch leaves the outbox."""
        with (
            patch.object(SqliteSession, "execute", _with_before(SqliteSession.execute, before)),
            patch.object(SqliteSession, "load", _with_before(SqliteSession.load, before)),
            patch.object(Outbox, "drop", _with_before(Outbox.drop, before)),
        ):
            yield
            before()


def stage(writer: SqlSinkWriter, batch: int, table: pa.Table) -> None:
    """Store a batch as `prepare` does, without Spark."""
    columns = ArrowFrame(table)
    writer._fit(columns.schema)
    parts = []
    if table.num_rows:
        timed = columns.withColumn(TS, None).toArrow()
        parts.append(write_segment(writer._outbox._files, "test", timed.to_batches()))
    writer._outbox.prepare(PreparedBatch(batch, tuple(parts)))


def _with_before(call: Callable[..., Any], before: Callable[[], None]) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        before()
        return call(*args, **kwargs)

    return told
