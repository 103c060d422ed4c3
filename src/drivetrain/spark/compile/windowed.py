"""Native aggregations, deduplication and stream–stream joins: one of these ends a fragment's trunk.

All of them take their watermark from the clock (see `channel.clocked`): `__ts` is the event time
column, and Spark's watermark is exactly the clock of what comes in.

The global window ends with the stream, so it needs no watermark: Spark keeps the whole result
("complete" mode) and the fragment emits it in the batch that ends the input (`only_at_end`), as a
hand-written query would.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.columns import Column
from drivetrain.api.graph import Aggregate, Deduplicate, Fold, JoinStream, LatePanes, Node, Refine
from drivetrain.api.monoids import Aggregation
from drivetrain.api.windows import Window
from drivetrain.core.clock import FINAL_CLOCK_MS
from drivetrain.core.plan import How
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.spark.channel.columns import TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.late import BEFORE_ALL_MS
from drivetrain.spark.lowering import column_function, spark_column

_EVENT_TIME = "spark.watermarkDelayMs"
_WINDOW = "__window"
_AFTER = "__after"
BEFORE = "__before"
"""The clock (ms) before the batch that a message came in: windows that end by then have fired."""
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
                    remedy="correct the name; `drivetrain plan` shows the columns that every operator has",
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
    aggregations = aggregate_columns(operation, where)
    running = window.kind == "global" and window.emission == "accumulating"
    if running:
        latest = F.max(TS).alias(TS)
        grouped = df.groupBy(*names) if names else df.groupBy(F.lit(0).alias("__all"))
        made = grouped.agg(*aggregations, latest)
        return made.select(*names, *[n for n, _ in operation.aggregations], TS), "update"
    if window.kind == "global":
        grouped = df.groupBy(*names) if names else df.groupBy(F.lit(0).alias("__all"))
        end = F.timestamp_millis(F.lit(GLOBAL_END_MS - 1)).alias(TS)
        made = grouped.agg(*aggregations)
        return made.select(*names, *[n for n, _ in operation.aggregations], end), "complete"
    made = _windowed(df, window, names).agg(*aggregations)
    return _result(made, window, names, [n for n, _ in operation.aggregations]), "append"


def aggregate_columns(operation: Aggregate, where: str) -> list[SparkColumn]:
    """The Spark aggregates of an aggregation, named."""
    return [
        spark_column(a.column, where).alias(name)
        for name, a in operation.aggregations
        if isinstance(a, Aggregation)
    ]


def late_panes(node: Node, frame: Frame, clock_ms: int | None) -> Frame:
    """What the late messages of one batch add up to, per key and window that has fired (discarding)."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, LatePanes)
    aggregate, window = operation.aggregate, operation.aggregate.window
    require_timestamps(frame, window, where)
    df = keyed(frame.resolved().df, aggregate, where, lambda _how, _why: None)
    names = [name for name, _ in aggregate.keys]
    windows = df.withColumn(_WINDOW, _window_of(window))
    before = F.lit(BEFORE_ALL_MS if clock_ms is None else clock_ms)
    end = F.unix_millis(f"{_WINDOW}.end")
    late = windows.where((end <= before) & (end + window.allowed_lateness_ms > before))
    made = late.groupBy(*names, _WINDOW).agg(*aggregate_columns(aggregate, where))
    return Frame(_result(made, window, names, [n for n, _ in aggregate.aggregations]))


def refine(node: Node, frame: Frame) -> tuple[DataFrame, str]:
    """Whole results of windows that late messages changed (accumulating), and the output mode.

    The watermark behind the frame lags by the allowed lateness, which keeps the windows' state.
    """
    operation, where = node.operation, str(node)
    assert isinstance(operation, Refine)
    aggregate, window = operation.aggregate, operation.aggregate.window
    require_timestamps(frame, window, where)
    df = keyed(event_time(frame.resolved().df), aggregate, where, lambda _how, _why: None)
    names = [name for name, _ in aggregate.keys]
    end = F.unix_millis(f"{_WINDOW}.end")
    open_yet = df.withColumn(_WINDOW, _window_of(window)).where(
        end + window.allowed_lateness_ms > F.col(BEFORE)
    )
    late = F.max(end <= F.col(BEFORE)).alias("__late")
    made = open_yet.groupBy(*names, _WINDOW).agg(*aggregate_columns(aggregate, where), late)
    changed = made.where(F.col("__late"))
    return _result(changed, window, names, [n for n, _ in aggregate.aggregations]), "update"


