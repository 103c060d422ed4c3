"""Messages on their way to the groups of Spark's keyed state: a payload for each bucket, of Arrow columns.

Problem: Python objects for each message, made before the shuffle, pickled, and created again after it, take
longer than everything that a Task does with them.

Design: rows are sorted by bucket and key, with Arrow and NumPy; the messages of a key keep their order. A
payload has the keys of a bucket, the number of messages of each, and the rows as an Arrow stream. Messages
become Python objects where the Task is called, and nowhere else.

Invariants:

1. Each row is in exactly one payload, with its key; the messages of a key keep their order.
2. Keys come in the order in which they first occurred.

Called by `persistent_packs`, `persistent_buckets`, `keyed_tasks` and `keyed`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc as ipc

from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import messages_of

Entry: TypeAlias = tuple[bytes, list[int] | None, list[Any]]
"""A key, the timestamps of its messages (µs) or None without event time, and the messages."""

_SHORT: Final = 1 << 16
"""NumPy sorts numbers of 16 bits by their digits, many times faster than others."""


@dataclass(frozen=True)
class MessageForm:
    """How messages are made of rows: of which columns, in which class, and whether they have event time."""

    columns: tuple[str, ...]
    message: type | None
    timed: bool

    @property
    def needed(self) -> list[str]:
        """The columns of a payload."""
        return [*self.columns, *([TS] if self.timed else [])]


def payloads(
    rows: pa.RecordBatch, numbers: npt.NDArray[Any], keys: Sequence[bytes], buckets: Sequence[int]
) -> pa.RecordBatch:
    """Rows `(bucket, payload)`.

    `numbers` has the number of each row's key, `keys` and `buckets` are by number. Each key must occur.
    """
    of_key = np.asarray(buckets, np.int64)
    by_bucket = np.argsort(of_key, kind="stable")
    place = np.empty(len(keys), np.int64)
    place[by_bucket] = np.arange(len(keys))
    placed = place[numbers]
    ordered = rows.take(pa.array(_stable_order(placed, len(keys))))
    counts = np.bincount(placed, minlength=len(keys))
    ends = np.cumsum(counts)
    found, firsts = np.unique(of_key[by_bucket], return_index=True)
    contents = []
    for first, last in zip(firsts, [*firsts[1:], len(keys)], strict=True):
        begin = int(ends[first] - counts[first])
        part = ordered.slice(begin, int(ends[last - 1]) - begin)
        head = [keys[number] for number in by_bucket[first:last].tolist()], counts[first:last].tolist()
        contents.append(pickle.dumps((*head, _stream(part)), 5))
    return pa.RecordBatch.from_arrays(
        [pa.array(found, pa.int32()), pa.array(contents, pa.binary())], names=["bucket", "payload"]
    )


def entries_of(payload: bytes, form: MessageForm) -> Iterator[Entry]:
    """The keys of a payload with their messages."""
    keys, counts, content = pickle.loads(payload)  # noqa: S301 - it comes from a worker of this application
    rows = ipc.open_stream(content).read_next_batch()
    messages = messages_of(rows, form.columns, form.message)
    stamps = rows.column(TS).cast(pa.int64()).to_pylist() if form.timed else None
    begin = 0
    for key, count in zip(keys, counts, strict=True):
        end = begin + count
        yield key, None if stamps is None else stamps[begin:end], messages[begin:end]
        begin = end


def _stable_order(numbers: npt.NDArray[Any], below: int) -> npt.NDArray[Any]:
    """The order of rows by number; rows of one number keep theirs."""
    if below <= _SHORT:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    order = np.argsort((numbers % _SHORT).astype(np.uint16), kind="stable")
    return order[_stable_order(numbers[order] // _SHORT, -(-below // _SHORT))]


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
