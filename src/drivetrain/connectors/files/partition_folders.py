"""Columns whose values are in the names of directories: `country=FR/day=2024-05-01`, as Hive names them.

The problem: files of a divided directory do not have the columns by which they are divided. The design: the
source declares these columns with their types, since names are text. Each file's path below the source's has
a directory for each of them, in any order; other directories have no meaning.

Invariants:

1. All rows of a file have the same values, which depend on its path and the declaration alone.

Called by the file reader, and by `opened_files` for the schema.
"""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql.types import StructType

from drivetrain.api.sources import FileSource
from drivetrain.connectors.partition_values import NULL_FOLDER, value_of
from drivetrain.connectors.schema import to_struct
from drivetrain.errors import InputError


def declared_folders(source: FileSource) -> StructType:
    """The partition columns that a source declares; needs Spark, to read their types."""
    declared = source.partition_columns
    return StructType() if declared is None else to_struct(declared, source.path)


class PartitionFolders:
    """The partition columns `fields` of the files below `root`."""

    def __init__(self, fields: pa.Schema, root: str) -> None:
        self._prefix = len(root.rstrip("/")) + 1
        self._fields = fields

    def values(self, path: str) -> dict[str, pa.Scalar]:
        """The values of a file's rows by column; raises `InputError` for a path that does not have them."""
        folders = path[self._prefix :].split("/")[:-1]
        found = {}
        for folder in folders:
            name, is_there, text = folder.partition("=")
            if is_there:
                found[unquote(name)] = None if text == NULL_FOLDER else unquote(text)
        return {field.name: self._value(field, found, path) for field in self._fields}

    def added(self, batch: pa.RecordBatch, values: dict[str, pa.Scalar], target: pa.Schema) -> pa.RecordBatch:
        """The rows of a file with its values, in the order of `target`."""
        columns = [
            pa.repeat(values[field.name], batch.num_rows)
            if field.name in values
            else batch.column(field.name)
            for field in target
        ]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    def _value(self, field: pa.Field, found: dict[str, str | None], path: str) -> pa.Scalar:
        if field.name not in found:
            raise InputError(
                f"the file is in no directory {field.name}=…",
                where=path,
                expected="/".join(f"{name}=…" for name in self._fields.names),
                remedy="move the file into such a directory, or leave the column out of partition_columns",
            )
        text = found[field.name]
        try:
            return value_of(text, field.type)
        except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(
                f"the directory of the partition column {field.name} has another type",
                where=path,
                expected=str(field.type),
                got=str(text),
                remedy="declare the type of all directories in partition_columns: string fits each",
            ) from error
