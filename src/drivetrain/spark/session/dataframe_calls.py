"""Operations on DataFrames that batches need, with as few calls into Java as possible.

Problem: each call from Python into Java takes time from both processes, in every batch. PySpark makes several
for an operation: for each of its arguments, for the name of a function, for each part of an answer.

Design: expressions are text, and the Java objects that are made from a text are kept: they belong to no
DataFrame. The columns of a DataFrame follow from its expressions and the columns before it, so they are
asked for once, too.

Invariants:

1. The result is that of PySpark's method of the same meaning.
2. What is kept is bounded, and belongs to one Java process.

Called by modules that run for each batch: `branch_frames`, `spark_branches`, `small_batches`, `outbox`, file
formats, the Kafka sink.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from py4j.java_gateway import JVMView
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.types import StructType
from pyspark.util import _load_from_socket

from drivetrain.spark.session.java_classes import java_class
from drivetrain.spark.session.spark_text import quoted

_KEPT: Final = 512
"""How many expressions, lists and schemas are kept, each."""
_OBSERVATION: Final = "org.apache.spark.sql.Observation"
_ROWS: Final = "org.apache.spark.sql.api.python.PythonSQLUtils"


def with_schema(df: DataFrame, schema: StructType) -> DataFrame:
    """`df`, whose schema is known to be this one; PySpark keeps it where it would keep Java's answer."""
    df.__dict__["schema"] = schema
    return df


def expression(text: str) -> Column:
    """`F.expr(text)`."""
    return _expression(_jvm(), text)


def parsed_schema(ddl: str) -> StructType:
    """`StructType.fromDDL(ddl)`; it is shared, so it must not be changed."""
    return _parsed_schema(_jvm(), ddl)


def java_columns(columns: Sequence[Column]) -> Any:
    """Columns as an argument of methods of Java; the caller keeps it."""
    return _jvm().PythonUtils.toSeq([column._jc for column in columns])


def java_names(names: Sequence[str]) -> Any:
    """Names as an argument of methods of Java."""
    return _texts(_jvm(), tuple(names))


def with_columns_only(df: DataFrame, of_java: Any) -> DataFrame:
    """`df.select(*columns)`, where `of_java` is what `java_columns(columns)` has made."""
    return ClassicDataFrame(df._jdf.select(of_java), df.sparkSession)


def static_method(of_class: str, name: str) -> Callable[..., Any]:
    """A static method of a Java class; Java is asked for it the first time only."""
    return _method(_jvm(), of_class, name)


def large_function_bytes() -> int:
    """The size of a pickled function from which PySpark sends it to the workers by a broadcast."""
    context = SparkContext._active_spark_context
    assert context is not None, "batches run only while Spark does"
    return int(_jvm().PythonUtils.getBroadcastThreshold(context._jsc))


def selected(df: DataFrame, *expressions: str) -> DataFrame:
    """`df.selectExpr(*expressions)`; the expressions are Drivetrain's, and mean the same in every session."""
    jvm, of_java = _jvm(), df._jdf
    made = ClassicDataFrame(of_java.selectExpr(_texts(jvm, expressions)), df.sparkSession)
    if (before := _known(df)) is not None:
        kept = _schema_after(jvm, before, expressions)
        if not kept:
            kept.append(made.schema)
        with_schema(made, kept[0])
    return made


def filtered(df: DataFrame, condition: str | Column) -> DataFrame:
    """`df.where(condition)`."""
    return _alike(df.where(condition), df)


def without_columns(df: DataFrame, *columns: str) -> DataFrame:
    """`df.drop(*columns)`, for names exactly as they are in `df`."""
    left = [name for name in df.columns if name not in columns]
    return df if len(left) == len(df.columns) else selected(df, *map(quoted, left))


def with_number(df: DataFrame, column: str, number: int) -> DataFrame:
    """`df` with another number in a column of the type bigint that is never null."""
    made = df._jdf.withColumn(column, _jvm().functions.lit(number).cast("bigint"))
    return _alike(ClassicDataFrame(made, df.sparkSession), df)


def observing(df: DataFrame, observation: Observation | str, *expressions: str) -> DataFrame:
    """`df.observe(observation, ...)` with the aggregates that these texts describe."""
    jvm, first, by = _jvm(), expressions[0], observation
    if isinstance(observation, Observation):
        observation._jvm = jvm
        by = observation._jo = java_class(jvm, _OBSERVATION)()
    rest = _columns(jvm, expressions[1:])
    made = ClassicDataFrame(df._jdf.observe(by, expression(first)._jc, rest), df.sparkSession)
    return _alike(made, df)


def answer(observation: Observation) -> dict[str, Any]:
    """`observation.get`, once an action has run."""
    assert observation._jo is not None, "no DataFrame is observed"
    row: Any = CPickleSerializer().loads(_method(_jvm(), _ROWS, "toPyRow")(observation._jo.getRow()))
    return dict(row.asDict())


def record_batches(df: DataFrame) -> list[pa.RecordBatch]:
    """The rows of `df`, in order; perhaps no batch if there are none.

    A DataFrame that is not PySpark's classic one collects its rows itself.
    """
    if not isinstance(df, ClassicDataFrame):
        return df._collect_as_arrow(empty_list_if_zero_records=False)
    answered, part = df._jdf.collectAsArrowToPython(), _method(_jvm(), "java.lang.reflect.Array", "get")
    port, secret, server = (part(answered, index) for index in range(3))
    try:
        with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:
            batches = list(stream)
    finally:
        with unwrap_spark_exception():
            server.getResult()  # ends Java's thread, and raises the error of the job
    return batches


def _jvm() -> JVMView:
    context = SparkContext._active_spark_context
    assert context is not None, "batches run only while Spark does"
    jvm: JVMView = context._jvm
    return jvm


@functools.lru_cache(maxsize=_KEPT)
def _expression(_of: JVMView, text: str) -> Column:
    return F.expr(text)


@functools.lru_cache(maxsize=_KEPT)
def _parsed_schema(_of: JVMView, ddl: str) -> StructType:
    return StructType.fromDDL(ddl)


@functools.lru_cache(maxsize=_KEPT)
def _texts(jvm: JVMView, texts: tuple[str, ...]) -> Any:
    return jvm.PythonUtils.toSeq(list(texts))


@functools.lru_cache(maxsize=_KEPT)
def _columns(jvm: JVMView, texts: tuple[str, ...]) -> Any:
    return jvm.PythonUtils.toSeq([_expression(jvm, text)._jc for text in texts])


@functools.lru_cache(maxsize=_KEPT)
def _method(jvm: JVMView, of_class: str, name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(java_class(jvm, of_class), name)
    return method


@functools.lru_cache(maxsize=_KEPT)
def _schema_after(_of: JVMView, _before: StructType, _expressions: tuple[str, ...]) -> list[StructType]:
    """A list to hold the schema after these expressions, once Java has been asked."""
    return []


def _known(df: DataFrame) -> StructType | None:
    schema: StructType | None = df.__dict__.get("schema")
    return schema


def _alike(made: DataFrame, df: DataFrame) -> DataFrame:
    """`made`, with the schema of `df` if that is known."""
    known = _known(df)
    return made if known is None else with_schema(made, known)
