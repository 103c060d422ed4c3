"""Stateless operators on frames: some run natively, some are lowered, some wait for the Arrow stage.

Each function takes a node, the frames of its inputs and the surroundings, and returns the frame after the
node. It reports how the node will run, so that the printed plan is correct.

Called by `operators`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.expressions.columns import Column
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import (
    AsyncMap,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Function,
    How,
    JoinTable,
    Map,
    Rename,
    Repartition,
    Sample,
    Select,
    Union,
)
from drivetrain.errors import OperatorTypeError
from drivetrain.runtime.channel.columns import PART, PUNCT, TS
from drivetrain.spark.compile.compiled_parts import part, projected, with_columns, with_part_schema
from drivetrain.spark.compile.frame import Frame, require_column
from drivetrain.spark.compile.lowering import (
    column_function,
    kept_if_fixed,
    lowered,
    recorded_column,
    spark_column,
)
from drivetrain.spark.compile.surroundings import Surroundings
from drivetrain.spark.connector.source import BAD_COLUMN
from drivetrain.spark.session.dataframe_calls import expression, filtered, selected, without_columns
from drivetrain.spark.session.spark_text import quoted

_LOWERED = "a Python function that Spark's transpiler turns into expressions"


def map_messages(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """One message for each: natively if Spark can do it, else in the Arrow stage."""
    operation, frame = node.operation, inputs[0]
    assert isinstance(operation, Map)
    lowered_frame = _one_value(frame, operation.function, around.report, str(node))
    return lowered_frame or frame.then("map", operation.function, str(node))


def async_map(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """One message for each, by calls that wait side by side, in the Arrow stage."""
    operation = node.operation
    assert isinstance(operation, AsyncMap)
    return inputs[0].then("map", operation.function, str(node), operation.calls)


def flat_map(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """Any number of messages for each, in the Arrow stage."""
    operation = node.operation
    assert isinstance(operation, FlatMap)
    return inputs[0].then("flat_map", operation.function, str(node))


def filter_messages(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages for which a column or a function is true."""
    operation, frame = node.operation, inputs[0]
    assert isinstance(operation, Filter)
    if isinstance(operation.condition, Column):
        ready = frame.resolved()
        wanted = recorded_column(operation.condition, str(node), ready.df.schema)
        return Frame(filtered(ready.df, wanted), (), ready.message)
    if (condition := _native(frame, operation.condition, str(node))) is not None:
        around.report("lowered", _LOWERED)
        return Frame(filtered(frame.df, condition), (), frame.message)
    return frame.then("filter", operation.condition, str(node))


def _native(frame: Frame, function: Function, where: str) -> SparkColumn | None:
    """A native column for a function of a one-column stream, or None if it must run in Python."""
    if frame.steps or len(frame.columns) != 1 or frame.message is not None or len(function.parameters) != 1:
        return None
    column = quoted(frame.columns[0])
    return part((where, "lowered"), lambda: lowered(function, [expression(column)]), frame.df.schema)


def _one_value(
    frame: Frame, function: Function, report: Callable[[How, str], None], where: str
) -> Frame | None:
    if not function.type.scalar or (column := _native(frame, function, where)) is None:
        return None
    report("lowered", _LOWERED)
    name = function.type.fields[0][0]
    return Frame(projected(frame.df, (where, "column"), lambda: [column.alias(name), *_hidden(frame.df)]))


