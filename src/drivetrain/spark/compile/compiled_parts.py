"""What a compilation makes of the graph alone: made for its first batch, and kept for the others.

Problem: branches are compiled again for each batch, on another DataFrame. Most of the parts are the same each
time: the columns of Java that an operator computes, the columns of its results, the functions as Spark's
workers get them. Each takes calls into Java, and a function is pickled, too.

Design: compiled branches have one `CompiledParts`, which is active while the DataFrames of a batch are made.
An operator asks for a part by its key (the operator, and what it is for), and says on what it depends
besides the graph: the columns of its input, or the clock. If that has changed, the part is computed again.
Where no parts are active nothing is kept: a trunk is compiled once.

A function that is large when it is pickled is sent as a broadcast. Spark writes that to a file, and its
executors keep it in memory, until it is destroyed.

Invariants:

1. A part depends on nothing but the graph and what its operator names.
2. There is at most one part for each key; one that is replaced or released leaves no broadcast.
3. After `release` parts are computed again when they are needed.

Called by the modules of operators, and by `batch.spark_branches`, which has one for each compilation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeVar

from py4j.protocol import Py4JError
from pyspark import Broadcast, SparkContext
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType

from drivetrain.api.accumulators import current_collector
from drivetrain.spark.session.dataframe_calls import (
    expression,
    java_columns,
    java_names,
    large_function_bytes,
    with_schema,
)
from drivetrain.spark.session.spark_text import quoted

PartKey: TypeAlias = tuple[str, str]
"""The operator, and what the part is for."""
T = TypeVar("T")
ArrowFunction: TypeAlias = Callable[..., Any]
"""A function over the Arrow batches of a task."""

_active: ContextVar[CompiledParts | None] = ContextVar("compiled_parts", default=None)


class CompiledParts:
    """The parts of one compilation; used by one thread at a time, and released by any."""

    def __init__(self) -> None:
        self._made: dict[PartKey, tuple[object, Any]] = {}
        self._large: dict[PartKey, Broadcast[bytes]] = {}
        self._turn: Final = threading.Lock()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block, operators that this thread compiles keep their parts here."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    def part(self, key: PartKey, make: Callable[[], T], of: object) -> T:
        """The part for a key, which depends on `of`, and on where functions count."""
        known, depends = self._made.get(key), (of, current_collector())
        if known is not None and known[0] == depends:
            part: T = known[1]
            return part
        made = make()
        self._made[key] = (depends, made)
        return made

    def sent(self, function: Callable[..., Any], key: PartKey) -> Callable[..., Any]:
        """The function for a key, in the form in which it is to be sent to workers: a broadcast if it is
        large, instead of the one before, which no job uses any more."""
        pickled = CloudPickleSerializer().dumps(function)
        if len(pickled) <= large_function_bytes():
            return function
        return BroadcastFunction(self._broadcast(key, pickled))

    def _broadcast(self, key: PartKey, value: bytes) -> Broadcast[bytes]:
        context = SparkContext._active_spark_context
        assert context is not None, "functions are sent only while Spark runs"
        made = context.broadcast(value)
        with self._turn:
            before = self._large.pop(key, None)
            self._large[key] = made
        if before is not None:
            _destroy(before)
        return made

    def release(self) -> None:
        """Free what the large functions take; no job may use them any more, and they are computed again."""
        with self._turn:
            large, self._large = self._large, {}
            if large:
                self._made = {}  # one part may have been made of another
        for broadcast in large.values():
            _destroy(broadcast)


class BroadcastFunction:
    """A function of which the workers get the pickled form by a broadcast; unpickled once in each task."""

    def __init__(self, pickled: Broadcast[bytes]) -> None:
        self._pickled: Final = pickled
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """The function's result."""
        if self._function is None:
            self._function = CloudPickleSerializer().loads(self._pickled.value)
        return self._function(*args)


def are_kept() -> bool:
    """Whether parts are kept here."""
    return _active.get() is not None


def part(key: PartKey, make: Callable[[], T], of: object) -> T:
    """The part for a key of the active compilation; computed if there is none, or `of` has changed."""
    parts = _active.get()
    return make() if parts is None else parts.part(key, make, of)


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Within the block, every part is computed again."""
    token = _active.set(None)
    try:
        yield
    finally:
        _active.reset(token)


def sent_function(function: Callable[..., Any], key: PartKey) -> Callable[..., Any]:
    """The function for the part of a key, in the form in which it is to be sent to workers."""
    parts = _active.get()
    return function if parts is None else parts.sent(function, key)


def projected(df: DataFrame, key: PartKey, columns: Callable[[], list[Column]]) -> DataFrame:
    """`df.select(*columns())`, where the columns follow from the graph and the columns of `df`."""
    made = part(key, lambda: java_columns(columns()), df.schema)
    return ClassicDataFrame(df._jdf.select(made), df.sparkSession)


def with_columns(df: DataFrame, key: PartKey, columns: Callable[[], dict[str, Column]]) -> DataFrame:
    """`df.withColumns(columns())`, where the columns follow from the graph and the columns of `df`."""
    names, made = part(key, lambda: _named(columns()), df.schema)
    return ClassicDataFrame(df._jdf.withColumns(names, made), df.sparkSession)


def _named(columns: dict[str, Column]) -> tuple[Any, Any]:
    return java_names(list(columns)), java_columns(list(columns.values()))


def with_part_schema(df: DataFrame, key: PartKey, of: object) -> DataFrame:
    """`df` with its columns known: they follow from the graph and `of`."""
    return with_schema(df, part(key, lambda: df.schema, of))


def mapped(
    df: DataFrame, function: ArrowFunction, schema: StructType, operator: str, of: object = None
) -> DataFrame:
    """`df.mapInArrow(function, schema)`; the function follows from the graph, `of`, and `df`'s columns."""
    parts = _active.get()
    if parts is None:
        return df.mapInArrow(function, schema)
    key = (operator, "function")
    depends = (df.schema, schema, of)
    column = parts.part(key, lambda: _function_column(df, function, schema, key, parts), depends)
    made = ClassicDataFrame(df._jdf.mapInArrow(column._jc, False, None), df.sparkSession)
    return with_schema(made, schema)


def _function_column(
    df: DataFrame, function: ArrowFunction, schema: StructType, key: PartKey, parts: CompiledParts
) -> Column:
    """As `mapInArrow` makes it, with columns that belong to no DataFrame."""
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    made: Any = pandas_udf(parts.sent(function, key), returnType=schema, functionType=kind)
    column: Column = made(*[expression(quoted(name)) for name in df.columns])
    return column


def _destroy(broadcast: Broadcast[bytes]) -> None:
    with suppress(Py4JError, OSError):  # Java is gone, or has deleted the file: then nothing is left of it
        broadcast.destroy()
