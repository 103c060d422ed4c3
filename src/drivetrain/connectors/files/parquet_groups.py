"""Parquet: the row groups of a split as Arrow batches in the schema of the stream.

A row group belongs to the split that contains its first byte, so a large file can be divided over batches
and cores without reading its footer beforehand.

Called by the file reader, and by `opened_files` for the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drivetrain.connectors.files.blocks import unreadable
from drivetrain.connectors.files.file_log import FileSplit
from drivetrain.errors import InputError

ROWS_PER_BATCH = 65_536


def read_row_groups(
    filesystem: pafs.FileSystem, split: FileSplit, target: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups that start in `split`; raises InputError for another schema or damage."""
    with opened_parquet(filesystem, split.path) as file:
        yield from row_groups(file, split, target)


def row_groups(file: pq.ParquetFile, split: FileSplit, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the row groups of an open file that start in `split`."""
    check_file_schema(file.schema_arrow, target, split.path)
    metadata = file.metadata
    groups = [
        index
        for index in range(metadata.num_row_groups)
        if split.start <= _first_byte(metadata.row_group(index)) < split.end
    ]
    if groups:
        for batch in file.iter_batches(
            ROWS_PER_BATCH, row_groups=groups, columns=target.names, use_threads=False
        ):
            yield fit_batch(batch, target, split.path)


@contextmanager
def opened_parquet(filesystem: pafs.FileSystem, path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file; raises InputError, also while it is read, if it is missing or damaged."""
    try:
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            yield file
    except (OSError, pa.ArrowInvalid) as error:
        raise unreadable(path, error) from error


def read_schema(filesystem: pafs.FileSystem, path: str) -> pa.Schema:
    """The Arrow schema of a Parquet file; raises InputError if it is not a Parquet file."""
    with opened_parquet(filesystem, path) as file:
        return file.schema_arrow


def first_rows(filesystem: pafs.FileSystem, path: str, target: pa.Schema) -> pa.RecordBatch | None:
    """Some rows at the beginning of a file; None if it has none. Raises InputError like `read_row_groups`."""
    with opened_parquet(filesystem, path) as file:
        check_file_schema(file.schema_arrow, target, path)
        rows = next(file.iter_batches(ROWS_PER_BATCH, columns=target.names, use_threads=False), None)
        return None if rows is None else fit_batch(rows, target, path)


def check_file_schema(schema: pa.Schema, target: pa.Schema, path: str) -> None:
    """Raise InputError unless every column of `target` is in the file with a type that fits."""
    for field in target:
        if field.name not in schema.names:
            raise InputError(
                f"the file has no column {field.name}",
                where=path,
                expected=", ".join(f"{wanted.name} {wanted.type}" for wanted in target),
                got=", ".join(f"{found.name} {found.type}" for found in schema),
                remedy="read files of one schema, or declare a schema with the columns that all files have",
            )
        found = schema.field(field.name).type
        if not _fits(found, field.type):
            raise InputError(
                f"column {field.name} has another type in this file",
                where=path,
                expected=str(field.type),
                got=str(found),
                remedy="write the files with one schema, or declare the wider type as the source's schema",
            )


def fit_batch(batch: pa.RecordBatch, target: pa.Schema, path: str) -> pa.RecordBatch:
    """`batch` with the columns of `target`, in order and type; raises InputError if values do not fit."""
    columns = []
    for field in target:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                # Nanoseconds are truncated to Spark's microseconds; all other values must fit exactly.
                column = column.cast(field.type, safe=not pa.types.is_timestamp(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"a value of column {field.name} does not fit its type",
                    where=path,
                    expected=str(field.type),
                    got=str(error),
                ) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _first_byte(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    if column.has_dictionary_page and column.dictionary_page_offset:
        return int(min(column.dictionary_page_offset, column.data_page_offset))
    return int(column.data_page_offset)


def _fits(found: pa.DataType, target: pa.DataType) -> bool:
    if found == target:
        return True
    if pa.types.is_dictionary(found):
        return _fits(found.value_type, target)
    if pa.types.is_fixed_size_binary(found):
        return _fits(pa.binary(), target)
    families = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_timestamp,
        pa.types.is_decimal,
        lambda kind: (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        ),
        lambda kind: (
            pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        ),
        pa.types.is_nested,
    )
    widened = pa.types.is_integer(found) and (pa.types.is_floating(target) or pa.types.is_decimal(target))
    return widened or any(family(found) and family(target) for family in families)
