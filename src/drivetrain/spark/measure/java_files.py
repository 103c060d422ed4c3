"""Has Java write the rows of a large batch as files: a class of ours, where it is on Java's class path.

Problem: handing a large batch to Python's workers costs more than writing it, and starts these workers if no
other step of the query needs them.

Design: Spark's tasks write files in Java, by Spark's interface for sinks, and return descriptions of them.
The class comes with `drivetrain warm-up` (`session.local_files`) and writes local files. Whatever it cannot
write is left to Python: the caller writes the batch again, and reports what is wrong.

Invariants:

1. Only files of those attempts of tasks that Spark took are described.
2. An error of a user's function is raised, and is no reason to compute a batch again.

Called by `java_segments` and `java_parts`.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Final

from py4j.java_gateway import JavaClass
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from drivetrain.spark.measure.batch_times import computing
from drivetrain.spark.session.java_classes import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_SINK: Final = "drivetrain.BatchFiles"
_REFUSED: Final = "drivetrain: files are not written by Java"
"""What the class says of rows, and files, that it cannot write."""


def java_files(df: DataFrame, folder: str, stem: str, **options: str | int | bool) -> list[list[str]] | None:
    """The rows of `df` as new files in a local folder, whose names begin with `stem`.

    The files are described in the order of partitions, each by its name and what else the writer that
    `options` choose tells of it. None if they are left to Python. Raises the error of the job.
    """
    if not isinstance(df, ClassicDataFrame):
        return None
    sink = java_class(df.sparkSession._jvm, _SINK)
    if not isinstance(sink, JavaClass):
        return None
    token = uuid.uuid4().hex
    given = {"folder": folder, "stem": stem, "token": token, **options}
    try:
        with computing():
            df.write.format(_SINK).mode("append").options(**given).save()
    except Exception as error:
        if _REFUSED not in str(error):
            raise
        log.info("Python writes the batch %s: %s", stem, error)
        return None
    return [line.split(" ") for line in sink.take(token).splitlines()]
