"""Rows that replace others by key in an Iceberg table: the files with replaced rows are written again.

The problem: the library's own replacement makes an expression for each key of several columns, which takes
seconds for a thousand rows, and crashes for ten thousand.

The design: of each file that may have one of the keys (by the statistics of its columns), the rows with other
keys are kept, found by a join in Arrow, and written to a new file. Columns that the new rows do not have keep
their values. One file is in memory at a time.

Invariants:

1. After the commit, the table has each of the given rows once, and no other row with one of their keys.

Called by `iceberg_table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.connectors.iceberg.iceberg_files import arrow_columns, file_layout, read_file
from drivetrain.connectors.tables.data_files import DataFile, write_table

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as DescribedFile
    from pyiceberg.table import Table

_OLD, _NEW = "__old", "__new"
_MOST_IN = 200
"""Up to so many values of a key, the library compares each with a file's statistics."""


class MergedFiles:
    """The change of a table that a merge makes: removed files, and the files in their place."""

    def __init__(self, table: Table, rows: pa.Table, key: Sequence[str], stem: str, where: str) -> None:
        self.removed: list[DescribedFile] = []
        self.written: list[DataFile] = []
        self._table = table
        self._key = list(key)
        self._stem = stem
        self._where = where
        self._columns = arrow_columns(table)
        self._types = {name: self._columns.field(name).type for name in self._key}
        self._rows = rows

    def write(self) -> None:
        """Write the new files; what is written before an error is in `written`."""
        missing = [name for name in self._columns.names if name not in self._rows.column_names]
        kept_values: dict[str, list[Any]] = {name: [] for name in missing}
        replacing: list[Any] = []
        ours = self._keys(self._rows, _NEW)
        for task in self._table.scan(row_filter=self._filter()).plan_files():
            found = read_file(self._table, task)
            pairs = self._keys(found, _OLD).join(ours, keys=self._key, join_type="inner")
            if not pairs.num_rows:
                continue
            self.removed.append(task.file)
            replacing.append(pairs.column(_NEW).combine_chunks())
            for name in missing:
                values = found.column(name).take(pairs.column(_OLD))
                kept_values[name].append(values.cast(self._columns.field(name).type))
            kept = np.setdiff1d(np.arange(found.num_rows), pairs.column(_OLD).to_numpy())
            self._written(found.take(pa.array(kept)))
        self._written(self._completed(kept_values, replacing))

    def _keys(self, rows: pa.Table, place: str) -> pa.Table:
        arrays = [rows.column(name).cast(self._types[name]) for name in self._key]
        return pa.table([*arrays, pa.array(np.arange(rows.num_rows))], names=[*self._key, place])

    def _completed(self, kept_values: dict[str, list[Any]], replacing: list[Any]) -> pa.Table:
        """The rows with the columns that they do not have, from the rows that they replace."""
        rows = self._rows
        places = pa.chunked_array(replacing, pa.int64()).to_numpy() if replacing else np.array([], np.int64)
        for name, chunks in kept_values.items():
            kind = self._columns.field(name).type
            values = pa.chunked_array([part for column in chunks for part in column.chunks], kind)
            at = np.full(rows.num_rows, -1)
            at[places] = np.arange(len(places))
            indices = pa.array(at, mask=at < 0)
            rows = rows.append_column(name, values.take(indices) if len(values) else pa.nulls(len(at), kind))
        return rows

    def _written(self, rows: pa.Table) -> None:
        if rows.num_rows:
            layout = file_layout(self._table, rows.column_names, self._stem, self._where)
            self.written += write_table(rows, layout)

    def _filter(self) -> Any:
        """What the rows with one of the keys have in common; readers skip files without such rows."""
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual

        found: Any = AlwaysTrue()
        for name, kind in self._types.items():
            if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                continue
            values = pc.unique(self._rows.column(name))
            if len(values) <= _MOST_IN:
                found = And(found, In(name, values.to_pylist()))
            else:
                ends = pc.min_max(values).as_py()
                between = And(GreaterThanOrEqual(name, ends["min"]), LessThanOrEqual(name, ends["max"]))
                found = And(found, between)
        return found
