"""Rows of Python values as Arrow batches with an event time.

Problem: a source yields rows one by one, in various shapes, and one of ten thousand may not fit the declared
type. The error must name that row, and the other rows must not be lost.

Design: convert a batch column by column, which is fast. Only if that fails, search for the row.

Invariants:

1. A batch holds the declared columns, in order, and `__ts`.
2. A bad row is reported alone; the rows before it are converted.

Called by: source-end ingestion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import TS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class RowBatches:
    """Converts rows of `schema` (Arrow, without `__ts`), with timestamps from `event_time_ms`.

    A row is a mapping, a tuple or list, or, with a single column, the bare value. `where` names the
    source in errors.
    """

    def __init__(self, schema: Any, event_time_ms: Callable[[Any], int], *, where: str) -> None:
        self._columns = schema
        self._schema = schema.append(pa.field(TS, pa.timestamp("us", tz="UTC")))
        self._event_time_ms = event_time_ms
        self._where = where

    def converted(self, rows: Sequence[Any], before: int) -> tuple[Any | None, InputError | None]:
        """The rows as one batch; if one of them is bad, those before it and the error.

        `before` is how many rows the source delivered earlier, for the row number in the error.
        """
        if not rows:
            return None, None
        try:
            return self._batch(rows), None
        except Exception:  # noqa: BLE001 - anything from the user's function; `_first_bad` finds its row
            bad, error = self._first_bad(rows, before)
            return (self._batch(rows[:bad]) if bad else None), error

    def _first_bad(self, rows: Sequence[Any], before: int) -> tuple[int, InputError]:
        for index in range(len(rows)):
            try:
                self._batch(rows[index : index + 1])
            except Exception as error:  # noqa: BLE001 - reported with the row that caused it
                return index, self._bad_row(rows[index], before + index + 1, error)
        # Each row can be converted alone, but not together with the first: a mixture of mappings and
        # sequences.
        kind = type(rows[0])
        index = next((index for index, row in enumerate(rows) if type(row) is not kind), 0)
        mixed = TypeError(f"a {type(rows[index]).__name__} among rows that begin with a {kind.__name__}")
        return index, self._bad_row(rows[index], before + index + 1, mixed)

    def _bad_row(self, row: Any, number: int, cause: Exception) -> InputError:
        error = InputError(
            f"row {number} of the source cannot be stored",
            where=self._where,
            expected=", ".join(f"{field.name}: {field.type}" for field in self._columns),
            got=f"{row!r:.200} ({type(cause).__name__}: {cause})",
            remedy="correct the source or its declared types",
        )
        error.__cause__ = cause
        return error

    def _batch(self, rows: Sequence[Any]) -> Any:
        names = self._columns.names
        first = rows[0]
        if isinstance(first, dict):
            columns = [[row.get(name) for row in rows] for name in names]
        elif isinstance(first, (tuple, list)):
            # zip would drop the values of a longer row, and the rows after a shorter one
            if any(len(row) != len(names) for row in rows):
                raise ValueError(f"expected {len(names)} values")
            columns = [list(column) for column in zip(*rows, strict=True)]
        else:
            columns = [list(rows)]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._columns, strict=True)]
        stamps = pa.array([self._event_time_ms(row) * 1000 for row in rows], pa.int64())
        arrays.append(stamps.cast(self._schema.field(TS).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
