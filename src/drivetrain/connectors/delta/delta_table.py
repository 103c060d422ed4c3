"""A Delta table as sinks use it: open, create, commit; and what its library's errors mean to them.

The problem: the table's log is written by a library without a JVM, `deltalake`, whose errors are one class
with text, and which checks conflicts between commits but not whether files fit the table.

The design: a table object of the library is one version of the table; `refreshed` gives the newest. In an
object store the library creates each entry of the log only if its name is free. Constraints of tables that
the library enforces only for rows that pass through itself are refused, since Spark's tasks write the files.

What if the machine dies here: the library leaves it to the system when files reach the disk. So on a local
disk, new files of the log and the data files that the library has written itself are synced after a commit,
before the batch counts as published.

Invariants:

1. A commit adds all of its files and marks, or nothing.
2. A commit fails if another one, since the version that was looked at, has changed one of the same marks or
   the table's columns.

Called by the connector of Delta tables, and by `delta_compaction`. Source: Delta's protocol; the
documentation of delta-rs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.connectors.delta.library_files import entries_since, exact_statistics, settings_of, sync_added
from drivetrain.connectors.delta.table_library import (
    arrow_schema,
    deltalake,
    has_table,
    is_of_store,
    library_options,
)
from drivetrain.connectors.files.output_ownership import require_writable
from drivetrain.connectors.partition_values import require_partitions
from drivetrain.connectors.tables.data_files import DataFile, Layout, LocatedPlace
from drivetrain.connectors.tables.table_columns import Fit
from drivetrain.connectors.tables.table_target import ConflictError, TableTarget, cause_of, first_line
from drivetrain.durable import sync
from drivetrain.errors import OutputError
from drivetrain.runtime.file_locations import locate
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable

_APPENDABLE = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Features of tables that adding a file respects, or that `_unmet` finds in its columns and settings."""
_OF_COLUMNS = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


