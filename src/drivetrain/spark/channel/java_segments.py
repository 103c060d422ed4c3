"""Has Java write the segments of a batch: a class of ours, where it is on Java's class path.

Problem: handing a million messages of 100 bytes to a Python worker, which compresses and writes them, takes
1.4 CPU seconds, more than everything else that a channel costs.

Design: Spark's tasks write the same files in Java, by Spark's interface for sinks, and return the same
descriptions. The class comes with `drivetrain warm-up` (`session.local_files`) and writes local files.
Whatever it cannot write is left to Python: the caller writes the batch again, and reports what is wrong.

Invariants:

1. A segment that is described is complete and synced, and its checksum is of the bytes as they were given
   to the file.
2. An error of a user's function is raised, and is no reason to compute a batch again.

Called by `writer`.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from py4j.java_gateway import JavaClass
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from drivetrain.core.channel.channel_log import Segment
from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.session.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.runtime.channel.files import ChannelFiles

log = logging.getLogger(__name__)

_SINK: Final = "drivetrain.BatchFiles"
_REFUSED: Final = "drivetrain: segments are not written by Java"
"""What the class says of messages, and files, that it cannot write."""


def java_segments(
    df: DataFrame, files: ChannelFiles, stem: str, folder: str, segment_bytes: int
) -> list[Segment] | None:
    """The rows of `df` as new segments of about so many bytes in `folder`, described in the order of
    partitions; None if they are left to Python. Raises the error of the job."""
    if not isinstance(df, ClassicDataFrame) or not files.is_local:
        return None
    sink = java_class(df.sparkSession._jvm, _SINK)
    if not isinstance(sink, JavaClass):
        return None
    token = uuid.uuid4().hex
    rows = str(df.sparkSession.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
    try:
        place = files.made_folder(folder)
        write = df.write.format(_SINK).mode("append").option("token", token).option("stem", stem)
        write = write.option("folder", place).option("segmentBytes", segment_bytes)
        with computing():
            write.option("batchRows", rows).option("durable", files.durable).save()
    except Exception as error:
        if _REFUSED not in str(error):
            raise
        log.info("Python writes the batch %s: %s", stem, error)
        return None
    return [_described(line, folder) for line in sink.take(token).splitlines()]


def _described(line: str, folder: str) -> Segment:
    name, *numbers = line.split(" ")
    rows, size, crc32, lowest, highest = map(int, numbers)
    return Segment(f"{folder}/{name}", rows, size, crc32, lowest, highest)
