"""Write a batch DataFrame into a channel's segment files, on Spark's executors or in the driver.

Problem: Spark retries tasks and runs some twice by speculation. Each attempt may leave files, and exactly one
copy of the messages must count. And a Python task costs more than everything else in a small batch.

Design: Java writes the files where it can (`java_segments`), Python otherwise. Every attempt writes files
under its own names and returns their descriptions with the job's result. Spark gives the driver those of
exactly one attempt per partition; the files of the others are orphans that no log entry names.

A small batch comes to the driver as Arrow instead, and becomes one segment: see `small_batches`.

Invariants:

1. A partition without rows makes no file.
2. Columns have the Arrow types that the channel reader will declare, so reading converts nothing.

Called by `spark_branches`, before the entry is appended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from drivetrain.core.channel.channel_log import Segment
from drivetrain.errors import InternalError
from drivetrain.runtime.channel.columns import TS
from drivetrain.runtime.channel.segments import SEGMENTS, write_segment
from drivetrain.spark.channel.java_segments import java_segments
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.measure.small_batches import SmallBatches, conform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from drivetrain.runtime.channel.files import ChannelFiles
    from drivetrain.runtime.channel.store import ChannelStore

SEGMENT_BYTES = 32 << 20
"""A segment is closed when it holds this many bytes of Arrow data: readers verify a whole segment at once."""

DRIVER_BYTES = 4 << 20
"""A batch goes through the driver when its segments are expected to take at most this many bytes."""

_DESCRIPTION = "path string, rows long, bytes long, crc32 long, min_ts_ms long, max_ts_ms long"
_ARROW_DESCRIPTION = pa.schema(
    [("path", pa.string())]
    + [(name, pa.int64()) for name in ("rows", "bytes", "crc32", "min_ts_ms", "max_ts_ms")]
)


def write_segments(
    df: DataFrame,
    store: ChannelStore,
    batch_id: int,
    folder: str = SEGMENTS,
    *,
    small: SmallBatches | None = None,
    compressed: bool = True,
) -> list[Segment]:
    """Write the rows of a batch `df` as segments in `folder` and describe them, in partition order.

    `df` has the data columns and `__ts` (a timestamp without nulls). Runs one Spark job; two when a batch
    that `small` expects to be small is too large for the driver. The segments do not count until
    `store.append(batch_id, …)` names them. Without `compressed`, a batch that comes to the driver is written
    as it is: for a reader who needs it at once.
    """
    if TS not in df.columns:
        raise InternalError(f"a channel's messages need the column {TS}, got {df.columns}")
    stem = f"{store.fragment or 'batch'}-{batch_id}"
    table = None if small is None else small.table(df)
    if table is not None:
        schema = to_arrow_schema(df.schema, timezone="UTC")
        batches = [conform(batch, schema) for batch in table.combine_chunks().to_batches()]
        segments = []
        if table.num_rows:
            segments = [write_segment(store.files, stem, batches, folder, compressed=compressed)]
    else:
        by_java = java_segments(df, store.files, stem, folder, SEGMENT_BYTES)
        segments = _by_python(df, store.files, stem, folder) if by_java is None else by_java
    if small is not None:
        small.record_output(sum(segment.bytes for segment in segments))
    return segments


def _by_python(df: DataFrame, files: ChannelFiles, stem: str, folder: str) -> list[Segment]:
    write = _partition_writer(files, stem, to_arrow_schema(df.schema, timezone="UTC"), folder)
    with computing():
        described = df.mapInArrow(write, _DESCRIPTION).collect()
    return [Segment(**row.asDict()) for row in described]


def _partition_writer(
    files: ChannelFiles, stem: str, schema: Any, folder: str
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def write(batches: Iterator[Any]) -> Iterator[Any]:
        waiting: list[Any] = []
        size = 0
        for batch in batches:
            if batch.num_rows == 0:
                continue
            waiting.append(conform(batch, schema))
            size += batch.nbytes
            if size >= SEGMENT_BYTES:
                yield _described(write_segment(files, stem, waiting, folder))
                waiting, size = [], 0
        if waiting:
            yield _described(write_segment(files, stem, waiting, folder))

    return write


def _described(segment: Segment) -> Any:
    values = [getattr(segment, name) for name in _ARROW_DESCRIPTION.names]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], type=field.type) for value, field in zip(values, _ARROW_DESCRIPTION, strict=True)],
        schema=_ARROW_DESCRIPTION,
    )
