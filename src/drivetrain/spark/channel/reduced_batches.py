"""Reduces batches of messages to partial results, in columns; see `spark.connector.reduction`.

The problem: it must pay. A batch in which nearly every message is a group of its own only gets slower by
being grouped.

The design: after a batch that was hardly reduced, the following ones are delivered message by message. Sums
are grouped only if they cannot overflow: Arrow's would wrap around.

Called by the file reader and by `segment_rows`, in Spark's workers, and where files are opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import UserError
from drivetrain.runtime.channel.columns import WM
from drivetrain.spark.channel.watermark import END_WATERMARK_MS, SHIFT_MS
from drivetrain.spark.connector.reduction import END, ROWS, PartialValue, Reduction, name_of

_WORTH: Final = 0.5
"""Batches are grouped as long as groups are at most this share of the messages."""
_MUCH: Final = 0.25
"""Spark's own readers are not slower as long as groups are more than this share of the messages."""
_FEW: Final = 1_000
"""A batch of fewer messages does not tell whether grouping pays."""
_MOST: Final = 2**63 - 1


def is_much_reduced(sample: pa.RecordBatch, reduction: Reduction, of: StructType) -> bool:
    """Whether messages like these, with the columns `of`, become few rows: Spark need not read them."""
    return Reducer(reduction, of).of_batch(sample).num_rows <= _MUCH * sample.num_rows


class Reducer:
    """Reduces the batches of one task, with the columns `of`, by `reduction`."""

    def __init__(self, reduction: Reduction, of: StructType) -> None:
        self._by: Final = reduction
        self._target: Final = to_arrow_schema(reduction.columns(of), timezone="UTC")
        self.messages: Final = to_arrow_schema(reduction.needed(of), timezone="UTC")
        """The columns of the messages that are used."""
        self._pays = True

    def reduced(self, batches: Iterator[pa.RecordBatch], *, ends: bool) -> Iterator[pa.RecordBatch]:
        """Partial results of the messages, and with `ends` the row that marks the end of the input.

        Raises UserError for a message without a timestamp.
        """
        for batch in batches:
            if batch.num_rows:
                yield self.of_batch(batch)
        if ends:  # Spark subtracts the disorder again
            yield self.punctuation((END_WATERMARK_MS + self._by.disorder_ms) * 1000)

    def of_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Partial results of a batch's messages, at least one. Raises UserError like `reduced`."""
        columns = self._single(batch)
        if not (self._pays and self._cannot_overflow(columns, batch.num_rows)):
            return self._made(columns)
        keys = [*self._by.keys, END]
        merged = {name_of(n): _merging(value) for n, value in enumerate(self._by.values)}
        merged |= {ROWS: "sum", WM: "max"}
        table = pa.table([columns[name] for name in (*keys, *merged)], [*map(str, range(len(keys))), *merged])
        grouped = table.group_by([*map(str, range(len(keys)))], use_threads=False)
        made = grouped.aggregate([*merged.items()]).combine_chunks()
        if batch.num_rows >= _FEW:
            self._pays = made.num_rows <= _WORTH * batch.num_rows
        found = {key: made[str(number)] for number, key in enumerate(keys)}
        return self._made(found | {name: made[f"{name}_{how}"] for name, how in merged.items()})

    def _single(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """A row for each message."""
        ends, watermarks = self._times(batch)
        columns = {key: batch.column(key) for key in self._by.keys}
        columns |= {END: pa.array(ends), WM: pa.array(watermarks), ROWS: _ones(batch.num_rows)}
        for number, value in enumerate(self._by.values):
            columns[name_of(number)] = _partial(value, batch)
        return columns

    def _times(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ends of the messages' windows, and how far they move the watermark, in µs on its scale."""
        times = batch.column(self._by.timestamp)
        if times.null_count:
            raise self._untimed(batch)
        micros = times.cast(pa.int64()).to_numpy()
        size, newest = self._by.size_ms * 1000, int(micros.max())
        if newest > _MOST - SHIFT_MS * 1000 - size:
            raise UserError(
                "an event timestamp is too late to be counted", where=self._by.where, got=str(newest)
            )
        shifted = micros + SHIFT_MS * 1000
        ends = shifted - (shifted - self._by.first_ms * 1000) % size + size
        if not self._by.moves_clock:
            return ends, np.zeros(len(ends), np.int64)
        until = FINAL_CLOCK_MS * 1000  # a later timestamp means "no end", and moves nothing
        return ends, shifted if newest < until else np.where(micros < until, shifted, 0)

    def _cannot_overflow(self, columns: dict[str, Any], rows: int) -> bool:
        for number, value in enumerate(self._by.values):
            if value.function == "sum":
                extremes = pc.min_max(columns[name_of(number)]).as_py()
                if max(abs(extreme or 0) for extreme in extremes.values()) > _MOST // rows:
                    return False
        return True

    def _made(self, columns: dict[str, Any]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [_whole(columns[field.name]).cast(field.type) for field in self._target], schema=self._target
        )

    def punctuation(self, watermark_us: int) -> pa.RecordBatch:
        """A row that stands for no message, and moves Spark's watermark."""
        known = {ROWS: pa.array([0]), WM: pa.array([watermark_us])}
        nothing = {field.name: pa.nulls(1, field.type) for field in self._target}
        return self._made(nothing | known)

    def _untimed(self, batch: pa.RecordBatch) -> UserError:
        untimed = batch.filter(pc.is_null(batch.column(self._by.timestamp))).slice(0, 1).to_pylist()[0]
        known = {name: value for name, value in untimed.items() if value is not None}
        shown = json.dumps(known, default=str, ensure_ascii=False)
        return UserError("a message has no event timestamp", where=self._by.where, got=shown)


def _partial(value: PartialValue, batch: pa.RecordBatch) -> Any:
    """The values of single messages."""
    if value.column is None:
        return _ones(batch.num_rows)
    column = batch.column(value.column)
    if value.function == "count":
        return column.is_valid().cast(pa.int64())
    return column.cast(pa.int64()) if value.function == "sum" else column


def _merging(value: PartialValue) -> str:
    return "sum" if value.function == "count" else value.function


def _ones(count: int) -> pa.Array:
    return pa.array(np.ones(count, np.int64))


def _whole(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
