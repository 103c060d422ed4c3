"""The rows that a task reads from a channel's segments: messages, or partial results of windows.

Problem: what is read from a segment goes from Python to Java, row by row there. A message that a window only
counts costs as much as one that is needed.

Design: a segment is verified as a whole, then only the columns of the schema are decompressed. With a
`Reduction` its messages are grouped in columns (`reduced_batches`), a segment at a time. Either way the clock
comes in one row of its own, the punctuation, which stands for no message.

Invariants:

1. Messages and partial results of a segment do not depend on what else is in the task.
2. No data row moves the watermark; the punctuation moves it to the clock.

Called by `source`, in Spark's Python workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from drivetrain.errors import InputError
from drivetrain.runtime.channel.columns import BAD, PUNCT, TS, WM
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.spark.channel.reduced_batches import Reducer
from drivetrain.spark.channel.watermark import watermark_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from drivetrain.core.channel.channel_log import Segment
    from drivetrain.runtime.channel.files import ChannelFiles
    from drivetrain.spark.connector.reduction import Reduction

_OWN = (WM, PUNCT)
"""The columns that no segment has."""


class SegmentRows(Protocol):
    """What a task delivers of segments."""

    def rows(self, files: ChannelFiles, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """The rows of segments, in order. Raises MessageLossError, and InputError for other columns."""

    def punctuation(self, clock_ms: int) -> pa.RecordBatch:
        """The row that carries the clock."""


class MessageRows:
    """The messages, with the columns of `schema`, which has those of `channel_schema` or some of them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._stored = pa.schema([field for field in schema if field.name not in _OWN])

    def rows(self, files: ChannelFiles, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """One row for each message."""
        for segment in segments:
            for batch in read_segment(files, segment, self._stored.names):
                stored = _conformed(batch, self._stored, segment)
                yield self._completed(stored, dict(zip(self._stored.names, stored.columns, strict=True)))

    def punctuation(self, clock_ms: int) -> pa.RecordBatch:
        """A row without data: `__punct` is true, `__ts` the clock, `__wm` the watermark of the clock."""
        known = {TS: clock_ms * 1000, WM: watermark_of(clock_ms) * 1000, PUNCT: True}
        columns = [pa.array([known.get(field.name)], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _completed(self, stored: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
        for field in self._schema:
            if field.name in _OWN:  # the epoch, and false
                columns[field.name] = pa.repeat(pa.scalar(0, pa.int64()).cast(field.type), stored.num_rows)
        arrays = [columns[field.name] for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ReducedRows:
    """Partial results of messages with the columns `of`, by `reduction`."""

    def __init__(self, reduction: Reduction, of: StructType) -> None:
        self._reducer = Reducer(reduction, of)
        self._messages = self._reducer.messages

    def rows(self, files: ChannelFiles, segments: Iterable[Segment]) -> Iterator[pa.RecordBatch]:
        """One row for each group of a segment's messages."""
        for segment in segments:
            batches = [
                _conformed(batch, self._messages, segment)
                for batch in read_segment(files, segment, self._messages.names)
            ]
            whole = pa.concat_batches(batches) if batches else None
            if whole is not None and whole.num_rows:
                yield self._reducer.of_batch(whole)

    def punctuation(self, clock_ms: int) -> pa.RecordBatch:
        """A row that stands for no message, with the watermark of the clock."""
        return self._reducer.punctuation(watermark_of(clock_ms) * 1000)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, segment: Segment) -> pa.RecordBatch:
    """The columns of `schema` of a segment's batch."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays([_column(batch, field, segment) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, segment: Segment) -> Any:
    index = batch.schema.get_field_index(field.name)
    if index < 0 and field.name == BAD:  # stored while a bad row was an error: there is none
        return pa.nulls(batch.num_rows, field.type)
    if index < 0:
        raise _mismatch(batch, field, segment)
    column = batch.column(index)
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)  # a nested type whose parts are now nullable, or a wider number
    except pa.ArrowException as error:
        raise _mismatch(batch, field, segment) from error


def _mismatch(batch: pa.RecordBatch, field: pa.Field, segment: Segment) -> InputError:
    return InputError(
        "the channel's messages do not have the columns that its subscriber expects",
        where=segment.path,
        expected=f"{field.name}: {field.type}",
        got=", ".join(f"{f.name}: {f.type}" for f in batch.schema),
        remedy="run the producer again with --fresh if its columns have changed",
    )
