"""Native aggregations, deduplication and stream–stream joins: one of these ends a fragment's trunk.

All of them take their watermark from the clock (see `channel.clocked`): `__ts` is the event time
column, and Spark's watermark is exactly the clock of what comes in.

The global window is a window that ends with the stream: its groups have one more key, a constant
timestamp that only the final clock passes. So "final counts" and "counts per hour" are one machinery.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.columns import Column
from drivetrain.api.graph import Aggregate, Deduplicate, Fold, JoinStream, Node
from drivetrain.api.monoids import Aggregation
from drivetrain.api.windows import Window
from drivetrain.core.plan import How
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.spark.channel.clock_source import FINAL_CLOCK_MS
from drivetrain.spark.channel.columns import TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.lowering import column_function, spark_column

_EVENT_TIME = "spark.watermarkDelayMs"
END = "__end"
_WINDOW = "__window"
GLOBAL_END_MS = FINAL_CLOCK_MS - 1000


def event_time(df: DataFrame, delay_ms: int = 0) -> DataFrame:
    """`df` with `__ts` as its event time column (Arrow functions on the way forget that it was)."""
    return df.withMetadata(TS, {_EVENT_TIME: delay_ms})


def keyed(
    df: DataFrame, operation: Aggregate | Fold, where: str, report: Callable[[How, str], None]
) -> DataFrame:
    """`df` with the key columns computed."""
    for name, key in operation.keys:
        if isinstance(key, Column):
            if str(key) != name:
                df = df.withColumn(name, spark_column(key, where))
            elif name not in df.columns:
                raise OperatorTypeError(
                    f"there is no column {name!r} to group by",
                    where=where,
                    expected=f"one of {', '.join(c for c in df.columns if not c.startswith('__'))}",
                    got=name,
                )
        else:
            column, native = column_function(key, where)
            report("lowered" if native else "arrow", f"its key {name} is a Python function")
            df = df.withColumn(name, column)
    return df


def aggregate(node: Node, frame: Frame, report: Callable[[How, str], None]) -> tuple[DataFrame, str]:
    """The windowed aggregate of `node` and Spark's output mode for it."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, Aggregate)
    window = operation.window
    require_timestamps(frame, window, where)
    df = keyed(timed(frame.resolved().df, window), operation, where, report)
    names = [name for name, _ in operation.keys]
    aggregations = [
        spark_column(a.column, where).alias(name)
        for name, a in operation.aggregations
        if isinstance(a, Aggregation)
    ]
    running = window.kind == "global" and window.emission == "accumulating"
    if running:
        latest = F.max(TS).alias(TS)
        grouped = df.groupBy(*names) if names else df.groupBy(F.lit(0).alias("__all"))
        made = grouped.agg(*aggregations, latest)
        return made.select(*names, *[n for n, _ in operation.aggregations], TS), "update"
    made = df.groupBy(*names, *_window_column(window, bool(names))).agg(*aggregations)
    return _result(made, window, names, [n for n, _ in operation.aggregations]), "append"


def timed(df: DataFrame, window: Window) -> DataFrame:
    """`df` with the event time column of `window`: `__ts`, or for the global window the constant `__end`."""
    df = df if TS in df.columns else df.withColumn(TS, F.timestamp_millis(F.lit(0)))
    if window.kind != "global" or window.emission == "accumulating":
        return event_time(df)
    end = F.timestamp_millis(F.lit(GLOBAL_END_MS))
    return df.withMetadata(TS, {}).withColumn(END, end).withMetadata(END, {_EVENT_TIME: 0})


def require_timestamps(frame: Frame, window: Window, where: str) -> None:
    """Raise `GraphError` when a window over event time has no event time to go by."""
    if window.kind != "global" and not frame.timed:
        raise GraphError(
            f"a {window.kind} window needs event time, and these messages have none",
            where=where,
            expected='.event_time("column", max_disorder="10 s") before the window',
        )


def _window_column(window: Window, has_keys: bool) -> list[object]:
    milliseconds = f"{window.size_ms} milliseconds"
    if window.kind == "global":
        return [END]
    if window.kind == "session":
        # Spark has no keyless sessions on streams: a constant key stands in.
        session = F.session_window(TS, milliseconds).alias(_WINDOW)
        return [session] if has_keys else [F.lit(0).alias("__all"), session]
    return [F.window(TS, milliseconds, f"{window.step_ms} milliseconds").alias(_WINDOW)]


def _result(df: DataFrame, window: Window, keys: list[str], values: list[str]) -> DataFrame:
    if window.kind == "global":
        return df.select(*keys, *values, F.timestamp_millis(F.unix_millis(END) - 1).alias(TS))
    # Rebuilt from milliseconds, the columns forget that they were Spark's event time, so that the
    # next stateful operator has one event time column only.
    start, end = F.unix_millis(f"{_WINDOW}.start"), F.unix_millis(f"{_WINDOW}.end")
    return df.select(
        *keys,
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(end).alias("window_end"),
        *values,
        F.timestamp_millis(end - 1).alias(TS),
    )


def deduplicate(node: Node, frame: Frame) -> DataFrame:
    """The first message of each key within a span of event time."""
    operation = node.operation
    assert isinstance(operation, Deduplicate)
    if not frame.timed:
        raise GraphError(
            "deduplicate needs event time, and these messages have none",
            where=str(node),
            remedy='.event_time("column", max_disorder="10 s") before it',
        )
    keys = list(operation.keys) or list(frame.columns)
    # Spark forgets a key when its event time plus the column's own delay is behind the watermark.
    return event_time(frame.resolved().df, operation.within_ms).dropDuplicatesWithinWatermark(keys)


def join_streams(node: Node, left: Frame, right: Frame) -> DataFrame:
    """Messages of both sides with equal `on` whose timestamps are at most `within_ms` apart."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, JoinStream)
    if not (left.timed and right.timed):
        raise GraphError(
            "a join of streams needs event time on both sides",
            where=where,
            remedy='.event_time("column") on each',
        )
    l_df, r_df = event_time(left.resolved().df), event_time(right.resolved().df)
    mine, theirs = left.resolved().columns, right.resolved().columns
    missing = [c for c in operation.on if c not in mine or c not in theirs]
    clash = [c for c in theirs if c in mine and c not in operation.on]
    if missing or clash:
        what = (
            f"no column {missing[0]!r} on both sides" if missing else f"a column {clash[0]!r} on both sides"
        )
        raise OperatorTypeError(
            f"there is {what}",
            where=where,
            expected=f"{', '.join(operation.on)} on both sides, and no other name twice",
            got=f"{', '.join(mine)} and {', '.join(theirs)}",
            remedy="rename with select(...)",
        )
    r_df = r_df.select(*[F.col(c).alias(f"__r_{c}") for c in (*theirs, TS)])
    span = F.expr(f"interval {operation.within_ms} milliseconds")
    condition = (F.col(f"__r_{TS}") >= F.col(TS) - span) & (F.col(f"__r_{TS}") <= F.col(TS) + span)
    for c in operation.on:
        condition = condition & (F.col(c) == F.col(f"__r_{c}"))
    joined = l_df.join(r_df, condition, "inner" if operation.how == "inner" else "leftOuter")
    latest = F.greatest(F.unix_millis(TS), F.unix_millis(f"__r_{TS}"))  # greatest skips nulls
    return joined.select(
        *mine,
        *[F.col(f"__r_{c}").alias(c) for c in theirs if c not in operation.on],
        F.timestamp_millis(latest).alias(TS),
    )
