"""Stateless operators on frames: what runs natively, what is lowered, what waits for the Arrow stage.

`apply` is told a node and the frames of its inputs and returns the frame behind it, and how it will
run, so that the plan tells the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.columns import Column
from drivetrain.api.graph import (
    EventTime,
    Filter,
    FlatMap,
    Function,
    JoinTable,
    Map,
    Node,
    Select,
    Union,
)
from drivetrain.core.plan import How
from drivetrain.errors import OperatorTypeError
from drivetrain.spark.channel.columns import PART, PUNCT, TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.failures import analysis_error
from drivetrain.spark.lowering import column_function, lowered, spark_column
from drivetrain.spark.sources.context import BAD_COLUMN

_LOWERED = "a Python function that Spark's transpiler turns into expressions"


def apply(
    node: Node, inputs: Sequence[Frame], table: Callable[[str], DataFrame], report: Callable[[How, str], None]
) -> Frame:
    """The frame behind a stateless `node`; raises `OperatorTypeError` naming it when Spark refuses.

    `table` gives the DataFrame of a table by its processor id; `report` is told how the node runs when
    that differs from what the planner assumed.
    """
    try:
        return _apply(node, inputs, table, report)
    except (TypeError, ValueError, AttributeError):
        raise
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise analysis_error(error, str(node)) from error
        raise


def _apply(
    node: Node, inputs: Sequence[Frame], table: Callable[[str], DataFrame], report: Callable[[How, str], None]
) -> Frame:
    frame, where = inputs[0], str(node)
    match node.operation:
        case Map(function):
            return _one_value(frame, function, report) or frame.then("map", function, where)
        case FlatMap(function):
            return frame.then("flat_map", function, where)
        case Filter(Function() as function):
            if (condition := _native(frame, function)) is not None:
                report("lowered", _LOWERED)
                return Frame(frame.df.where(condition), (), frame.message)
            return frame.then("filter", function, where)
        case Filter(Column() as condition):
            ready = frame.resolved()
            return Frame(ready.df.where(spark_column(condition, where)), (), ready.message)
        case Select() as select:
            return _select(frame.resolved(), select, where, report)
        case EventTime() as event_time:
            return _event_time(frame.resolved(), event_time, where)
        case Union():
            return _union([f.resolved() for f in inputs], where)
        case JoinTable() as join:
            return _join_table(frame.resolved(), join, table(node.inputs[1]), where)
        case other:
            raise TypeError(f"{node}: {type(other).__name__} is not a stateless operator")


def _native(frame: Frame, function: Function) -> SparkColumn | None:
    """A native column for a function of a one-column stream, or None when it stays Python."""
    if frame.steps or len(frame.columns) != 1 or frame.message is not None or len(function.parameters) != 1:
        return None
    return lowered(function, [F.col(frame.columns[0])])


def _one_value(frame: Frame, function: Function, report: Callable[[How, str], None]) -> Frame | None:
    if not function.type.scalar or (column := _native(frame, function)) is None:
        return None
    report("lowered", _LOWERED)
    name = function.type.fields[0][0]
    hidden = [c for c in frame.df.columns if c.startswith("__")]
    return Frame(frame.df.select(column.alias(name), *hidden))


def _select(frame: Frame, select: Select, where: str, report: Callable[[How, str], None]) -> Frame:
    made, all_native, any_function = [], True, False
    for name, value in select.columns:
        if isinstance(value, Column):
            column = spark_column(value, where)
        else:
            any_function = True
            missing = [p for p in value.parameters if p not in frame.df.columns]
            if missing:
                raise OperatorTypeError(
                    f"the function's parameter {missing[0]!r} names no column",
                    where=where,
                    expected=f"parameters out of {', '.join(frame.columns)}",
                    got=", ".join(value.parameters),
                )
            column, native = column_function(value, where)
            all_native = all_native and native
        made.append((name, column))
    if any_function and all_native:
        report("lowered", _LOWERED)
    hidden = [c for c in frame.df.columns if c.startswith("__")]
    if select.keep:
        return Frame(frame.df.withColumns({str(n): c for n, c in made}))
    return Frame(frame.df.select(*[c if n is None else c.alias(n) for n, c in made], *hidden))


def _event_time(frame: Frame, event_time: EventTime, where: str) -> Frame:
    column = spark_column(event_time.column, where)
    kind = frame.df.select(column.alias("t")).schema["t"].dataType.simpleString()
    if kind == "timestamp_ntz":
        column = column.cast("timestamp")
    elif kind == "bigint":
        column = F.timestamp_millis(column)
    elif kind != "timestamp":
        raise OperatorTypeError(
            "an event timestamp cannot be made of this column",
            where=where,
            expected="a timestamp, or milliseconds since the epoch as a bigint",
            got=f"{event_time.column}: {kind}",
            remedy='parse it first, as in event_time(F.to_timestamp("t", "yyyy-MM-dd HH:mm"))',
        )
    # A message without a timestamp has no place in time: Spark says so by name instead of losing it.
    told = F.concat(
        F.lit(f"{where}: a message has no event timestamp: "), F.to_json(F.struct(*frame.columns))
    )
    missing = F.raise_error(told).cast("timestamp")
    if PUNCT in frame.df.columns:  # the row that says the end has no time of its own
        missing = F.when(~F.col(PUNCT), missing)
    if BAD_COLUMN in frame.df.columns:  # what could not be read is on its way to the dead letters
        missing = F.when(F.col(BAD_COLUMN).isNull(), missing)
    checked = F.coalesce(column, missing)
    return Frame(_partitioned(frame.df, event_time, where).withColumn(TS, checked), (), frame.message)


def _partitioned(df: DataFrame, event_time: EventTime, where: str) -> DataFrame:
    """The messages with the number of their partition, if a column says it."""
    if event_time.partition is None:
        return df
    column = spark_column(event_time.partition, where)
    # Left out, it would not hold the clock, and its messages might be late.
    told = F.concat(
        F.lit(f"{where}: a message of a partition that is not declared: {event_time.partition} is "),
        F.coalesce(column.cast("string"), F.lit("null")),
    )
    stranger = F.raise_error(told).cast("int")
    if PUNCT in df.columns:
        stranger = F.when(~F.col(PUNCT), stranger)
    first, *others = event_time.partitions
    number = F.when(column == F.lit(first), 0)
    for i, name in enumerate(others, 1):
        number = number.when(column == F.lit(name), i)
    return df.withColumn(PART, number.otherwise(stranger))


def _union(frames: Sequence[Frame], where: str) -> Frame:
    first, *others = frames
    for other in others:
        if set(other.columns) != set(first.columns):
            raise OperatorTypeError(
                "the streams of a union have different columns",
                where=where,
                expected=", ".join(first.columns),
                got=", ".join(other.columns),
                remedy="bring them into one shape with select(...) first",
            )
    timed = all(f.timed for f in frames)
    df = None
    for f in frames:
        # Partitions of several sources have the same numbers: behind a union they say nothing.
        part = (f.df if timed or not f.timed else f.df.drop(TS)).drop(PART)
        df = part if df is None else df.unionByName(part)
    assert df is not None
    same = all(f.message is first.message for f in frames)
    return Frame(df, (), first.message if same else None)


def _join_table(frame: Frame, join: JoinTable, table: DataFrame, where: str) -> Frame:
    clash = [c for c in table.columns if c in frame.columns and c not in join.on]
    if clash:
        raise OperatorTypeError(
            f"both sides of the join have a column {clash[0]!r}",
            where=where,
            remedy="rename one with select(...), or add it to on=",
        )
    joined = frame.df.join(F.broadcast(table), list(join.on), join.how)
    hidden = [c for c in frame.df.columns if c.startswith("__")]
    rest = [c for c in joined.columns if c not in hidden]
    return Frame(joined.select(*rest, *hidden))