class DeltaTarget(TableTarget):
    """The table in the directory or object store place `path`; `where` names it in errors."""

    library = "Delta's library"

    def __init__(self, path: str, where: str, stores: StoreSettings | None = None) -> None:
        super().__init__(where)
        self._is_local = "://" not in path
        self._uri = os.path.abspath(os.path.expanduser(path)) if self._is_local else path.rstrip("/")
        self._stores = stores or StoreSettings()
        self._table: DeltaTable | None = None
        self._marks_of: tuple[str, int] | None = None
        self._marks: dict[str, int | None] = {}

    @property
    def identity(self) -> str:
        """The place of the table."""
        return self._uri

    def exists(self) -> bool:
        """Whether there is a table at the place."""
        return has_table(self._uri, self._stores)

    def refreshed(self) -> DeltaTable | None:
        """The table in its newest version; None if there is none. Raises `OutputError`."""
        library = deltalake()
        try:
            if self._table is None:
                if not self.exists():
                    self._require_free()
                    return None
                self._table = library.DeltaTable(self._uri, storage_options=self._options())
            else:
                self._table.update_incremental()
        except Exception as error:
            self._table = None
            if self._is_of_store(error):
                raise ConflictError(cause_of(error), is_certain=False) from error
            raise self.meant(error) from error
        return self._table

    def columns(self, table: DeltaTable) -> pa.Schema:
        """The table's columns, in Arrow's types."""
        return arrow_schema(table)

    def partitions(self, table: DeltaTable) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        return tuple(table.metadata().partition_columns)

    def mark(self, table: DeltaTable, name: str) -> int | None:
        """The version of an application's transaction.

        The library reads the whole log for each, since its last checkpoint: so each version is asked only
        once.
        """
        of = (str(table.metadata().id), table.version())
        if of != self._marks_of:
            self._marks_of, self._marks = of, {}
        if name not in self._marks:
            self._marks[name] = table.transaction_version(name)
        return self._marks[name]

    def place(self, table: DeltaTable) -> LocatedPlace:
        """The table's directory."""
        return LocatedPlace(self._uri, self._stores)

    def layout(self, table: DeltaTable, fit: Fit, stem: str) -> Layout:
        """Files with the batch's columns, partitions left out."""
        return Layout(
            self.place(table), stem, fit.columns, self.partitions(table), fit.required, where=self.where
        )

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create the table, unless another process has just done so; returns its newest version."""
        library = deltalake()
        try:
            if self._is_local:
                os.makedirs(self._uri, exist_ok=True)
            library.DeltaTable.create(
                self._uri,
                columns,
                mode="ignore",
                partition_by=list(partition_by) or None,
                configuration=settings_of(columns),
                storage_options=self._options(),
            )
        except Exception as error:
            if self._is_of_store(error):
                raise ConflictError(cause_of(error), is_certain=False) from error
            if not self.exists():
                raise self.meant(error) from error
        self._sync_log(-1)
        table = self.refreshed()
        if table is None:
            raise self.vanished()
        return table

    def add_columns(self, table: DeltaTable, columns: Sequence[pa.Field]) -> None:
        """Add columns, whose values are null in existing rows, to the table."""
        fields = [deltalake().Field.from_arrow(field.with_nullable(True)) for field in columns]
        self._committed(table, lambda: table.alter.add_columns(fields))

    def commit(self, table: DeltaTable, files: Sequence[DataFile], marks: Mapping[str, int]) -> None:
        """Add files to this version of the table, and set marks; raises `ConflictError` or `OutputError`."""
        from deltalake.transaction import AddAction

        actions = [
            AddAction(
                path=file.name,
                size=file.size_bytes,
                partition_values={name: text or None for name, text in file.partition.items()},
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.statistics,
            )
            for file in files
        ]
        partition_by = table.metadata().partition_columns
        self._committed(
            table,
            lambda: table.create_write_transaction(
                actions, "append", table.schema(), partition_by, commit_properties=_properties(marks)
            ),
        )

    def merge(self, table: DeltaTable, rows: pa.Table, key: Sequence[str], marks: Mapping[str, int]) -> None:
        """Replace the rows with the same keys, add the others, and set marks; one row for each key."""
        matching = " and ".join(f"kept.{_identifier(name)} = given.{_identifier(name)}" for name in key)

        def replace() -> None:
            table.merge(
                rows,
                matching,
                source_alias="given",
                target_alias="kept",
                writer_properties=exact_statistics(table),
                commit_properties=_properties(marks),
            ).when_matched_update_all().when_not_matched_insert_all().execute()

        self._committed(table, replace, has_written=True)

    def empty(self, table: DeltaTable, marks: Mapping[str, int]) -> None:
        """Remove all rows, and set marks."""
        self._committed(table, lambda: table.delete(commit_properties=_properties(marks)))

    def compact(self, table: DeltaTable, target_bytes: int) -> dict[str, Any]:
        """Replace small files by larger ones with the same rows; returns the library's figures.

        Raises `ConflictError` if another commit has removed one of the files.
        """
        found: dict[str, Any] = {}

        def compact() -> None:
            found.update(
                table.optimize.compact(target_size=target_bytes, writer_properties=exact_statistics(table))
            )

        self._committed(table, compact, has_written=True)
        return found

    # -- implementation --------------------------------------------------------------------------------

    def _committed(self, table: DeltaTable, commit: Any, *, has_written: bool = False) -> None:
        """Commit, and make it durable; with the files that the library `has_written`."""
        before = table.version()
        try:
            commit()
        except Exception as error:
            self._table = None
            if type(error).__name__ == "CommitFailedError":
                raise ConflictError(first_line(error)) from error
            if self._is_of_store(error):
                raise ConflictError(cause_of(error), is_certain=False) from error
            raise self.meant(error) from error
        if has_written and self._is_local:
            sync_added(Path(self._uri), before)
        self._sync_log(before)

    def _sync_log(self, since: int) -> None:
        if not self._is_local:
            return
        for entry in entries_since(Path(self._uri), since):
            sync(entry)
        sync(Path(self._uri) / "_delta_log")

    def require_creatable(self) -> None:
        """Raise `OutputError` unless the missing table can be created."""
        if self._is_local:
            require_writable(self._uri)

    def require_appendable(self, table: DeltaTable) -> None:
        """Raise `OutputError` for a table with rules that files of Spark's tasks may break."""
        unmet = _unmet(table)
        if unmet:
            raise OutputError(
                "the table has rules that this sink cannot observe",
                where=self.where,
                expected="a table without constraints, computed columns and renamed columns",
                got=", ".join(unmet),
                remedy="drop them, or write to another table and copy from there",
            )

    def require_partitions(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Raise `OutputError` unless the columns can divide a table into partitions."""
        require_partitions(columns, partition_by, self.where)
        if partition_by and len(partition_by) == len(columns):
            raise OutputError(
                "every column is a partition column",
                where=self.where,
                expected="at least one other column, which the files hold",
                remedy="leave a column out of partition_by",
            )

    def _is_of_store(self, error: Exception) -> bool:
        """Whether the store gave no answer, so that what it has done is not known."""
        return not self._is_local and is_of_store(error)

    def _options(self) -> dict[str, str] | None:
        """How the library reaches the store; None for a directory."""
        return library_options(self._uri, self._stores)

    def _require_free(self) -> None:
        filesystem, directory = locate(self._uri, self._stores)
        found = filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))
        others = [info.base_name for info in found if not info.base_name.startswith((".", "_"))]
        if others:
            raise OutputError(
                "the directory is not empty, and is not a Delta table",
                where=self.where,
                expected="a Delta table, an empty directory, or none",
                got=", ".join(sorted(others)[:3]),
                remedy="choose another path, or empty the directory",
            )


def _unmet(table: DeltaTable) -> list[str]:
    settings = table.metadata().configuration
    found = [name for name in settings if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.append("delta.columnMapping.mode")
    for field in json.loads(table.schema().to_json())["fields"]:
        found += [f"{name} of {field['name']}" for name in _OF_COLUMNS if name in field["metadata"]]
    return found + sorted(set(table.protocol().writer_features or ()) - _APPENDABLE)


def _properties(marks: Mapping[str, int]) -> Any:
    library = deltalake()
    return library.CommitProperties(
        app_transactions=[library.Transaction(name, number) for name, number in marks.items()]
    )


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
