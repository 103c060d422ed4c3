"""Columns without Spark: written down, told as they were written, never computed."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.api.expressions.columns import Column, col, expr, lit, timestamp
from drivetrain.api.expressions.spark_functions import F

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": operator.mod,
    "**": operator.pow, "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "&": operator.and_, "|": operator.or_,
}  # fmt: skip
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_an_operator_is_recorded_and_told_as_written(symbol: str) -> None:
    assert str(OPERATORS[symbol](col("a"), 15)) == f"(a {symbol} 15)"
    assert str(OPERATORS[symbol](col("a"), col("b"))) == f"(a {symbol} b)"


@pytest.mark.parametrize("symbol", OPERATORS)
def test_a_plain_value_may_stand_on_the_left(symbol: str) -> None:
    expected = f"(a {MIRRORED[symbol]} 15)" if symbol in MIRRORED else f"(15 {symbol} a)"
    assert str(OPERATORS[symbol](15, col("a"))) == expected


@given(
    st.recursive(
        st.sampled_from(["a", "b"]).map(lambda n: (col(n), n))
        | st.integers(0, 9).map(lambda n: (lit(n), repr(n))),
        lambda inner: st.tuples(st.sampled_from(list(OPERATORS)), inner, inner).map(
            lambda t: (OPERATORS[t[0]](t[1][0], t[2][0]), f"({t[1][1]} {t[0]} {t[2][1]})")
        ),
        max_leaves=8,
    )
)
def test_nested_operators_are_told_with_parentheses_so_that_they_read_as_they_were_meant(pair: Any) -> None:
    column, text = pair
    assert str(column) == text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (~(col("a") > 1), "~(a > 1)"),
        (-col("a"), "-a"),
        (col("a")["k"], "a.getItem('k')"),
        (col("a").alias("b"), "a.alias('b')"),
        (col("a").isin(1, 2), "a.isin(1, 2)"),
        (F.upper("carrier").alias("c"), "upper('carrier').alias('c')"),
        (F.to_date(col("t"), format="yyyy"), "to_date(t, format='yyyy')"),
        (F.array([col("a"), lit("x")]), "array([a, 'x'])"),
        (col("a").like("b%"), "a.like('b%')"),
        (expr("delay / 60"), "delay / 60"),
        (lit("it's"), '"it\'s"'),
        (timestamp(), "__ts"),
    ],
)
def test_calls_are_told_as_written(column: Column, text: str) -> None:
    assert str(column) == text


def test_a_column_has_no_truth_and_cannot_be_walked_through() -> None:
    for ask in (bool, lambda c: c and 1, lambda c: not c, lambda c: 1 < c < 3, lambda c: c in [col("b")]):
        with pytest.raises(TypeError, match="no truth value"):
            ask(col("a"))
    for walk in (list, lambda c: 1 in c):
        with pytest.raises(TypeError, match="itera"):
            walk(col("a"))


def test_columns_are_values_that_can_be_hashed_copied_and_sent() -> None:
    column = (col("a") + 1).alias("b")
    assert len({column, column, col("a")}) == 2
    for other in (copy.copy(column), copy.deepcopy(column), pickle.loads(pickle.dumps(column))):
        assert str(other) == str(column)


def test_private_names_are_no_columns_and_no_functions() -> None:
    with pytest.raises(AttributeError):
        _ = col("a")._jc
    with pytest.raises(AttributeError):
        _ = F.__wrapped__
