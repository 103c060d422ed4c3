"""Spark's files of an empty state.

Problem: a query that continues from a checkpoint expects a state of the number of its next batch. If the
former state was dropped, an empty one has to be there, in the form that Spark's store of states reads.

Design: Spark writes it: a query of its own, in one partition, whose only batch has no message. With snapshots
it leaves the whole state as a file, without them the changes of the batch. Neither depends on the types of
keys and values, nor on a batch's number.

Called by `spark.batch.spark_engine`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.functions import rand

from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGES: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def empty_state(spark: SparkSession, place: Path, *, changes: bool) -> Path:
    """The file of a state without keys, or (`changes`) of a batch that changed none; below `place`."""
    input, checkpoint = place / "input", place / "checkpoint"
    input.mkdir(parents=True)
    (input / "one").write_text("x\n")
    session = spark.newSession()
    session.conf.set(_CHANGES, str(changes).lower())
    session.conf.set("spark.sql.shuffle.partitions", "1")
    rows = session.readStream.format("text").load(str(input)).where(rand() < 0)
    writer = rows.groupBy("value").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    made = checkpoint / "state" / "0" / "0" / ("1.changelog" if changes else "1.zip")
    if not made.is_file():
        raise InternalError(f"Spark has not written an empty state to {made}")
    shutil.rmtree(input)
    return made
