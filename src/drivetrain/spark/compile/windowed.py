"""Native aggregations and stream–stream joins: a fragment's trunk ends with at most one of these.

All of them take their watermark from the clock (see `channel.clocked`): Spark's watermark is exactly the
clock of the input, and the event time column is derived from `__ts`, both on the scale of
`channel.watermark`.

The global window ends with the stream, so it needs no watermark: Spark keeps the whole result
("complete" mode) and the fragment emits it in the batch that ends the input (`only_at_end`), as a
hand-written query would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.expressions.columns import Column
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import (
    Aggregate,
    EarlyResults,
    Fold,
    How,
    JoinStream,
    LatePanes,
    MatchPattern,
    Refine,
    Top,
)
from drivetrain.api.states.monoids import Aggregation
from drivetrain.api.windows import Window
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, LAST_MS
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.channel.clocked import event_time
from drivetrain.spark.channel.watermark import SHIFT_MS
from drivetrain.spark.compile.frame import Frame, require_column
from drivetrain.spark.compile.late import BEFORE_ALL_MS
from drivetrain.spark.compile.lowering import column_function, spark_column
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings

_AT = "__at"
_SPARK_JOINS = {"inner": "inner", "left": "leftOuter", "right": "rightOuter", "full": "fullOuter"}
_WINDOW = "__window"
_AFTER = "__after"
_LATER_US = 1
"""Spark drops a message with the watermark's timestamp as late; a message at the clock is on time."""
BEFORE = "__before"
"""The clock (ms) before a message's batch: windows that end by then have fired."""
GLOBAL_END_MS = FINAL_CLOCK_MS - 1000


def keyed(
    df: DataFrame,
    operation: Aggregate | Fold | MatchPattern | Top,
    where: str,
    report: Callable[[How, str], None],
) -> DataFrame:
    """`df` with the key columns computed."""
    for name, key in operation.keys:
        if isinstance(key, Column):
            if str(key) != name:
                df = df.withColumn(name, spark_column(key, where))
            else:
                require_column(name, df.columns, where, "to group by")
        else:
            column, native = column_function(key, where)
            report("lowered" if native else "arrow", f"its key {name} is a Python function")
            df = df.withColumn(name, column)
    return df


