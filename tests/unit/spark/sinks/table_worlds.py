"""Tables of each format that the same tests write to like an application: read by Polars and by DuckDB."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import unquote

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
from sink_worlds import Crash, _with_before

from drivetrain.api import sinks
from drivetrain.connectors.delta.delta_table import DeltaTarget
from drivetrain.connectors.iceberg.iceberg_table import IcebergTarget
from drivetrain.connectors.opening import open_sink
from drivetrain.connectors.tables import appended_files, data_files
from drivetrain.crash_points import armed
from drivetrain.spark.connector.sink import SinkContext


class TableWorld:
    """A table of some format in a directory; `other` writes to it like another process."""

    target: type[Any]

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, id: str = "a", *, app: str = "app-1", state: str = "state", **how: Any) -> Any:
        context = SinkContext(app, id, str(self.directory / state / app / id))
        return open_sink(self.declared(**how), context)

    def declared(self, **how: Any) -> Any:
        raise NotImplementedError

    def read(self) -> pl.DataFrame:
        raise NotImplementedError

    def by_duckdb(self, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of all rows, in order."""
        raise NotImplementedError

    def ids(self) -> list[int]:
        return sorted(self.read()["id"].to_list())

    def data(self) -> set[str]:
        """The names of all data files in the table's directory."""
        return {path.name for path in self.directory.rglob("*.parquet")}

    def shown(self) -> set[str]:
        """The names of the files that the table's current version has."""
        raise NotImplementedError

    def version(self) -> int:
        """How many commits there were."""
        raise NotImplementedError

    def exists(self) -> bool:
        raise NotImplementedError

    def compact(self) -> bool:
        """Compact the table as an independent tool does; returns whether there was anything to compact."""
        raise NotImplementedError

    def create(self, columns: pa.Schema) -> None:
        """Create a table with these columns, in place of an earlier one."""
        raise NotImplementedError

    def interfere(self, name: str) -> None:
        """Commit something that other commits conflict with."""
        raise NotImplementedError

    @contextmanager
    def dying_before(self, step: int) -> Iterator[None]:
        """Die before the step of that number: a file, a note, a commit, a deletion, a crash point."""
        left = itertools.count()

        def before(*_: object) -> None:
            if next(left) == step:
                raise Crash

        def told(owner: Any, name: str) -> Any:
            return patch.object(owner, name, _with_before(getattr(owner, name), before))

        with ExitStack() as stack:
            stack.enter_context(armed(before))
            for owner, name in (
                (data_files, "sync"),
                (data_files, "folder_of"),
                (appended_files, "write_whole"),
                (appended_files.AppendedFiles, "drop"),
                (appended_files.AppendedFiles, "clean"),
                (self.target, "create"),
                (self.target, "commit"),
                *self.steps(),
            ):
                stack.enter_context(told(owner, name))
            yield

    def steps(self) -> list[tuple[Any, str]]:
        """More steps before which a process may die."""
        return []


class DeltaWorld(TableWorld):
    target = DeltaTarget

    @property
    def place(self) -> str:
        return str(self.directory / "table")

    def declared(self, **how: Any) -> Any:
        return sinks.delta(self.place, **how)

    def read(self) -> pl.DataFrame:
        return pl.read_delta(self.place)

    def by_duckdb(self, *columns: str) -> list[tuple[Any, ...]]:
        """By the protocol alone: DuckDB reads the log, and the files that it has; no Delta library reads."""
        log = duckdb.read_json(
            f"{self.place}/_delta_log/*.json",
            columns={"add": "STRUCT(path VARCHAR)", "remove": "STRUCT(path VARCHAR)"},
            format="newline_delimited",
            filename=True,
        )
        paths = log.filter("add is not null or remove is not null")
        newest = paths.aggregate("coalesce(add.path, remove.path), arg_max(add is not null, filename)")
        shown = [f"{self.place}/{unquote(path)}" for path, is_shown in newest.fetchall() if is_shown]
        rows = duckdb.read_parquet(shown, hive_partitioning=True, union_by_name=True)
        return sorted(rows.select(*columns).fetchall())

    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.place)

    def shown(self) -> set[str]:
        return {Path(uri).name for uri in self.table().file_uris()}

    def version(self) -> int:
        return self.table().version()

    def exists(self) -> bool:
        return deltalake.DeltaTable.is_deltatable(self.place)

    def compact(self) -> bool:
        return bool(self.table().optimize.compact()["numFilesAdded"])

    def create(self, columns: pa.Schema) -> None:
        deltalake.DeltaTable.create(self.place, columns, mode="overwrite")

    def interfere(self, name: str) -> None:
        self.table().alter.add_columns([deltalake.Field(name, "string")])

    def steps(self) -> list[tuple[Any, str]]:
        return [(DeltaTarget, "_sync_log")]


class IcebergWorld(TableWorld):
    target = IcebergTarget
    name = "shop.table"

    @property
    def options(self) -> dict[str, str]:
        return {
            "uri": f"sqlite:///{self.directory}/catalog.db",
            "warehouse": f"file://{self.directory}/warehouse",
        }

    def declared(self, **how: Any) -> Any:
        return sinks.iceberg(self.name, catalog="lake", options=self.options, **how)

    def catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", **self.options)

    def table(self) -> Any:
        return self.catalog().load_table(self.name)

    def read(self) -> pl.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pl.scan_iceberg(self.table().metadata_location, reader_override="native").collect()

    def by_duckdb(self, *columns: str) -> list[tuple[Any, ...]]:
        connection = self.table().scan().to_duckdb("found")
        return sorted(connection.table("found").select(*columns).fetchall())

    def shown(self) -> set[str]:
        return {Path(task.file.file_path).name for task in self.table().scan().plan_files()}

    def version(self) -> int:
        return len(self.table().snapshots())

    def exists(self) -> bool:
        try:
            return bool(self.catalog().table_exists(self.name))
        except Exception:  # noqa: BLE001 - the catalog is being made
            return False

    def compact(self) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        table = self.table()
        table.metadata.properties["commit.retry.num-retries"] = "0"
        try:
            table.overwrite(table.scan().to_arrow())
        except (CommitFailedException, FileNotFoundError):
            return False
        return True

    def create(self, columns: pa.Schema) -> None:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("shop")
        if catalog.table_exists(self.name):
            catalog.drop_table(self.name)
        catalog.create_table(self.name, columns)

    def interfere(self, name: str) -> None:
        self.table().append(self.table().scan().to_arrow().slice(0, 0))


WORLDS = {"delta": DeltaWorld, "iceberg": IcebergWorld}
