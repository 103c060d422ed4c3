"""Columns are dropped and renamed, and names that do not fit are refused where the operator was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.api.stream import Stream
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.operators import STATELESS
from drivetrain.spark.compile.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Build = Callable[[Stream[Any]], Stream[Any]]


def compiled(spark: SparkSession, build: Build) -> Frame:
    made = build(Application("columns").read(sources.text("in/")))
    made.sink(sinks.console())
    node = made._app.graph().nodes[made.id]
    frame = Frame(spark.sql("select 1 as a, 2 as b, 3 as c, timestamp_millis(0) as __ts"))
    return STATELESS[type(node.operation)](node, [frame], cast(Surroundings, None))


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda s: s.drop("b"), {"a": 1, "c": 3}),
        (lambda s: s.drop("c", "a", name="few"), {"b": 2}),
        (lambda s: s.rename(x="a"), {"x": 1, "b": 2, "c": 3}),
        (lambda s: s.rename(a="b", b="a"), {"b": 1, "a": 2, "c": 3}),
        (lambda s: s.rename(name="c", step="named"), {"a": 1, "b": 2, "name": 3}),
    ],
)
def test_columns_have_the_names_that_were_asked_for(
    spark: SparkSession, build: Build, wanted: dict[str, int]
) -> None:
    frame = compiled(spark, build)
    [row] = frame.df.select(*frame.columns).collect()
    assert row.asDict() == wanted
    assert list(row.asDict()) == list(wanted)
    assert frame.timed


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda s: s.drop("d"), "no column 'd'"),
        (lambda s: s.drop("__ts"), "no column '__ts'"),
        (lambda s: s.drop("a", "b", "c"), "no column is left"),
        (lambda s: s.rename(x="d"), "no column 'd'"),
        (lambda s: s.rename(b="a"), "two columns would be called 'b'"),
        (lambda s: s.rename(x="a", y="a"), "'a' gets two names"),
        (lambda s: s.rename(__ts="a"), "is reserved"),
    ],
)
def test_names_that_do_not_fit_are_refused(spark: SparkSession, build: Build, what: str) -> None:
    with pytest.raises((OperatorTypeError, GraphError), match=what):
        compiled(spark, build)


@pytest.mark.parametrize("build", [lambda s: s.drop(), lambda s: s.drop(1), lambda s: s.rename()])
def test_what_is_no_name_is_refused_before_spark_starts(build: Build) -> None:
    with pytest.raises(GraphError, match="names of columns"):
        build(Application("columns").read(sources.text("in/")))
