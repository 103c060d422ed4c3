"""The columns that channels add to a message, and the schema of a channel's stream.

Problem: writer, reader and clock must agree on names and types that no user's column may take.

Invariants:

1. Names that start with two underscores are Drivetrain's.
2. Every column of a channel's stream may be null, because a punctuation has no data.

Called by: every module of this package, and the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TS = "__ts"
"""The event time of a message."""
WM = "__wm"
"""What drives Spark's watermark: the clock in punctuation rows."""
PUNCT = "__punct"
"""True in punctuation rows."""
PART = "__part"
"""The dense number (int, from 0) of the source's partition that a message is of, up to its event time."""


def channel_schema(data: StructType) -> StructType:
    """The schema of a channel's stream: the data columns (with or without `__ts`), then ours."""
    kept = [StructField(field.name, field.dataType) for field in data if field.name != TS]
    own = [
        StructField(TS, TimestampType()),
        StructField(WM, TimestampType()),
        StructField(PUNCT, BooleanType()),
    ]
    return StructType(kept + own)


def read_channel(spark: SparkSession, uri: str, data: StructType, **options: str | int) -> DataFrame:
    """The stream of a channel; `options` are those of `ChannelSource`. Give it to `with_channel_clock`."""
    from drivetrain.spark.channel.source import ChannelSource

    spark.dataSource.register(ChannelSource)
    reader = spark.readStream.format(ChannelSource.name()).schema(channel_schema(data)).option("uri", uri)
    return reader.options(**options).load()
