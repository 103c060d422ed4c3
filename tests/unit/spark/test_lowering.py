"""Recorded columns played back, on a stand-in for `pyspark.sql.functions` that records again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.api.expressions.columns import Column, col, lit
from drivetrain.api.expressions.spark_functions import F
from drivetrain.errors import GraphError
from drivetrain.spark.compile import lowering
from drivetrain.spark.compile.lowering import spark_column


class Told:
    """A Spark column that only says how it was made."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __gt__(self, other: Any) -> Told:
        return Told(f"({self} > {other})")

    def __rsub__(self, other: Any) -> Told:
        return Told(f"({other} - {self})")

    def __and__(self, other: Any) -> Told:
        return Told(f"({self} & {other})")

    def __invert__(self) -> Told:
        return Told(f"~{self}")

    def alias(self, name: str) -> Told:
        return Told(f"{self} as {name}")

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def function(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Told:
        told = [str(a) for a in args] + [f"{k}={v}" for k, v in kwargs.items()]
        return Told(f"{name}({', '.join(told)})")

    return call


def transform(column: Told, fn: Any) -> Told:
    made = fn(Told("x"))
    if not isinstance(made, Told):
        raise TypeError(f"not a column: {made!r}")
    return Told(f"transform({column}, x -> {made})")


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("col", "lit", "expr", "upper", "array", "to_date")
    stand_in = SimpleNamespace(**{n: function(n) for n in names}, transform=transform)
    monkeypatch.setattr(lowering, "F", stand_in)
    monkeypatch.setattr(lowering, "SparkColumn", type("Other", (), {"alias": None, "isin": None}))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (col("a"), "col(a)"),
        (col("a") > 15, "(col(a) > 15)"),
        (10 - col("a"), "(10 - col(a))"),
        ((col("a") > 1) & ~(col("b") > col("a")), "((col(a) > 1) & ~(col(b) > col(a)))"),
        (F.upper(col("a")).alias("b"), "upper(col(a)) as b"),
        (F.to_date("a", format="yyyy"), "to_date(a, format=yyyy)"),
        (F.array([col("a"), lit(1)]), "array([col(a), lit(1)])"),
        (F.array((col("a"),)), "array((col(a),))"),
        (F.transform(col("a"), lambda x: F.upper(x)), "transform(col(a), x -> upper(x))"),
        (F.transform(col("a"), lambda x: x > 1), "transform(col(a), x -> (x > 1))"),
    ],
    ids=lambda value: value if isinstance(value, str) else "column",  # a lambda's text differs by process
)
@pytest.mark.usefixtures("recording")
def test_a_recorded_column_becomes_the_spark_column_that_was_meant(column: Column, expected: str) -> None:
    assert str(spark_column(column, "select (app.py:3)")) == expected


@pytest.mark.usefixtures("recording")
def test_a_function_that_spark_does_not_have_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(GraphError, match=r"select \(app.py:3\): Spark has no function 'uper'") as caught:
        spark_column(Column("function:uper", (col("a"),)), "select (app.py:3)")
    assert "did you mean 'upper'?" in str(caught.value)


@pytest.mark.usefixtures("recording")
def test_a_method_that_columns_do_not_have_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(GraphError, match="no column method 'alas'") as caught:
        spark_column(Column("method:alas", (col("a"), "b")), "select (app.py:3)")
    assert "'alias'" in str(caught.value)


@pytest.mark.usefixtures("recording")
def test_a_wrong_call_is_told_with_the_column() -> None:
    with pytest.raises(GraphError, match="alias cannot be called like this") as caught:
        spark_column(col("a").alias(), "select (app.py:3)")
    assert caught.value.got == "a.alias()"
