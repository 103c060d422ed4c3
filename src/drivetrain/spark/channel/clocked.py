"""Make Spark's event time follow Drivetrain's clock.

Problem: Spark derives a watermark from the largest timestamp that a query has read. In a query after
another one, such a watermark fires windows too early or too late; with an idle or finished source, it never
fires them.

Design: punctuation rows carry the clock through the query's one `withWatermark`, and are filtered
out right after it.

- A channel's reader delivers `__wm` itself: 1970 in data, the clock in one punctuation per batch.
- A plain source is united with the clock stream (`clock_source`).

`__wm` and Spark's watermark use the scale of `watermark`; `__ts` does not. Stateful operators derive their
event time column from `__ts` (`event_time`).

Spark's optimizer must not remove punctuations before the watermark has seen them. It moves any
predicate below a watermark unless the predicate uses the watermark's column or is not deterministic,
and it merges filters: the user's `v > 3`, or the `ts is not null` that a window adds, would land below
and drop the punctuation, whose data columns are null. So the filter that removes punctuations is declared
non-deterministic (it evaluates the partition's number, and only for punctuations): the optimizer moves no
predicate past such a filter, nor the filter past a predicate.

Invariants:

1. After `with_channel_clock`, and after `with_clock_of_partial_results` of a channel, the watermark after a
   batch is exactly that of the last entry's clock.
2. After `union_clock` or `with_end` it is that of the larger of the published clock and, if
   `data_moves_clock`, the largest timestamp minus the disorder; so it is after
   `with_clock_of_partial_results` of a source.
3. No punctuation row leaves these functions.

Called when a fragment's inputs are compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.runtime.channel.columns import PUNCT, TS, WM
from drivetrain.spark.channel.clock_source import ClockSource
from drivetrain.spark.channel.watermark import END_WATERMARK_MS, moving_watermark, on_watermark_scale
from drivetrain.spark.connector.reduction import ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENT_TIME = {"spark.watermarkDelayMs": 0}
"""The metadata of a Spark event time column."""


def with_channel_clock(df: DataFrame, lag_ms: int = 0) -> DataFrame:
    """Data columns and `__ts` of a channel's DataFrame, with the channel's clock − `lag_ms` as watermark.

    `df` is `spark.readStream.format("drivetrain_channel")…load()`.
    """
    clocked = df.withWatermark(WM, f"{lag_ms} milliseconds").where(_is_data())
    return clocked.drop(WM, PUNCT)


def event_time(
    df: DataFrame, name: str, timestamp: str = TS, later_us: int = 0, delay_ms: int = 0
) -> DataFrame:
    """`df` with a column `name`, which is `timestamp` as event time for windows, deduplication and joins.

    The column is `later_us` later than `timestamp`; `delay_ms` is the watermark delay in its metadata.
    """
    column = on_watermark_scale(F.col(timestamp), later_us)
    return with_event_time(df.withColumn(name, column), name, delay_ms)


def with_event_time(df: DataFrame, name: str, delay_ms: int = 0) -> DataFrame:
    """`df` with its column `name`, on the watermark's scale, as Spark's event time."""
    return df.withMetadata(name, dict.fromkeys(EVENT_TIME, delay_ms))


def union_clock(
    df: DataFrame,
    spark: SparkSession,
    clock_path: str,
    ts_col: str,
    disorder_ms: int,
    *,
    data_moves_clock: bool = True,
) -> DataFrame:
    """The rows of a plain streaming `df`, with the published clock as the watermark.

    `clock_path` is where `publish_clock` writes, `ts_col` the timestamp column. With `data_moves_clock`
    Spark's watermark also follows `ts_col` minus `disorder_ms`, without a trip through Python; otherwise only
    the published clock counts.
    """
    spark.dataSource.register(ClockSource)
    clock = spark.readStream.format(ClockSource.name()).option("path", clock_path).load()
    delay_ms = disorder_ms if data_moves_clock else 0
    ahead = F.timestamp_millis(F.col(WM) + F.lit(delay_ms))  # Spark subtracts the delay again
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in df.schema.fields]
    punctuation = clock.select(*nothing, ahead.alias(WM), F.lit(True).alias(PUNCT))
    data_wm = moving_watermark(F.col(ts_col)) if data_moves_clock else F.timestamp_millis(F.lit(0))
    data = df.select("*", data_wm.alias(WM), F.lit(False).alias(PUNCT))
    clocked = data.union(punctuation).withWatermark(WM, f"{delay_ms} milliseconds").where(_is_data())
    return clocked.drop(WM, PUNCT)


def with_end(df: DataFrame, ts_col: str, disorder_ms: int) -> DataFrame:
    """The rows of a plain source whose last batch marks the end of the input (`__punct`), with its clock.

    `ts_col` is the timestamp column, null in the end's row. The resulting watermark is the largest timestamp
    minus `disorder_ms`, and the final clock at the end, without a clock stream.
    """
    end = F.timestamp_millis(F.lit(END_WATERMARK_MS + disorder_ms))  # Spark subtracts the delay again
    marked = df.withColumn(WM, F.when(F.col(PUNCT), end).otherwise(moving_watermark(F.col(ts_col))))
    clocked = marked.withWatermark(WM, f"{disorder_ms} milliseconds").where(_is_data())
    return clocked.drop(WM, PUNCT)


def with_clock_of_partial_results(df: DataFrame, disorder_ms: int) -> DataFrame:
    """The rows of a source or channel that reduces its messages, with the clock that they carry.

    The row that marks the end, or carries the channel's clock, is the only one that stands for no message.
    """
    clocked = df.withWatermark(WM, f"{disorder_ms} milliseconds")
    return clocked.where((F.col(ROWS) > 0) | (F.spark_partition_id() < 0)).drop(WM, ROWS)


def data_only(df: DataFrame) -> DataFrame:
    """Data columns and `__ts` of a channel's DataFrame, without its clock."""
    return df.where(_is_data()).drop(WM, PUNCT)


def _is_data() -> Column:
    return ~F.col(PUNCT) | (F.spark_partition_id() < 0)
