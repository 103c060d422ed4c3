"""Converts recorded columns to Spark columns, and Python functions over columns to Spark functions.

A `Column` of layer `api` is a record of calls; here every call is made on `pyspark.sql.functions` or
on the columns themselves. Python functions over columns are lowered to native expressions when
Spark's own transpiler can do that (it compares the source with what Catalyst can express), and run as Arrow
functions otherwise. Errors name the function that Spark lacks, and the most similar one.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pickle import PicklingError
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.expressions.columns import Column
from drivetrain.api.operations import Function
from drivetrain.config.nearest import nearest
from drivetrain.errors import GraphError
from drivetrain.spark.compile.compiled_parts import are_kept, nothing_kept, part, sent_function
from drivetrain.spark.compile.python_stage import reporting
from drivetrain.spark.session.dataframe_calls import expression
from drivetrain.spark.session.spark_errors import translated
from drivetrain.spark.session.spark_text import quoted

_TRANSPILE = "spark.sql.experimental.optimizer.transpilePyUDFs"


def spark_column(column: Column, where: str) -> SparkColumn:
    """The Spark column that `column` records; raises `GraphError` with `where` for a wrong call."""
    kind, name = column.op.split(":", 1)
    args = [_argument(a, where) for a in column.args]
    kwargs = {k: _argument(v, where) for k, v in column.kwargs}
    target: Any
    if kind == "function":
        target = getattr(F, name, None)
        if target is None:
            raise _unknown(name, dir(F), "function", where)
    else:
        target = getattr(args[0], name, None)
        if target is None or isinstance(target, SparkColumn):
            raise _unknown(name, dir(SparkColumn), "column method", where)
        args = args[1:]
    try:
        return target(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"{name} cannot be called like this: {error}", where=where, got=str(column)
        ) from error


@contextmanager
def kept_if_fixed(columns: Iterable[Column], where: str) -> Iterator[None]:
    """Within the block, parts are kept if these columns are the same each time that they are made.

    PySpark draws the seed of `rand` and `uuid` for each column: a kept one would repeat itself in each batch.
    """
    if not are_kept() or part(
        (where, "is fixed"), lambda: all(_is_fixed(column, where) for column in columns), None
    ):
        yield
    else:
        with nothing_kept():
            yield


def recorded_column(column: Column, where: str, of: object) -> SparkColumn:
    """`spark_column` of a processor's only column, kept if it is the same each time."""
    with kept_if_fixed([column], where):
        return part((where, "column"), lambda: spark_column(column, where), of)


def _is_fixed(column: Column, where: str) -> bool:
    same: bool = spark_column(column, where)._jc.equals(spark_column(column, where)._jc)
    return same


def column_function(function: Function, where: str) -> tuple[SparkColumn, bool]:
    """`function` over the columns named by its parameters, and whether it was lowered.

    Raises `GraphError` when it must run in Python and cannot be sent to the workers.
    """
    arguments = [expression(quoted(p)) for p in function.parameters]
    native = lowered(function, arguments)
    if native is not None:
        return native, True
    try:
        called = sent_function(reporting(function.fn, where), (where, f"function {id(function)}"))
        arrow = F.udf(called, function.type.fields[0][1], useArrow=True)
        return arrow(*arguments), False
    except PicklingError as error:
        raise translated(error, where=where) from error


def lowered(function: Function, arguments: list[SparkColumn]) -> SparkColumn | None:
    """A native column of `function(*arguments)`, or None if Spark's transpiler cannot make one."""
    session = SparkSession._instantiatedSession
    if session is None or function.on_error != "fail":
        return None
    candidate = _transpiled(session, function.fn, function.type.fields[0][1])
    return None if candidate is None else candidate(*arguments)


def _transpiled(session: SparkSession, fn: Callable[..., Any], result: str) -> Any | None:
    before = session.conf.get(_TRANSPILE, "false")
    session.conf.set(_TRANSPILE, "true")
    try:
        with warnings.catch_warnings():
            # Spark warns about every function that it cannot lower; here that is an expected answer.
            warnings.simplefilter("ignore")
            made = F.udf(fn, result)
            inner = getattr(made, "_unwrapped", made)
            options = getattr(made, "transpiled", None) or getattr(inner, "transpiled", None)
            if not options:
                options = getattr(getattr(made, "func", None), "transpiled", None)
        return made if options else None
    finally:
        session.conf.set(_TRANSPILE, before)


def _argument(value: Any, where: str) -> Any:
    """An argument with Spark's columns in place of the API's, also inside lists and functions of columns."""
    if isinstance(value, Column):
        return spark_column(value, where)
    if isinstance(value, list | tuple):
        return type(value)(_argument(v, where) for v in value)
    if inspect.isfunction(value):

        @functools.wraps(value)  # Spark reads the names of its parameters
        def called(*columns: SparkColumn) -> Any:
            return _argument(value(*columns), where)

        return called
    return value


def _unknown(name: str, known: list[str], what: str, where: str) -> GraphError:
    near = nearest(name, known)
    return GraphError(
        f"Spark has no {what} {name!r}",
        where=where,
        remedy=f"did you mean {near!r}?" if near else "see the functions of pyspark.sql.functions",
    )