def _windowed(df: DataFrame, window: Window, names: list[str]) -> GroupedData:
    """Groups by key and window; messages that carry a clock leave out windows it has passed."""
    if BEFORE not in df.columns:
        return df.groupBy(*names, *_window_column(window, bool(names)))
    if window.kind == "session":
        in_time = df.where(F.unix_millis(TS) + window.size_ms > F.col(BEFORE))
        return in_time.groupBy(*names, *_window_column(window, bool(names)))
    windows = df.withColumn(_WINDOW, _window_of(window))
    return windows.where(F.unix_millis(f"{_WINDOW}.end") > F.col(BEFORE)).groupBy(*names, _WINDOW)


def _window_of(window: Window) -> SparkColumn:
    return F.window(TS, f"{window.size_ms} milliseconds", f"{window.step_ms} milliseconds")


def timed(df: DataFrame, window: Window) -> DataFrame:
    """`df` with the event time column of `window`; the global window has none."""
    df = df if TS in df.columns else df.withColumn(TS, F.timestamp_millis(F.lit(0)))
    return df if window.kind == "global" else event_time(df)


def require_timestamps(frame: Frame, window: Window, where: str) -> None:
    """Raise `GraphError` when a window over event time has no event time to go by."""
    if window.kind != "global" and not frame.timed:
        raise GraphError(
            f"a {window.kind} window needs event time, and these messages have none",
            where=where,
            remedy='put .event_time("column", max_disorder="10 s") before the window',
        )


def _window_column(window: Window, has_keys: bool) -> list[object]:
    if window.kind == "session":
        # A message exactly one gap behind another begins a session of its own, as the clock may have fired
        # the one before by then. Spark joins them if it sees both in time: so its gap is a microsecond less.
        session = F.session_window(TS, f"{window.size_ms * 1000 - 1} microseconds").alias(_WINDOW)
        # Spark has no keyless sessions on streams: a constant key stands in.
        return [session] if has_keys else [F.lit(0).alias("__all"), session]
    return [_window_of(window).alias(_WINDOW)]


def _result(df: DataFrame, window: Window, keys: list[str], values: list[str]) -> DataFrame:
    # Rebuilt from milliseconds, the columns forget that they were Spark's event time, so that the
    # next stateful operator has one event time column only.
    start, end = F.unix_millis(f"{_WINDOW}.start"), F.unix_millis(f"{_WINDOW}.end")
    if window.kind == "session":
        end = F.unix_millis(F.timestamp_micros(F.unix_micros(f"{_WINDOW}.end") + 1))
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
            remedy='put .event_time("column", max_disorder="10 s") before it',
        )
    ready = frame.resolved()
    keys = list(operation.keys) or list(ready.columns)
    # Spark forgets a key when its event time plus the column's own delay is behind the watermark.
    df = _after(ready.df, operation.within_ms)
    return df.dropDuplicatesWithinWatermark(keys).drop(_AFTER)


def _after(df: DataFrame, delay_ms: int = 0) -> DataFrame:
    """`df` with an event time column one millisecond after `__ts`.

    Spark drops a single message that is at the watermark as late; a message at the clock is in time.
    """
    later = F.timestamp_millis(F.unix_millis(TS) + 1)
    return df.withMetadata(TS, {}).withColumn(_AFTER, later).withMetadata(_AFTER, {_EVENT_TIME: delay_ms})


def join_streams(node: Node, left: Frame, right: Frame) -> DataFrame:
    """Messages of both sides with equal `on` whose timestamps are at most `within_ms` apart."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, JoinStream)
    if not (left.timed and right.timed):
        raise GraphError(
            "a join of streams needs event time on both sides",
            where=where,
            remedy='put .event_time("column") on each',
        )
    l_df, r_df = _after(left.resolved().df), _after(right.resolved().df)
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
    r_df = r_df.select(*[F.col(c).alias(f"__r_{c}") for c in (*theirs, TS, _AFTER)])
    span = F.expr(f"interval {operation.within_ms} milliseconds")
    other = F.col(f"__r_{_AFTER}")
    condition = (other >= F.col(_AFTER) - span) & (other <= F.col(_AFTER) + span)
    for c in operation.on:
        condition = condition & (F.col(c) == F.col(f"__r_{c}"))
    joined = l_df.join(r_df, condition, "inner" if operation.how == "inner" else "leftOuter")
    latest = F.greatest(F.unix_millis(TS), F.unix_millis(f"__r_{TS}"))  # greatest skips nulls
    return joined.select(
        *mine,
        *[F.col(f"__r_{c}").alias(c) for c in theirs if c not in operation.on],
        F.timestamp_millis(latest).alias(TS),
    )
