"""Deduplication on Spark's keyed state: of a key's messages, those more than a span apart pass.

Problem: Spark's own operator forgets a key by its watermark, which moves between batches. If a message is far
enough from the last one that passed, it is dropped nevertheless when both are in one batch. And among
messages out of order, the one that arrives first passes, so the result depends on how the input is divided
into batches.

Design: messages wait until the clock reaches their time, when no earlier one can come, and are then judged in
the order of their times (`core.state.deduplication_state`). The input is packed by bucket of keys, as for
folds (see `keyed`), but as Arrow: only the key of a message becomes a Python object. A bucket is one Spark
group, and its state is one blob: for each key the time of the last message that passed, and the waiting
messages.

Messages of one key and one time are judged together: at most one of them passes, the first by its content, so
a repeated batch gives the same result.

Called by `prepare.fragment`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Deduplicate
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, ended_by
from drivetrain.core.state.deduplication_state import DeduplicationState
from drivetrain.core.state.paged_state import bucket_of
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import keys_of
from drivetrain.spark.compile.bucket_function import BucketFunction
from drivetrain.spark.compile.frame import Frame, require_column
from drivetrain.spark.compile.keyed import PACKED, bucket_row, clock_in, kept_in_buckets, timeout_at, unpacked
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings

if TYPE_CHECKING:
    import pandas as pd

_KEY: Final = "__key"
_DIGEST: Final = 16
_LAST_US: Final = 2**63 - 1
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode
_MANY: Final = 50_000
"""Rows that are packed together."""


def deduplicate(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a deduplication; the DataFrame holds packed messages that pass, for `expand`."""
    operation, frame = node.operation, inputs[0]
    assert isinstance(operation, Deduplicate)
    if not frame.timed:
        raise GraphError(
            "deduplicate needs event time, and these messages have none",
            where=str(node),
            remedy='put .event_time("column", max_disorder="10 s") before it',
        )
    ready = frame.resolved()
    keys = operation.keys or ready.columns
    for key in keys:
        require_column(key, ready.columns, str(node), "to compare messages by")
    columns = (*ready.columns, TS)
    rows = ready.df.select(*columns)
    packed = rows.mapInArrow(RowPack(keys, columns), PACKED)
    out = kept_in_buckets(packed, DeduplicateFunction(operation.within_ms * 1000, str(node)))
    schema = StructType([rows.schema[name] for name in columns])

    def expand(df: DataFrame) -> Frame:
        passed = unpacked(df, UnpackRows(columns), schema, str(node))
        return Frame(passed, (), ready.message)

    return StatefulPlan(out, expand=expand)


@dataclass(frozen=True)
class RowPack:
    """Packs rows with their keys by bucket, as Arrow streams."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield, for each chunk of the input, one row per bucket that occurs in it."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if batch.num_rows:
                waiting.append(batch.select(list(self.columns)))
                rows += batch.num_rows
            if rows > _MANY:
                yield self._packed(pa.Table.from_batches(waiting))
                waiting, rows = [], 0
        if waiting:
            yield self._packed(pa.Table.from_batches(waiting))

    def _packed(self, table: pa.Table) -> pa.RecordBatch:
        keys = self._keys(table)
        numbers = np.fromiter(map(bucket_of, keys), np.int32, len(keys))
        order = np.argsort(numbers, kind="stable")
        ordered = table.append_column(_KEY, pa.array(keys, pa.binary())).take(pa.array(order))
        buckets, starts = np.unique(numbers[order], return_index=True)
        ends = [*starts[1:], len(keys)]
        payloads = [
            as_bytes(ordered.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)
        ]
        return pa.RecordBatch.from_arrays(
            [pa.array(buckets, pa.int32()), pa.array(payloads, pa.binary())], names=["bucket", "payload"]
        )

    def _keys(self, table: pa.Table) -> list[bytes]:
        parts = [keys_of(table.column(name).combine_chunks()) for name in self.keys]
        return [
            _short(encoded_key(key)) for key in (parts[0] if len(parts) == 1 else zip(*parts, strict=True))
        ]


@dataclass(frozen=True)
class DeduplicateFunction(BucketFunction):
    """Called by Spark for a bucket: judges the messages that the clock has reached, keeps the others."""

    span_us: int
    operator: str

    def _rows(self, _bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        clock_ms = clock_in(state)
        kept, held = _decode(state.get[0]) if state.exists else (None, b"")
        first = DeduplicationState(self.span_us, kept)
        tables = [] if state.hasTimedOut else [as_table(p) for frame in frames for p in frame["payload"]]
        came = sum(table.num_rows for table in tables)
        tables = [table.filter(pc.greater_equal(times_of(table), clock_ms * 1000)) for table in tables]
        late = came - sum(table.num_rows for table in tables)
        if held:
            tables.append(as_table(held))
        if not tables:
            first.forget(clock_ms * 1000)
            _keep(state, first, None, clock_ms)
            return
        table = pa.concat_tables(tables)
        is_due = pc.less_equal(times_of(table), min(ended_by(clock_ms) * 1000, _LAST_US))
        passed = passing(first, table.filter(is_due))
        first.forget(clock_ms * 1000)
        _keep(state, first, table.filter(pc.invert(is_due)), clock_ms)
        if late or passed.num_rows:
            payload = as_bytes(passed.drop_columns([_KEY])) if passed.num_rows else None
            yield bucket_row(payload, late)


def passing(first: DeduplicationState, table: pa.Table) -> pa.Table:
    """The rows of a table that pass, in the order of their times."""
    rows = zip(
        times_of(table).to_pylist(), table.column(_KEY).to_pylist(), range(table.num_rows), strict=True
    )
    chosen = []
    for (time_us, key), alike in groupby(sorted(rows), key=lambda row: row[:2]):
        if first.passes(key, time_us):
            among = [row for *_, row in alike]
            chosen.append(among[0] if len(among) == 1 else min(among, key=lambda row: _content(table, row)))
    return table.take(pa.array(chosen, pa.int64()))


def _content(table: pa.Table, row: int) -> str:
    return repr(table.slice(row, 1).to_pylist())


def _keep(state: Any, first: DeduplicationState, waiting: pa.Table | None, clock_ms: int) -> None:
    """Store the state for the next call, and set its timeout to when the clock reaches the next message."""
    held, next_us = b"", first.forgets_at_us
    if waiting is not None and waiting.num_rows:
        held, next_us = as_bytes(waiting), pc.min(times_of(waiting)).as_py()
    if next_us is None or clock_ms >= FINAL_CLOCK_MS:
        if state.exists:
            state.remove()
        return
    state.update((msgspec.msgpack.encode((first.saved(), held)),))
    timeout_at(state, -(-next_us // 1000), clock_ms)


@dataclass(frozen=True)
class UnpackRows:
    """Unpacks rows into their columns."""

    columns: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of each payload."""
        for batch in batches:
            for payload in batch.column(0).to_pylist():
                yield from as_table(payload).select(list(self.columns)).to_batches()


def as_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def as_table(content: bytes) -> pa.Table:
    """The table of `as_bytes`."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def times_of(table: pa.Table) -> pa.ChunkedArray:
    """The timestamps of packed rows, in microseconds."""
    return table.column(TS).cast(pa.int64())


def _short(key: bytes) -> bytes:
    """The key, or a digest of a long one: it is stored for every key and message."""
    return key if len(key) < _DIGEST else hashlib.blake2b(key, digest_size=_DIGEST).digest()
