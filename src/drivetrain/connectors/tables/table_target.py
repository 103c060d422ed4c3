"""A table as its sink uses it: what the formats of tables have in common.

The problem: Delta Lake and Iceberg commit differently, and their libraries differ, while what a sink does
with a table is the same: look at its newest version, write files, commit them with marks, look again if
another commit came first.

The design: `TableTarget` is all that is asked of a format. A table object `T` is one version of a table.

Invariants of an implementation:

1. `commit`, `merge` and `empty` do everything, with the marks, or nothing.
2. They raise `ConflictError`, and have done nothing, if another commit has changed the same marks since the
   version that they are given.

Called by `table_writer`, `appended_files`, `upserted_rows` and `repeated_commits`; implemented by the
connectors of the formats.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from drivetrain.durable import means_full
from drivetrain.errors import DiskFullError, DrivetrainError, OutputError, UnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

    from drivetrain.connectors.tables.data_files import DataFile, FilePlace, Layout
    from drivetrain.connectors.tables.table_columns import Fit


_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")


class ConflictError(Exception):
    """Another commit came first. Look at the newest version and decide again.

    Unless it `is_certain` that nothing was committed, the newest version shows whether that is so.
    """

    def __init__(self, why: str, *, is_certain: bool = True) -> None:
        super().__init__(why)
        self.is_certain = is_certain


class TableTarget(ABC):
    """One table; `where` names it in errors, and `library` the package whose errors are shown."""

    library: str

    def __init__(self, where: str) -> None:
        self.where = where

    @property
    @abstractmethod
    def identity(self) -> str:
        """The identity of the table, which no other table has."""

    # -- looking ---------------------------------------------------------------------------------------

    @abstractmethod
    def refreshed(self) -> Any | None:
        """The table in its newest version; None if there is none. Raises `OutputError`."""

    @abstractmethod
    def columns(self, table: Any) -> pa.Schema:
        """The table's columns, in Arrow's types."""

    @abstractmethod
    def partitions(self, table: Any) -> tuple[str, ...]:
        """How the table is partitioned, as a sink declares it."""

    @abstractmethod
    def mark(self, table: Any, name: str) -> int | None:
        """The number that the mark has in this version; None if it was never set."""

    @abstractmethod
    def require_creatable(self) -> None:
        """Raise `OutputError` unless the missing table can be created."""

    @abstractmethod
    def require_appendable(self, table: Any) -> None:
        """Raise `OutputError` for a table with rules that files of Spark's tasks may break."""

    @abstractmethod
    def require_partitions(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Raise `OutputError` unless the columns can divide a table into partitions."""

    @abstractmethod
    def place(self, table: Any) -> FilePlace:
        """Where the table's data files are."""

    @abstractmethod
    def layout(self, table: Any, fit: Fit, stem: str) -> Layout:
        """How data files of the table are written; their names begin with `stem`."""

    # -- changing --------------------------------------------------------------------------------------

    @abstractmethod
    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> Any:
        """Create the table, unless another process has just done so; returns its newest version."""

    @abstractmethod
    def add_columns(self, table: Any, columns: Sequence[pa.Field]) -> None:
        """Add columns, whose values are null in existing rows, to the table."""

    @abstractmethod
    def commit(self, table: Any, files: Sequence[DataFile], marks: Mapping[str, int]) -> None:
        """Add files to this version of the table, and set marks."""

    @abstractmethod
    def merge(self, table: Any, rows: pa.Table, key: Sequence[str], marks: Mapping[str, int]) -> None:
        """Replace the rows with the same keys, add the others, and set marks; one row for each key."""

    @abstractmethod
    def empty(self, table: Any, marks: Mapping[str, int]) -> None:
        """Remove all rows, and set marks."""

    # -- errors ----------------------------------------------------------------------------------------

    def meant(self, error: Exception) -> DrivetrainError:
        """The user's error for one of the library's."""
        if isinstance(error, DrivetrainError):
            return error
        got = first_line(error)
        if means_full(got):
            return DiskFullError(
                "no space left to write",
                where=self.where,
                got=got,
                remedy="free some space there; the same command continues where it stopped",
            )
        return OutputError(
            "the table refuses",
            where=self.where,
            got=got,
            remedy=f"correct the cause that {self.library} reports; the same command then continues",
        )

    def busy(self, error: ConflictError, change: str) -> UnavailableError:
        """The error when a `change` ("the batch") could not be committed for too long."""
        if not error.is_certain:
            return UnavailableError(
                "the store or the catalog of the table does not answer",
                where=self.where,
                got=str(error),
                remedy="check the network and the section [s3] (`drivetrain doctor` with the place), then "
                "run the same command again: it continues",
            )
        return UnavailableError(
            f"{change} could not be committed: other writers change the table all the time",
            where=self.where,
            got=str(error),
            remedy="run the same command again: it continues where it stopped; or write less often elsewhere",
        )

    def vanished(self) -> OutputError:
        """The error when a table that was created is not there."""
        return OutputError(
            "the table that was created is not there", where=self.where, remedy="run the command again"
        )


def cause_of(error: Exception) -> str:
    """The cause, which a library names in its last line; at most 400 characters."""
    text = _STYLE.sub("", str(error))
    lines = [line.strip(" ↳") for line in text.splitlines() if line.strip()]
    return " … ".join(dict.fromkeys((lines[0], lines[-1])))[:400] if lines else type(error).__name__


def first_line(error: Exception) -> str:
    """The first line of a library's message, whose others dump its structures."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
