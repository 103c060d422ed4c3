"""Segment files: immutable Arrow files of messages, with a checksum stored outside of them.

Problem: a reader must get Arrow batches without converting a row, and must notice a file that is
missing, cut short or changed.

Design: one segment is one Arrow IPC file (the choice and the figures are in
`docs/decisions/0002-segment-format.md`). Its CRC-32 and size are recorded in the log entry, so the
file is verified as a whole before a single batch of it is used.

Invariants:

1. Every segment has the event time column `__ts` (microseconds, UTC), without nulls.
2. What `read_segment` yields was verified against the size and checksum in the log.

Called by: the channel writer and reader, in Spark's Python workers, and by source-end ingestion.
"""

from __future__ import annotations

import uuid
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.channel.columns import TS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivetrain.runtime.channel.files import ChannelFiles

SEGMENTS = "segments"
REMADE = "remade"
"""Segments that the channel's subscriber wrote to replace damaged ones."""
COMPRESSION = "lz4"
"""Decompression is nearly free, and text takes half the space on disk."""


class MessageLossError(UnavailableError):
    """Messages in the log cannot be read: a segment or an entry is missing, cut short or changed.

    A fragment whose query ends with it is repaired: see `drivetrain.spark.repair.repair`.
    """

    code = "message-loss"


def write_segment(
    files: ChannelFiles,
    stem: str,
    batches: Sequence[Any],
    folder: str = SEGMENTS,
    *,
    compressed: bool = True,
) -> Segment:
    """Write record batches of one schema as one segment file in `folder` and describe it.

    `stem` is the readable part of its name; a unique part is added. The batches hold at least one row.
    Raises InputError for a message without an event time.
    """
    table = pa.Table.from_batches(batches)
    lowest, highest = _time_range_ms(table.column(TS), stem)
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=COMPRESSION if compressed else None)
    with ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    path = f"{folder}/{stem}-{uuid.uuid4().hex}.arrow"
    files.write(path, content)
    return Segment(
        path=path,
        rows=table.num_rows,
        bytes=content.size,
        crc32=zlib.crc32(content),
        min_ts_ms=lowest,
        max_ts_ms=highest,
    )


def newest_before_end_ms(stamps: Any) -> int | None:
    """The largest timestamp (ms) of an Arrow column that does not mean "no end"; None when there is none."""
    micros = stamps.cast(pa.timestamp("us", stamps.type.tz)).cast(pa.int64())
    newest = pc.max(micros.filter(pc.less(micros, FINAL_CLOCK_MS * 1000))).as_py()
    return None if newest is None else newest // 1000


def indexed_by(segment: Segment, column: Any) -> Segment:
    """The segment with the range of `column`, one of its own columns, in place of that of `__ts`.

    The column holds timestamps, or ms since the epoch as int64. Nulls do not count.
    """
    per_ms = 1
    if pa.types.is_timestamp(column.type):
        column, per_ms = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 1000
    span = pc.min_max(column)
    if not span["max"].is_valid:
        return segment
    lowest, highest = span["min"].as_py() // per_ms, span["max"].as_py() // per_ms
    return msgspec.structs.replace(segment, min_ts_ms=lowest, max_ts_ms=highest)


def read_segment(
    files: ChannelFiles, segment: Segment, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Yield the record batches of a segment; raises MessageLossError unless it matches the log.

    They have only those columns that are among `columns`; the others are not decompressed. None: all.
    """
    content = verified(files, segment)
    reader = ipc.open_file(content)
    if columns is not None and not set(reader.schema.names) <= set(columns):
        wanted = [index for index, name in enumerate(reader.schema.names) if name in set(columns)]
        reader = ipc.open_file(content, options=ipc.IpcReadOptions(included_fields=wanted))
    for index in range(reader.num_record_batches):
        yield reader.get_batch(index)


def verified(files: ChannelFiles, segment: Segment) -> Any:
    """The content of a segment file; raises MessageLossError unless it matches the log."""
    try:
        content = files.read(segment.path)
    except FileNotFoundError as error:
        raise _lost(files, segment, "the file is missing") from error
    if content.size != segment.bytes:
        raise _lost(files, segment, f"{content.size} bytes")
    crc32 = zlib.crc32(content)
    if crc32 != segment.crc32:
        raise _lost(files, segment, f"checksum {crc32:08x}")
    return content


def _time_range_ms(column: Any, stem: str) -> tuple[int, int]:
    if column.null_count:
        raise InputError(
            "a message has no event time",
            where=f"segment {stem}",
            expected=f"a timestamp in every row of {TS}",
            got=f"{column.null_count} of {len(column)} rows without one",
            remedy="filter such messages out, or give them a time, before the window or channel",
        )
    span = pc.min_max(column.cast(pa.timestamp("us")).cast(pa.int64()))
    return span["min"].as_py() // 1000, span["max"].as_py() // 1000


def _lost(files: ChannelFiles, segment: Segment, got: str) -> MessageLossError:
    return MessageLossError(
        "a segment of the channel cannot be read as it was written",
        where=f"{files.uri}/{segment.path}",
        expected=f"{segment.bytes} bytes with checksum {segment.crc32:08x}",
        got=got,
        remedy="it is repaired when the fragment starts again, unless its input is gone, too",
    )
