"""An Iceberg table as its sink uses it: open, create, commit; and what the library's errors mean.

The problem: pyiceberg repeats a commit automatically when another one came first. A process that was wrongly
considered dead would commit its batch a second time.

The design: a commit changes the table's properties (the marks) together with its rows, in one step of the
catalog, on the condition that the branch is still at the snapshot that the marks were read from. The
library's own retries are switched off for it, in the copy of the table's properties that this process has.
Every commit with marks makes a snapshot, so two of them cannot both succeed. The snapshot has the marks among
its own properties, too, which its history shows; what counts are those of the table, since snapshots
expire.

Invariants:

1. A commit adds all of its files and marks, or nothing.
2. A commit fails if another one, since the version that was looked at, has changed the table's rows or marks.

Called by the connector of Iceberg tables, and by `iceberg_compaction`. Source: Iceberg's specification;
pyiceberg's documentation.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from drivetrain.api.connectors.iceberg_sink import IcebergSink
from drivetrain.api.connectors.partition_names import field_name, partition_name
from drivetrain.connectors.files.output_ownership import require_writable
from drivetrain.connectors.iceberg.iceberg_catalog import (
    IcebergPlace,
    is_of_database,
    local_path,
    open_catalog,
)
from drivetrain.connectors.iceberg.iceberg_files import (
    arrow_columns,
    declared_partitions,
    described,
    file_layout,
    place_of,
    transform_of,
    unknown_partitions,
)
from drivetrain.connectors.iceberg.merged_files import MergedFiles
from drivetrain.connectors.partition_values import require_partitions
from drivetrain.connectors.tables.data_files import DataFile, Layout
from drivetrain.connectors.tables.table_columns import Fit
from drivetrain.connectors.tables.table_target import ConflictError, TableTarget, first_line
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile as DescribedFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.update.snapshot import UpdateSnapshot

log = logging.getLogger("drivetrain.tables")

_RETRIES = "commit.retry.num-retries"
_NEWEST_FORMAT = 2
_CONFLICTS = frozenset({"CommitFailedException"})
_UNKNOWN = frozenset({"CommitStateUnknownException", "ServerError", "ServiceUnavailableError"})
_UNREACHABLE = frozenset({"ConnectionError", "ConnectTimeout", "ReadTimeout", "OperationalError", *_UNKNOWN})


class IcebergTarget(TableTarget):
    """The table that a sink declares."""

    library = "Iceberg's library"

    def __init__(self, sink: IcebergSink, stores: StoreSettings) -> None:
        super().__init__(sink.name)
        self._sink = sink
        self._stores = stores
        self._catalog: Catalog | None = None

    @property
    def identity(self) -> str:
        """The table in its catalog."""
        return f"{self._sink.catalog}/{self._sink.table}"

    # -- looking ---------------------------------------------------------------------------------------

    def refreshed(self) -> Table | None:
        """The table in its newest version; None if there is none. Raises `OutputError`."""
        try:
            return self._opened().load_table(self._sink.table)
        except Exception as error:
            if type(error).__name__ in ("NoSuchTableError", "NoSuchNamespaceError"):
                return None
            raise self.meant(error) from error

    def columns(self, table: Table) -> pa.Schema:
        """The table's columns, in Arrow's types."""
        return arrow_columns(table)

    def partitions(self, table: Table) -> tuple[str, ...]:
        """How the table is partitioned."""
        return declared_partitions(table)

    def mark(self, table: Table, name: str) -> int | None:
        """A property of the table."""
        text = table.properties.get(name)
        return None if text is None else int(text)

    def place(self, table: Table) -> IcebergPlace:
        """Where the table's data files are."""
        return place_of(table)

    def layout(self, table: Table, fit: Fit, stem: str) -> Layout:
        """Files with the batch's columns, by their numbers in the table."""
        return file_layout(table, fit.columns.names, stem, self.where, fit.required)

    def require_creatable(self) -> None:
        """Raise `OutputError` unless the missing table can be created, as far as that is known."""
        warehouse = self._opened().properties.get("warehouse", "")
        path = local_path(warehouse) if warehouse else None
        if path is not None:
            require_writable(path)

    def require_appendable(self, table: Table) -> None:
        """Raise `OutputError` for a table with rules that files of Spark's tasks may break."""
        unmet = unknown_partitions(table)
        if table.format_version > _NEWEST_FORMAT:
            unmet.append(f"format version {table.format_version}")
        if unmet:
            raise OutputError(
                "the table has rules that this sink cannot observe",
                where=self.where,
                expected="a table of format version 1 or 2, divided by columns or by units of time",
                got=", ".join(unmet),
                remedy="write to another table and copy from there",
            )

    def require_partitions(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Raise `OutputError` unless the columns can divide a table into partitions."""
        require_partitions(columns, partition_by, self.where)

    # -- changing --------------------------------------------------------------------------------------

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> Table:
        """Create the table, unless another process has just done so; returns its newest version."""
        catalog = self._opened()
        try:
            self._create_namespace(catalog)
            creating = catalog.create_table_transaction(self._sink.table, columns)
            with creating.update_spec() as spec:
                for declared in partition_by:
                    one = partition_name(declared)
                    spec.add_field(one.column, transform_of(one.unit), field_name(declared))
            creating.commit_transaction()
        except Exception as error:
            if self.refreshed() is None:
                if is_of_database(error):
                    raise ConflictError(first_line(error)) from error
                raise self.meant(error) from error
        table = self.refreshed()
        if table is None:
            raise self.vanished()
        return table

    def add_columns(self, table: Table, columns: Sequence[pa.Field]) -> None:
        """Add columns, whose values are null in existing rows, to the table."""
        added = pa.schema([field.with_nullable(True) for field in columns])

        def change() -> None:
            with table.update_schema() as update:
                update.union_by_name(added)

        self._committed(change)

    def commit(self, table: Table, files: Sequence[DataFile], marks: Mapping[str, int]) -> None:
        """Add files to this version of the table, and set marks; raises `ConflictError` or `OutputError`."""

        def append(changing: Transaction, snapshot: UpdateSnapshot) -> None:
            with snapshot.merge_append() as appended:
                for file in files:
                    appended.append_data_file(described(table, file))

        self._changed(table, marks, append)

    def merge(self, table: Table, rows: pa.Table, key: Sequence[str], marks: Mapping[str, int]) -> None:
        """Replace the rows with the same keys, add the others, and set marks; one row for each key."""
        merged = MergedFiles(table, rows, key, f"drivetrain-merged-{uuid.uuid4().hex[:8]}-", self.where)

        def replace(changing: Transaction, snapshot: UpdateSnapshot) -> None:
            with snapshot.overwrite() as overwritten:
                for removed in merged.removed:
                    overwritten.delete_data_file(removed)
                for file in merged.written:
                    overwritten.append_data_file(described(table, file))

        try:
            self._committed(merged.write)
            self._changed(table, marks, replace)
        except ConflictError as error:
            if error.is_certain:
                self.delete(table, merged.written)
            raise

    def empty(self, table: Table, marks: Mapping[str, int]) -> None:
        """Remove all rows, and set marks."""

        def remove(changing: Transaction, snapshot: UpdateSnapshot) -> None:
            with snapshot.overwrite() as overwritten:
                for task in table.scan().plan_files():
                    overwritten.delete_data_file(task.file)

        self._changed(table, marks, remove)

    def replace(self, table: Table, removed: Sequence[DescribedFile], written: Sequence[DataFile]) -> None:
        """Put the written files in place of others with the same rows; no mark changes."""

        def replace(changing: Transaction, snapshot: UpdateSnapshot) -> None:
            with snapshot.overwrite() as overwritten:
                for file in removed:
                    overwritten.delete_data_file(file)
                for one in written:
                    overwritten.append_data_file(described(table, one))

        self._changed(table, {}, replace)

    def delete(self, table: Table, files: Sequence[DataFile]) -> None:
        """Delete files that no commit has named."""
        filesystem, directory = place_of(table).open()
        for file in files:
            try:
                filesystem.delete_file(os.path.join(directory, file.name))
            except OSError as error:
                log.warning("a file that no reader sees could not be deleted: %s", error)

    # -- implementation --------------------------------------------------------------------------------

    def _changed(
        self,
        table: Table,
        marks: Mapping[str, int],
        change: Callable[[Transaction, UpdateSnapshot], None],
    ) -> None:
        """Commit one snapshot together with marks, if there are any, on this version or not at all."""
        properties = {name: str(number) for name, number in marks.items()}
        table.metadata.properties[_RETRIES] = "0"

        def commit() -> None:
            changing = table.transaction()
            if properties:
                changing.set_properties(properties)
            change(changing, changing.update_snapshot(snapshot_properties=properties))
            changing.commit_transaction()

        self._committed(commit)

    def _committed(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except Exception as error:
            kind = type(error).__name__
            if kind in _CONFLICTS or kind in _UNKNOWN or is_of_database(error):
                raise ConflictError(first_line(error), is_certain=kind in _CONFLICTS) from error
            raise self.meant(error) from error

    def _create_namespace(self, catalog: Catalog) -> None:
        try:
            catalog.create_namespace_if_not_exists(self._sink.table.rpartition(".")[0])
        except Exception as error:
            if not is_of_database(error):
                raise
            log.info("%s: another process has made the namespace: %s", self.where, first_line(error))

    def _opened(self) -> Catalog:
        if self._catalog is None:
            try:
                self._catalog = open_catalog(self._sink, self._stores)
            except DrivetrainError:
                raise
            except Exception as error:
                raise self.meant(error) from error
        return self._catalog

    def meant(self, error: Exception) -> DrivetrainError:
        """The user's error for one of the library's."""
        if not isinstance(error, DrivetrainError) and type(error).__name__ in _UNREACHABLE:
            return UnavailableError(
                "the catalog does not answer",
                where=self.where,
                got=first_line(error),
                remedy="check the catalog's options and the network, then run the same command again: it "
                "continues",
            )
        return super().meant(error)
