"""A Delta table as sinks and sources use it: open, create, commit; and what its library's errors mean.

The problem: the table's log is written by a library without a JVM, `deltalake`, whose errors are one class
with text, and which checks conflicts between commits but not whether files fit the table.

The design: this module is the only one that imports the library. A table object is one version of the table;
`refreshed` gives the newest. Constraints of tables that the library enforces only for rows that pass through
itself are refused, since Spark's tasks write the files.

What if the machine dies here: the library leaves it to the system when the log reaches the disk. So new files
of the log are synced after a commit on a local disk, before the batch counts as published.

Invariants:

1. A commit adds all of its files and marks, or nothing.
2. A commit fails if another one, since the version that was looked at, has changed one of the same marks or
   the table's columns.

Called by the connector of Delta tables. Source: Delta's protocol; the documentation of delta-rs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drivetrain.connectors.delta.data_files import DataFile
from drivetrain.connectors.files.output_ownership import require_writable
from drivetrain.durable import means_full, sync
from drivetrain.errors import (
    DiskFullError,
    DrivetrainError,
    MissingDependencyError,
    OutputError,
    UnavailableError,
)

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


class ConflictError(Exception):
    """Another commit came first; nothing was committed. Look at the newest version and decide again."""


class DeltaTarget:
    """The table in the directory `path`; `where` names it in errors."""

    def __init__(self, path: str, where: str) -> None:
        self.directory = os.path.abspath(os.path.expanduser(path))
        self._where = where
        self._table: DeltaTable | None = None

    def refreshed(self) -> DeltaTable | None:
        """The table in its newest version; None if there is none. Raises `OutputError`."""
        library = deltalake()
        try:
            if self._table is None:
                if not library.DeltaTable.is_deltatable(self.directory):
                    self._require_free()
                    return None
                self._table = library.DeltaTable(self.directory)
            else:
                self._table.update_incremental()
        except Exception as error:
            self._table = None
            raise self.meant(error) from error
        return self._table

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create the table, unless another process has just done so; returns its newest version."""
        library = deltalake()
        try:
            os.makedirs(self.directory, exist_ok=True)
            library.DeltaTable.create(
                self.directory, columns, mode="ignore", partition_by=list(partition_by) or None
            )
        except Exception as error:
            if not library.DeltaTable.is_deltatable(self.directory):
                raise self.meant(error) from error
        self._sync_log(-1)
        table = self.refreshed()
        if table is None:
            raise OutputError(
                "the table that was created is not there", where=self._where, remedy="run the command again"
            )
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
                partition_values=file.partition,
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
                commit_properties=_properties(marks),
            ).when_matched_update_all().when_not_matched_insert_all().execute()

        self._committed(table, replace)

    def empty(self, table: DeltaTable, marks: Mapping[str, int]) -> None:
        """Remove all rows, and set marks."""
        self._committed(table, lambda: table.delete(commit_properties=_properties(marks)))

    # -- implementation --------------------------------------------------------------------------------

    def _committed(self, table: DeltaTable, commit: Any) -> None:
        before = table.version()
        try:
            commit()
        except Exception as error:
            self._table = None
            if type(error).__name__ == "CommitFailedError":
                raise ConflictError(_first_line(error)) from error
            raise self.meant(error) from error
        self._sync_log(before)

    def _sync_log(self, since: int) -> None:
        log = Path(self.directory) / "_delta_log"
        for number in range(since + 1, since + 1_000):
            try:
                sync(log / f"{number:020d}.json")
            except FileNotFoundError:
                break
        sync(log)

    def require_writable(self) -> None:
        """Raise `OutputError` unless the missing table can be created."""
        require_writable(self.directory)

    def _require_free(self) -> None:
        try:
            others = [name for name in os.listdir(self.directory) if not name.startswith((".", "_"))]
        except FileNotFoundError:
            return
        if others:
            raise OutputError(
                "the directory is not empty, and is not a Delta table",
                where=self._where,
                expected="a Delta table, an empty directory, or none",
                got=", ".join(sorted(others)[:3]),
                remedy="choose another path, or empty the directory",
            )

    def meant(self, error: Exception) -> DrivetrainError:
        """The user's error for one of the library's."""
        if isinstance(error, DrivetrainError):
            return error
        got = _first_line(error)
        if means_full(got):
            return DiskFullError(
                "no space left to write",
                where=self._where,
                got=got,
                remedy="free some space there; the same command continues where it stopped",
            )
        return OutputError(
            "the table refuses",
            where=self._where,
            got=got,
            remedy="correct the cause that Delta's library reports; the same command then continues",
        )

    def busy(self, error: Exception) -> UnavailableError:
        """The error when other writers have changed the table for too long."""
        return UnavailableError(
            "the batch could not be committed: other writers change the table all the time",
            where=self._where,
            got=str(error),
            remedy="run the same command again: it continues where it stopped; or write less often elsewhere",
        )


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The table's columns, in Arrow's types."""
    return pa.schema(table.schema())


def require_appendable(table: DeltaTable, where: str) -> None:
    """Raise `OutputError` for a table with rules that files of Spark's tasks may break."""
    unmet = _unmet(table)
    if unmet:
        raise OutputError(
            "the table has rules that this sink cannot observe",
            where=where,
            expected="a table without constraints, computed columns and renamed columns",
            got=", ".join(unmet),
            remedy="drop them, or write to another table and copy from there",
        )


def _unmet(table: DeltaTable) -> list[str]:
    settings = table.metadata().configuration
    found = [name for name in settings if name.startswith("delta.constraints.")]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.append("delta.columnMapping.mode")
    for field in json.loads(table.schema().to_json())["fields"]:
        found += [f"{name} of {field['name']}" for name in _OF_COLUMNS if name in field["metadata"]]
    return found + sorted(set(table.protocol().writer_features or ()) - _APPENDABLE)


def deltalake() -> Any:
    """The library; raises `MissingDependencyError` without it."""
    try:
        import deltalake
    except ImportError as error:
        raise MissingDependencyError(
            "Delta tables need the package deltalake", remedy="pip install 'drivetrain[delta]'"
        ) from error
    return deltalake


def _properties(marks: Mapping[str, int]) -> Any:
    library = deltalake()
    return library.CommitProperties(
        app_transactions=[library.Transaction(name, number) for name, number in marks.items()]
    )


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