def select(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """Kept or computed columns."""
    operation, frame, where = node.operation, inputs[0].resolved(), str(node)
    assert isinstance(operation, Select)
    recorded = [value for _, value in operation.columns if isinstance(value, Column)]
    with kept_if_fixed(recorded, where):
        made, is_lowered = part((where, "values"), lambda: _values(operation, frame, where), frame.df.schema)
        if is_lowered:
            around.report("lowered", _LOWERED)
        if operation.keep:
            return Frame(with_columns(frame.df, (where, "columns"), lambda: {str(n): c for n, c in made}))
        return Frame(projected(frame.df, (where, "columns"), lambda: [*_named(made), *_hidden(frame.df)]))


def _named(columns: Sequence[tuple[str | None, SparkColumn]]) -> list[SparkColumn]:
    return [column if name is None else column.alias(name) for name, column in columns]


def _hidden(df: DataFrame) -> list[SparkColumn]:
    """Drivetrain's own columns."""
    return [expression(name) for name in df.columns if name.startswith("__")]


def _values(operation: Select, frame: Frame, where: str) -> tuple[list[tuple[str | None, SparkColumn]], bool]:
    """The names and columns that are kept or computed, and whether Python functions became columns."""
    made: list[tuple[str | None, SparkColumn]] = []
    all_native, any_function = True, False
    for name, value in operation.columns:
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
    return made, any_function and all_native


def drop(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages without some columns."""
    operation, frame = node.operation, inputs[0].resolved()
    assert isinstance(operation, Drop)
    for column in operation.columns:
        require_column(column, frame.columns, str(node))
    if set(operation.columns) == set(frame.columns):
        raise OperatorTypeError(
            "no column is left", where=str(node), expected="at least one column that stays", got="all dropped"
        )
    return Frame(without_columns(frame.df, *operation.columns))


def rename(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages with other names of columns."""
    operation, frame = node.operation, inputs[0].resolved()
    assert isinstance(operation, Rename)
    olds = [old for _, old in operation.columns]
    for old in olds:
        require_column(old, frame.columns, str(node))
    left = [column for column in frame.columns if column not in olds]
    names = Counter([*left, *(new for new, _ in operation.columns)])
    twice = [name for name, count in names.items() if count > 1] + [
        o for o, n in Counter(olds).items() if n > 1
    ]
    if twice:
        raise OperatorTypeError(
            f"two columns would be called {twice[0]!r}"
            if twice[0] in names
            else f"{twice[0]!r} gets two names",
            where=str(node),
            expected="each column once, and each name once",
            got=operation.described,
        )
    renamed = {old: new for new, old in operation.columns}
    named = [f"{quoted(c)} AS {quoted(renamed[c])}" if c in renamed else quoted(c) for c in frame.df.columns]
    return Frame(selected(frame.df, *named))


def event_time(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages with their timestamps."""
    operation, frame, where = node.operation, inputs[0].resolved(), str(node)
    assert isinstance(operation, EventTime)
    recorded = (operation.column, operation.partition)
    with kept_if_fixed([column for column in recorded if column is not None], where):
        quotes = around.quotes_messages
        checked = part(
            (where, "timestamp"), lambda: _timestamp(operation, frame, where, quotes=quotes), frame.df.schema
        )
        df = _partitioned(frame.df, operation, where)
    timed = with_part_schema(df.withColumn(TS, checked), (where, "timed columns"), frame.df.schema)
    return Frame(timed, (), frame.message)


def _timestamp(operation: EventTime, frame: Frame, where: str, *, quotes: bool) -> SparkColumn:
    """The timestamps of messages; Spark raises an error for a message that has none, and may quote it."""
    column = spark_column(operation.column, where)
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
            got=f"{operation.column}: {kind}",
            remedy='parse it first, as in event_time(F.to_timestamp("t", "yyyy-MM-dd HH:mm"))',
        )
    # A message without a timestamp has no place in time: Spark raises an error that names it.
    found = F.to_json(F.struct(*frame.columns)) if quotes else F.lit(f"{operation.column} is null")
    text = F.concat(F.lit(f"{where}: a message has no event timestamp: "), found)
    missing = F.raise_error(text).cast("timestamp")
    if PUNCT in frame.df.columns:  # the end's row has no time of its own
        missing = F.when(~F.col(PUNCT), missing)
    if BAD_COLUMN in frame.df.columns:  # records that could not be read go to the dead letters
        missing = F.when(F.col(BAD_COLUMN).isNull(), missing)
    return F.coalesce(column, missing)


def _partitioned(df: DataFrame, event_time: EventTime, where: str) -> DataFrame:
    """The messages with the number of their partition, if a column gives it."""
    if event_time.partition is None:
        return df
    recorded = event_time.partition
    number = part((where, "partition"), lambda: _partition(event_time, recorded, df, where), df.schema)
    return df.withColumn(PART, number)


def _partition(event_time: EventTime, recorded: Column, df: DataFrame, where: str) -> SparkColumn:
    """The numbers of messages' partitions; Spark raises an error for a partition that is not declared."""
    column = spark_column(recorded, where)
    # If it were ignored, it would not hold the clock, and its messages might be late.
    text = F.concat(
        F.lit(f"{where}: a message of a partition that is not declared: {event_time.partition} is "),
        F.coalesce(column.cast("string"), F.lit("null")),
    )
    stranger = F.raise_error(text).cast("int")
    if PUNCT in df.columns:
        stranger = F.when(~F.col(PUNCT), stranger)
    first, *others = event_time.partitions
    number = F.when(column == F.lit(first), 0)
    for i, name in enumerate(others, 1):
        number = number.when(column == F.lit(name), i)
    return number.otherwise(stranger)


def union(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """All messages of all inputs, by the names of their columns."""
    frames, where = [frame.resolved() for frame in inputs], str(node)
    if isinstance(node.operation, Union) and node.operation.fills:
        frames = _with_all_columns(frames)
    first, *others = frames
    for other in others:
        if set(other.columns) != set(first.columns):
            raise OperatorTypeError(
                "the streams of a union have different columns",
                where=where,
                expected=", ".join(first.columns),
                got=", ".join(other.columns),
                remedy='bring them into one shape with select(...), or let missing="null" fill the rest',
            )
    timed = all(f.timed for f in frames)
    df = None
    for f in frames:
        # Partitions of several sources have the same numbers: after a union they are meaningless.
        stream = without_columns(f.df, PART) if timed else without_columns(f.df, PART, TS)
        df = stream if df is None else df.unionByName(stream)
    assert df is not None
    same = all(f.message is first.message for f in frames)
    return Frame(df, (), first.message if same else None)


def _with_all_columns(frames: list[Frame]) -> list[Frame]:
    """The frames with every column that one of them has: null in those that do not have it."""
    types = {f.name: f.dataType for frame in reversed(frames) for f in frame.df.schema.fields}
    names = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    filled = []
    for frame in frames:
        missing = {name: F.lit(None).cast(types[name]) for name in names if name not in frame.columns}
        filled.append(Frame(frame.df.withColumns(missing), (), None if missing else frame.message))
    return filled


def sample(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages whose hash is below the wanted fraction of all hashes."""
    operation, frame = node.operation, inputs[0].resolved()
    assert isinstance(operation, Sample)
    for key in operation.keys:
        require_column(key, frame.columns, str(node), "to sample by")
    names = operation.keys or (*frame.columns, *([TS] if frame.timed else []))
    maps = [name for name in names if "map<" in frame.df.schema[name].dataType.simpleString()]
    if maps:
        raise OperatorTypeError(
            f"the column {maps[0]!r} has no hash",
            where=str(node),
            expected="columns without maps",
            got=f"{maps[0]}: {frame.df.schema[maps[0]].dataType.simpleString()}",
            remedy='name the columns that decide, as in sample(0.1, "id")',
        )
    limit = -(2**63) + round(operation.fraction * 2**64)
    if limit >= 2**63:
        return frame
    hashed = ", ".join([f"CAST({operation.seed} AS bigint)", *map(quoted, names)])
    return Frame(filtered(frame.df, f"xxhash64({hashed}) < {limit}L"), (), frame.message)


def repartition(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The same messages in another number of tasks."""
    operation, frame = node.operation, inputs[0].resolved()
    assert isinstance(operation, Repartition)
    for key in operation.keys:
        require_column(key, frame.columns, str(node), "to distribute by")
    keys = [expression(quoted(key)) for key in operation.keys]
    return Frame(frame.df.repartition(operation.tasks, *keys), (), frame.message)


def join_table(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """Each message with the matching rows of a table."""
    frame, operation, where = inputs[0].resolved(), node.operation, str(node)
    assert isinstance(operation, JoinTable)
    table = around.table(node.inputs[1])
    only_messages = operation.how in ("semi", "anti")
    clash = [c for c in table.columns if c in frame.columns and c not in operation.on]
    if clash and not only_messages:
        raise OperatorTypeError(
            f"both sides of the join have a column {clash[0]!r}",
            where=where,
            remedy="rename one with select(...), or add it to on=",
        )
    joined = frame.df.join(F.broadcast(table), list(operation.on), operation.how)
    if only_messages:
        return Frame(joined.select(*frame.df.columns), (), frame.message)
    hidden = [c for c in frame.df.columns if c.startswith("__")]
    rest = [c for c in joined.columns if c not in hidden]
    return Frame(joined.select(*rest, *hidden))
