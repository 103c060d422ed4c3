"""Opens Delta tables as sources: from their declaration to a streaming DataFrame.

What if we die here: the file with the source's beginning is written under another name, synced and renamed.
Until it has its name, the next start decides where the source begins, and nothing has been read.

Called by the connector of Delta tables, once per source and start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from drivetrain.api.connectors.delta_source import DeltaRows
from drivetrain.connectors.delta.delta_reader import FORMAT_NAME, DeltaDataSource, DeltaPlan
from drivetrain.connectors.delta.table_library import (
    arrow_schema,
    deltalake,
    has_table,
    is_of_store,
    library_options,
)
from drivetrain.connectors.delta.table_log import Beginning, LogPosition, TableLog, columns_of, table_file
from drivetrain.connectors.partition_values import text_of
from drivetrain.connectors.schema import from_arrow
from drivetrain.durable import write_whole, writing
from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.objects.locations import is_in_object_store
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.connector.source import OpenedSource, Position, SourceContext

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_READABLE = frozenset(
    {"appendOnly", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of tables that the reader knows, or refuses where they are used."""


class OpenedDelta(OpenedSource):
    """Rows of a Delta table."""

    reader = "delta"
    how_read = "read by Arrow, in Spark's Python workers"
    limited_by = "bytes"
    unit = "bytes"

    def __init__(self, df: DataFrame, begun: Beginning, log: TableLog) -> None:
        self.df = df
        self.bounded = begun.last is not None
        self._begun = begun
        self.total = None if begun.last is None else log.total_bytes(begun.last)

    def position(self, offset: str | None) -> Position:
        """The bytes taken; a bounded source has ended after its last version."""
        at = LogPosition(**json.loads(offset)) if offset else LogPosition(self._begun.first)
        is_over = self._begun.last is not None and at.version > self._begun.last
        return Position(at.bytes, self.total, finished=is_over)


def require_table(source: DeltaRows, stores: StoreSettings) -> DeltaTable:
    """The table in its newest version; raises `InputError` unless it can be read."""
    library = deltalake()
    where, place = source.path, _place_of(source)
    if not has_table(place, stores):
        raise InputError("there is no Delta table", where=where, remedy="check the path")
    try:
        table = library.DeltaTable(place, storage_options=library_options(place, stores))
    except Exception as error:
        got = str(error).partition("\n")[0]
        if is_in_object_store(place) and is_of_store(error):
            raise UnavailableError(
                "the object store does not answer",
                where=where,
                got=got,
                remedy="check s3.endpoint and the network, then run the same command again",
            ) from error
        raise InputError(
            "the table cannot be opened",
            where=where,
            got=got,
            remedy="read it with another program (Polars, DuckDB) to see whether its log is damaged",
        ) from error
    unknown = sorted(set(table.protocol().reader_features or ()) - _READABLE)
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        unknown.append("columnMapping")
    if unknown:
        raise InputError(
            "the table has features that the source cannot read", where=where, got=", ".join(unknown)
        )
    if source.from_version is not None and source.from_version > table.version():
        raise InputError(
            f"the table has no version {source.from_version} yet",
            where=where,
            expected=f"at most {table.version()}",
            remedy="begin with an earlier version, or leave from_version out",
        )
    return table


def open_delta(source: DeltaRows, context: SourceContext) -> OpenedDelta:
    """Open a table as a stream; raises `InputError`, before anything runs, if it cannot be read."""
    plan, schema = _planned(source, context)
    begun, log = plan.open()
    context.spark.dataSource.register(DeltaDataSource)
    reader = context.spark.readStream.format(FORMAT_NAME).schema(from_arrow(schema, source.path))
    return OpenedDelta(reader.option("plan", plan.to_json()).load(), begun, log)


def read_delta_whole(source: DeltaRows, context: SourceContext) -> DataFrame:
    """The rows of a bounded source as a table: those of the first start, as for a stream."""
    plan, schema = _planned(source, context)
    context.spark.dataSource.register(DeltaDataSource)
    reader = context.spark.read.format(FORMAT_NAME).schema(from_arrow(schema, source.path))
    return reader.option("plan", plan.to_json()).load()


def _planned(source: DeltaRows, context: SourceContext) -> tuple[DeltaPlan, pa.Schema]:
    """How the source is read, and its columns; notes where it begins if it has not begun."""
    home = Path(os.path.abspath(context.state_dir))
    note, columns = home / "beginning.json", home / "columns.arrow"
    if not note.exists():
        table = require_table(source, context.stores)
        with writing("where a source begins", home):
            home.mkdir(parents=True, exist_ok=True)
            write_whole(columns, bytes(arrow_schema(table).serialize()))
            write_whole(note, msgspec.json.encode(_beginning(source, table, context.stores)))
    plan = DeltaPlan(
        directory=_place_of(source),
        beginning=str(note),
        skip_changes=source.on_change == "skip",
        max_batch_bytes=context.max_batch_bytes,
        parallelism=context.spark.sparkContext.defaultParallelism,
        limit_path=context.limit_path,
        stores=context.stores,
    )
    return plan, pa.ipc.read_schema(pa.py_buffer(columns.read_bytes()))


def _beginning(source: DeltaRows, table: DeltaTable, stores: StoreSettings) -> Beginning:
    version = table.version()
    begun = Beginning(
        first=version if source.from_version is None else source.from_version,
        last=None if source.watch else version,
        files=_files(table, source.path) if source.from_version is None else None,
        columns=columns_of(table.schema().to_json()),
        partition_by=tuple(table.metadata().partition_columns),
    )
    if source.from_version is not None:
        TableLog(_place_of(source), begun, skip_changes=False, stores=stores).require_entry(begun.first)
    return begun


def _files(table: DeltaTable, where: str) -> Any:
    """The files of a version, in an order of their own: the library has none."""
    deleted = pa.table(table.deletion_vectors()).num_rows
    if deleted:
        raise InputError(
            "the table marks removed rows in separate files, which the source cannot read",
            where=where,
            got=f"{deleted} files with deletion vectors",
            remedy="rewrite the files without removed rows: REORG TABLE … APPLY (PURGE), or OPTIMIZE",
        )
    partition_by = table.metadata().partition_columns
    found = []
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        partition = {name: text_of(row[f"partition.{name}"]) for name in partition_by}
        add = {"path": row["path"], "size": row["size_bytes"], "partitionValues": partition}
        found.append(table_file(add, where))
    return tuple(sorted(found, key=lambda file: file.name))


def _place_of(source: DeltaRows) -> str:
    """The table's directory, absolute, or its place in an object store."""
    if is_in_object_store(source.path):
        return source.path.rstrip("/")
    return os.path.abspath(os.path.expanduser(source.path))
