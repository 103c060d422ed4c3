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
from drivetrain.spark.channel.clocked import event_time, with_event_time
from drivetrain.spark.channel.watermark import SHIFT_MS
from drivetrain.spark.compile.frame import Frame, require_column
from drivetrain.spark.compile.late import BEFORE_ALL_MS
from drivetrain.spark.compile.lowering import column_function, spark_column
from drivetrain.spark.compile.partial_results import of_messages, of_partial_results, partial_values, results
from drivetrain.spark.compile.sliding import with_sliding_ends
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings
from drivetrain.spark.connector.reduction import END, PartialValue

_AT = "__at"
_SPARK_JOINS = {"inner": "inner", "left": "leftOuter", "right": "rightOuter", "full": "fullOuter"}
_SESSION = "__session"
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
    values, names = partial_values(operation), [name for name, _ in operation.aggregations]
    if values is None:
        return reduced(operation, frame, aggregate_columns(operation, where), names, where, around)
    columns = _named(of_messages(values), names)
    return reduced(operation, frame, columns, results(values, names), where, around)


def merged(operation: Aggregate, df: DataFrame, values: Sequence[PartialValue]) -> StatefulPlan:
    """The same aggregate of partial results of messages, whose keys and windows are computed."""
    keys, names = ([name for name, _ in of] for of in (operation.keys, operation.aggregations))
    grouped = with_event_time(df, END).groupBy(*keys, END)
    made = grouped.agg(*_named(of_partial_results(values), names))
    return StatefulPlan(_result(made, operation.window, SHIFT_MS, keys, results(values, names)))


def _named(columns: Sequence[SparkColumn], names: Sequence[str]) -> list[SparkColumn]:
    return [column.alias(name) for column, name in zip(columns, names, strict=True)]


def reduced(
    operation: Aggregate | Top,
    frame: Frame,
    aggregations: list[SparkColumn],
    values: Sequence[str | SparkColumn],
    where: str,
    around: Surroundings,
) -> StatefulPlan:
    """Groups by the keys and the window of `operation`, each reduced to `aggregations`; `values` selects them
    in the results."""
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
    before = F.lit(BEFORE_ALL_MS if around.clock_ms is None else around.clock_ms)
    end = F.unix_millis(END)
    late = with_ends(df, window, TS).where((end <= before) & (end + window.allowed_lateness_ms > before))
    made = late.groupBy(*names, END).agg(*aggregate_columns(aggregate, where))
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
    end = F.unix_millis(END) - SHIFT_MS
    open_yet = with_ends(df, window, _AT).where(end + window.allowed_lateness_ms > F.col(BEFORE))
    late = F.max(end <= F.col(BEFORE)).alias("__late")
    made = open_yet.groupBy(*names, END).agg(*aggregate_columns(aggregate, where), late)
    changed = made.where(F.col("__late"))
    result = _result(changed, window, SHIFT_MS, names, [n for n, _ in aggregate.aggregations])
    return StatefulPlan(result, "update")


def _windowed(df: DataFrame, window: Window, names: list[str]) -> GroupedData:
    """Groups by key and window; excludes windows that the clock in `__before`, if present, has passed."""
    if window.kind == "session":
        if BEFORE in df.columns:
            df = df.where(F.unix_micros(TS) + window.size_ms * 1000 > F.col(BEFORE) * 1000)
        return df.groupBy(*names, *_session_columns(window, bool(names)))
    ends = with_ends(df, window, _AT)
    if BEFORE in df.columns:
        ends = ends.where(F.unix_millis(END) - SHIFT_MS > F.col(BEFORE))
    return ends.groupBy(*names, END)


def with_ends(df: DataFrame, window: Window, timestamp: str) -> DataFrame:
    """Each message once for each of its windows, with the window's end in a column `END`.

    The end stands for the whole window in the keys of states: Spark's fast hash map takes numbers, and not
    the structure with both bounds. Windows of `_AT` have the same bounds on the watermark's scale as on
    Drivetrain's, and `END` is then Spark's event time.
    """
    first_ms = first_window_ms(window) if timestamp == _AT else 0
    if window.step_ms < window.size_ms:
        ended = with_sliding_ends(df, window, timestamp, first_ms, END)
    else:
        df = df.where(F.col(TS).isNotNull())
        micros, size_us = F.unix_micros(timestamp), F.lit(window.size_ms * 1000)
        end = F.timestamp_micros(micros - F.pmod(micros - F.lit(first_ms * 1000), size_us) + size_us)
        ended = df.withColumn(END, end)
    return with_event_time(ended, END) if timestamp == _AT else ended


def first_window_ms(window: Window) -> int:
    """Where the first window begins on the watermark's scale."""
    return SHIFT_MS % window.step_ms


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


def _session_columns(window: Window, has_keys: bool) -> list[object]:
    # A message exactly one gap after another begins a new session, as the clock may have fired the
    # one before by then. Spark would join them if it saw both in time. So its gap is a microsecond less,
    # and its timestamps are a microsecond later, so that a session ends at the right time.
    gap = f"{window.size_ms * 1000 - _LATER_US} microseconds"
    session = F.session_window(_AT, gap).alias(_SESSION)
    # Spark has no keyless sessions on streams, and removes constants from keys, but not this expression.
    return [session] if has_keys else [F.isnull(TS).alias("__all"), session]


def _result(
    df: DataFrame, window: Window, shift_ms: int, keys: list[str], values: Sequence[str | SparkColumn]
) -> DataFrame:
    """The results of windows whose bounds are `shift_ms` later than on Drivetrain's scale."""
    # Rebuilt from numbers, the columns are no longer Spark's event time, so the next stateful operator has
    # only one event time column.
    if window.kind == "session":
        start = F.unix_micros(f"{_SESSION}.start") - (shift_ms * 1000 + _LATER_US)
        after = F.unix_micros(f"{_SESSION}.end") - shift_ms * 1000
    else:
        after = F.unix_micros(END) - shift_ms * 1000
        start = after - window.size_ms * 1000
    end = F.least(after, F.lit((LAST_MS + 1) * 1000))
    return df.select(
        *keys,
        F.timestamp_micros(start).alias("window_start"),
        F.timestamp_micros(F.least(end, F.lit(LAST_MS * 1000))).alias("window_end"),
        *values,
        F.timestamp_micros(end - 1 - F.pmod(end - 1, F.lit(1000))).alias(TS),
    )


def join_streams(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Messages of both sides with equal `on` whose timestamps are at most `within_ms` apart.

    Where Java has the rule (`ForgetJoinedLater`), an inner join keeps messages a little longer than this.
    """
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
