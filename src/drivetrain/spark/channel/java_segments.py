"""Has Java write the segments of a batch (see `measure.java_files`).

Problem: handing a million messages of 100 bytes to a Python worker, which compresses and writes them, takes
1.4 CPU seconds, more than everything else that a channel costs.

Design: Spark's tasks write the same files in Java, and return the same descriptions.

Invariants:

1. A segment that is described is complete and synced, and its checksum is of the bytes as they were given
   to the file.

Called by `writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.core.channel.channel_log import Segment
from drivetrain.spark.measure.java_files import java_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.runtime.channel.files import ChannelFiles


def java_segments(
    df: DataFrame, files: ChannelFiles, stem: str, folder: str, segment_bytes: int
) -> list[Segment] | None:
    """The rows of `df` as new segments of about so many bytes in `folder`, described in the order of
    partitions; None if they are left to Python. Raises the error of the job."""
    if not files.is_local:
        return None
    rows = str(df.sparkSession.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
    place = files.made_folder(folder)
    written = java_files(df, place, stem, segmentBytes=segment_bytes, batchRows=rows, durable=files.durable)
    return None if written is None else [_described(file, folder) for file in written]


def _described(file: list[str], folder: str) -> Segment:
    name, *numbers = file
    rows, size, crc32, lowest, highest = map(int, numbers)
    return Segment(f"{folder}/{name}", rows, size, crc32, lowest, highest)