def aggregate(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """The windowed aggregate of `node` and Spark's output mode for it."""
    operation, frame, where = node.operation, inputs[0], str(node)
    assert isinstance(operation, Aggregate)
    columns = aggregate_columns(operation, where)
    return reduced(operation, frame, columns, [n for n, _ in operation.aggregations], where, around)


def reduced(
    operation: Aggregate | Top,
    frame: Frame,
    aggregations: list[SparkColumn],
    values: list[str],
    where: str,
    around: Surroundings,
) -> StatefulPlan:
    """Groups by the keys and the window of `operation`, each reduced to `aggregations`, named `values`."""
    window = operation.window
    require_timestamps(frame, window, where)
    df = keyed(timed(frame.resolved().df, window), operation, where, around.report)
    names = [name for name, _ in operation.keys]
    running = window.kind == "global" and window.emission == "accumulating"
    if running:
        latest = F.max(TS).alias(TS)
        grouped = df.groupBy(*names) if names else df.groupBy(F.lit(0).alias("__all"))
        made = grouped.agg(*aggregations, latest)
        return StatefulPlan(made.select(*names, *values, TS), "update")
    if window.kind == "global":
        grouped = df.groupBy(*names) if names else df.groupBy(F.lit(0).alias("__all"))
        end = F.timestamp_millis(F.lit(GLOBAL_END_MS - 1)).alias(TS)
        made = grouped.agg(*aggregations)
        return StatefulPlan(made.select(*names, *values, end), "complete")
    made = _windowed(df, window, names).agg(*aggregations)
    return StatefulPlan(_result(made, window, SHIFT_MS, names, values))


def aggregate_columns(operation: Aggregate, where: str) -> list[SparkColumn]:
    """The Spark aggregates of an aggregation, named."""
    return [
        spark_column(a.column, where).alias(name)
        for name, a in operation.aggregations
        if isinstance(a, Aggregation)
    ]


def early(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """The results so far of windows that the clock has not passed, each after the batches that change it."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, EarlyResults)
    of, window = operation.aggregate, operation.aggregate.window
    require_timestamps(inputs[0], window, where)
    df = keyed(timed(inputs[0].resolved().df, window), of, where, around.report)
    names = [name for name, _ in of.keys]
    made = _windowed(df, window, names).agg(*aggregate_columns(of, where))
    return StatefulPlan(_result(made, window, SHIFT_MS, names, [n for n, _ in of.aggregations]), "update")


def late_panes(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """Partial results of one batch's late messages, per key and fired window (discarding)."""
    operation, frame, where = node.operation, inputs[0], str(node)
    assert isinstance(operation, LatePanes)
    aggregate, window = operation.aggregate, operation.aggregate.window
    require_timestamps(frame, window, where)
    df = keyed(frame.resolved().df, aggregate, where, lambda _how, _why: None)
    names = [name for name, _ in aggregate.keys]
    windows = df.withColumn(_WINDOW, _window_of(window, TS))
    before = F.lit(BEFORE_ALL_MS if around.clock_ms is None else around.clock_ms)
    end = F.unix_millis(f"{_WINDOW}.end")
    late = windows.where((end <= before) & (end + window.allowed_lateness_ms > before))
    made = late.groupBy(*names, _WINDOW).agg(*aggregate_columns(aggregate, where))
    return Frame(_result(made, window, 0, names, [n for n, _ in aggregate.aggregations]))


def refine(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Complete results of windows that late messages changed (accumulating), and the output mode.

    The watermark after the frame lags by the allowed lateness, which keeps the windows' state.
    """
    operation, frame, where = node.operation, inputs[0], str(node)
    assert isinstance(operation, Refine)
    aggregate, window = operation.aggregate, operation.aggregate.window
    require_timestamps(frame, window, where)
    df = keyed(event_time(frame.resolved().df, _AT), aggregate, where, lambda _how, _why: None)
    names = [name for name, _ in aggregate.keys]
    end = F.unix_millis(f"{_WINDOW}.end") - SHIFT_MS
    open_yet = df.withColumn(_WINDOW, _window_of(window, _AT)).where(
        end + window.allowed_lateness_ms > F.col(BEFORE)
    )
    late = F.max(end <= F.col(BEFORE)).alias("__late")
    made = open_yet.groupBy(*names, _WINDOW).agg(*aggregate_columns(aggregate, where), late)
    changed = made.where(F.col("__late"))
    result = _result(changed, window, SHIFT_MS, names, [n for n, _ in aggregate.aggregations])
    return StatefulPlan(result, "update")


def _windowed(df: DataFrame, window: Window, names: list[str]) -> GroupedData:
    """Groups by key and window; excludes windows that the clock in `__before`, if present, has passed."""
    if BEFORE in df.columns and window.kind == "session":
        df = df.where(F.unix_micros(TS) + window.size_ms * 1000 > F.col(BEFORE) * 1000)
    if BEFORE not in df.columns or window.kind == "session":
        return df.groupBy(*names, *_window_column(window, bool(names)))
    windows = df.withColumn(_WINDOW, _window_of(window, _AT))
    return windows.where(F.unix_millis(f"{_WINDOW}.end") - SHIFT_MS > F.col(BEFORE)).groupBy(*names, _WINDOW)


def _window_of(window: Window, timestamp: str) -> SparkColumn:
    """The window of a timestamp column, with the same bounds on the watermark's scale as on Drivetrain's."""
    first_ms = SHIFT_MS % window.step_ms if timestamp == _AT else 0
    lengths = [f"{ms} milliseconds" for ms in (window.size_ms, window.step_ms, first_ms)]
    return F.window(timestamp, *lengths)


def timed(df: DataFrame, window: Window) -> DataFrame:
    """`df` with the event time column of `window`; the global window has none."""
    df = df if TS in df.columns else df.withColumn(TS, F.timestamp_millis(F.lit(0)))
    if window.kind == "global":
        return df
    return event_time(df, _AT, later_us=_LATER_US if window.kind == "session" else 0)


def require_timestamps(frame: Frame, window: Window, where: str) -> None:
    """Raise `GraphError` for a window over event time if the messages have none."""
    if window.kind != "global" and not frame.timed:
        raise GraphError(
            f"a {window.kind} window needs event time, and these messages have none",
            where=where,
            remedy='put .event_time("column", max_disorder="10 s") before the window',
        )


def _window_column(window: Window, has_keys: bool) -> list[object]:
    if window.kind == "session":
        # A message exactly one gap after another begins a new session, as the clock may have fired the
        # one before by then. Spark would join them if it saw both in time. So its gap is a microsecond less,
        # and its timestamps are a microsecond later, so that a session ends at the right time.
        gap = f"{window.size_ms * 1000 - _LATER_US} microseconds"
        session = F.session_window(_AT, gap).alias(_WINDOW)
        # Spark has no keyless sessions on streams, and removes constants from keys, but not this expression.
        return [session] if has_keys else [F.isnull(TS).alias("__all"), session]
    return [_window_of(window, _AT).alias(_WINDOW)]


def _result(df: DataFrame, window: Window, shift_ms: int, keys: list[str], values: list[str]) -> DataFrame:
    """The results of windows whose bounds are `shift_ms` later than on Drivetrain's scale."""
    # Rebuilt from numbers, the columns are no longer Spark's event time, so the next stateful operator has
    # only one event time column.
    later_us = shift_ms * 1000 + (_LATER_US if window.kind == "session" else 0)
    start = F.unix_micros(f"{_WINDOW}.start") - later_us
    end = F.least(F.unix_micros(f"{_WINDOW}.end") - shift_ms * 1000, F.lit((LAST_MS + 1) * 1000))
    return df.select(
        *keys,
        F.timestamp_micros(start).alias("window_start"),
        F.timestamp_micros(F.least(end, F.lit(LAST_MS * 1000))).alias("window_end"),
        *values,
        F.timestamp_micros(end - 1 - F.pmod(end - 1, F.lit(1000))).alias(TS),
    )


def join_streams(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Messages of both sides with equal `on` whose timestamps are at most `within_ms` apart."""
    operation, where = node.operation, str(node)
    assert isinstance(operation, JoinStream)
    left, right = inputs
    if not (left.timed and right.timed):
        raise GraphError(
            "a join of streams needs event time on both sides",
            where=where,
            remedy='put .event_time("column") on each',
        )
    l_df, r_df = (event_time(f.resolved().df, _AFTER, later_us=_LATER_US) for f in (left, right))
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
    joined = l_df.join(r_df, condition, _SPARK_JOINS[operation.how])
    either = operation.on if operation.how in ("right", "full") else ()
    latest = F.greatest(F.unix_micros(TS), F.unix_micros(f"__r_{TS}"))  # greatest skips nulls
    result = joined.select(
        *[F.coalesce(c, f"__r_{c}").alias(c) if c in either else F.col(c) for c in mine],
        *[F.col(f"__r_{c}").alias(c) for c in theirs if c not in operation.on],
        F.timestamp_micros(latest).alias(TS),
    )
    return StatefulPlan(result)
