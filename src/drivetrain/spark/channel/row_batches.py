"""Rows of Python values as Arrow batches with an event time.

Problem: a source yields rows one by one, in various shapes, and one of ten thousand may not fit the declared
type. The error must name that row, and the other rows must not be lost.

Design: convert a batch column by column, which is fast. Only if that fails, search for the row: by halves, so
that a source with a few bad rows stays fast.

Invariants:

1. A batch holds the declared columns, in order, and `__ts`.
2. A bad row is reported alone; the rows before it are converted. If bad rows go to the dead letters, it
   becomes a row whose declared columns are null, in its place, and all rows are converted.

Called by: source-end ingestion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import BAD, TS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


SHOWN_CHARACTERS = 1_000
"""How many characters of a bad row are kept as text."""


@dataclass(frozen=True)
class UnreadableRow:
    """A row that the source's feed could not read: its content as text, and the error."""

    raw: str
    error: str


class RowBatches:
    """Converts rows of `schema` (Arrow, without `__ts`), with timestamps from `event_time_ms`.

    A row is a mapping, a tuple or list, or, with a single column, the bare value. `where` names the
    source in errors. If `schema` has the column `__bad`, it gets the bad rows.
    """

    def __init__(self, schema: Any, event_time_ms: Callable[[Any], int], *, where: str) -> None:
        bad = schema.get_field_index(BAD)
        self._bad = None if bad < 0 else schema.field(bad)
        self._columns = schema if bad < 0 else schema.remove(bad)
        self._schema = schema.append(pa.field(TS, pa.timestamp("us", tz="UTC")))
        self._event_time_ms = event_time_ms
        self._where = where

    def converted(self, rows: Sequence[Any], before: int) -> tuple[Any | None, InputError | None]:
        """The rows as one batch; if one is bad and there is no column for bad rows, those before it and the
        error.

        `before` is how many rows the source delivered earlier, for the row number in the error.
        """
        if not rows:
            return None, None
        try:
            return self._batch(rows), None
        except Exception:  # noqa: BLE001 - anything from the user's function; its row is searched for
            if self._bad is not None:
                return _joined(self._set_aside(rows, before)), None
            bad, error = self._first_bad(rows, before)
            return (self._batch(rows[:bad]) if bad else None), error

    def _set_aside(self, rows: Sequence[Any], before: int) -> list[Any]:
        """The rows as batches, each bad one as a batch of its own."""
        try:
            return [self._batch(rows)]
        except Exception as error:  # noqa: BLE001 - as above
            if len(rows) == 1:
                return [self._bad_batch(rows[0], before + 1, error)]
        half = len(rows) // 2
        return self._set_aside(rows[:half], before) + self._set_aside(rows[half:], before + half)

    def _bad_batch(self, row: Any, number: int, cause: Exception) -> Any:
        assert self._bad is not None
        if isinstance(row, UnreadableRow):
            raw, error = row.raw, row.error
        else:
            raw, error = f"{row!r:.{SHOWN_CHARACTERS}}", f"{type(cause).__name__}: {cause}"
        bad = {"raw": raw, "file": self._where, "line": number, "error": error}
        return self._with_times([[None]] * len(self._columns), [bad], [self._stamp(row)])

    def _stamp(self, row: Any) -> int | None:
        try:
            return self._event_time_ms(row)
        except Exception:  # noqa: BLE001 - of a row that is bad
            return None

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
        return self._with_times(columns, [None] * len(rows), [self._event_time_ms(row) for row in rows])

    def _with_times(self, columns: list[list[Any]], bad: list[Any], times_ms: list[int | None]) -> Any:
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self._columns, strict=True)]
        if self._bad is not None:
            arrays.append(pa.array(bad, self._bad.type))
        stamps = pa.array([None if ms is None else ms * 1000 for ms in times_ms], pa.int64())
        arrays.append(stamps.cast(self._schema.field(TS).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _joined(batches: list[Any]) -> Any:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
