"""Aggregations reduce a group of messages to one value. All are monoids: partial results can be merged.

The built-in aggregations run as Spark's native aggregates. A custom `Monoid` runs in Python, on Spark's
keyed state, as Tasks do. Applications write `from drivetrain import agg`, and `agg.mean("delay")`.

The approximate aggregations (`distinct_count`, `quantiles`, `frequent`) use the sketches of Apache
DataSketches, which are part of Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from drivetrain.api.expressions.columns import Column, col, expr, lit
from drivetrain.api.expressions.spark_functions import F
from drivetrain.api.foreign_operator_names import AGGREGATION_WORDS
from drivetrain.api.spelling import names_of_module

__all__ = [
    "Aggregation",
    "Monoid",
    "collect_set",
    "count",
    "distinct_count",
    "first",
    "frequent",
    "last",
    "max",
    "mean",
    "min",
    "quantiles",
    "sum",
    "top_k",
    "variance",
]

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.agg", __all__, AGGREGATION_WORDS)

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Aggregation:
    """A native aggregate: `column` is the Spark aggregate, `text` is its text in the plan.

    >>> print(sum("price") / count())
    sum(price) / count()
    """

    column: Column
    text: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, other: Aggregation) -> Aggregation:
        """The ratio of two aggregations, null where the second is zero."""
        return Aggregation(F.try_divide(self.column, other.column), f"{self.text} / {other.text}")


class Monoid(ABC, Generic[T, S]):
    """A user-defined aggregation: an empty state, a way to add a message, and a way to merge two states.

    `plus` must be associative, with `zero()` as its identity, and `add` must agree with it:
    `add(state, message)` equals `plus(state, add(zero(), message))`. States are pickled between batches.
    `result` computes the emitted value from the state; its return annotation is the type of the column.

    >>> class Longest(Monoid[str, str]):
    ...     def zero(self) -> str:
    ...         return ""
    ...     def add(self, state: str, message: str) -> str:
    ...         return max(state, message, key=len)
    ...     def plus(self, left: str, right: str) -> str:
    ...         return max(left, right, key=len)
    ...     def result(self, state: str) -> str:
    ...         return state
    >>> lines.group_by(first="left(value, 1)").aggregate(longest=Longest())
    Stream('aggregate')
    """

    @abstractmethod
    def zero(self) -> S:
        """The state before any message; if it is mutable, a new object in each call."""

    @abstractmethod
    def add(self, state: S, message: T) -> S:
        """The state after one more message."""

    @abstractmethod
    def plus(self, left: S, right: S) -> S:
        """The state after the messages of both sides."""

    @abstractmethod
    def result(self, state: S) -> Any:
        """The value to emit for a state; the return annotation is the type of the column."""


def _of(value: str | Column) -> Column:
    return expr(value) if isinstance(value, str) else value


def count(value: str | Column | None = None) -> Aggregation:
    """The number of messages, or of those in which `value` is not null.

    >>> print(count())
    count()
    >>> print(count("item"))
    count(item)
    """
    return Aggregation(F.count(lit(1) if value is None else _of(value)), f"count({value or ''})")


def sum(value: str | Column) -> Aggregation:
    """The sum; null if there are no values.

    >>> print(sum("price * amount"))
    sum(price * amount)
    """
    return Aggregation(F.sum(_of(value)), f"sum({value})")


def min(value: str | Column) -> Aggregation:
    """The smallest value.

    >>> print(min("price"))
    min(price)
    """
    return Aggregation(F.min(_of(value)), f"min({value})")


def max(value: str | Column) -> Aggregation:
    """The largest value.

    >>> print(max(col("price")))
    max(price)
    """
    return Aggregation(F.max(_of(value)), f"max({value})")


def mean(value: str | Column) -> Aggregation:
    """The arithmetic mean.

    >>> print(mean("price"))
    mean(price)
    """
    return Aggregation(F.avg(_of(value)), f"mean({value})")


def variance(value: str | Column, *, sample: bool = True) -> Aggregation:
    """The variance: of a sample (n − 1), or of the whole population (n).

    >>> print(variance("price", sample=False))
    variance(price)
    """
    column = F.var_samp(_of(value)) if sample else F.var_pop(_of(value))
    return Aggregation(column, f"variance({value})")


def collect_set(value: str | Column) -> Aggregation:
    """The distinct values, sorted, as an array; the state grows with their number.

    >>> print(collect_set("item"))
    collect_set(item)
    """
    return Aggregation(F.array_sort(F.collect_set(_of(value))), f"collect_set({value})")


def top_k(value: str | Column, *, by: str | Column, k: int) -> Aggregation:
    """The `k` values with the largest `by`: an array of struct(by, value), largest first; exact.

    Keeps `k` entries per group. If two messages have the same `by`, the larger value comes first.

    >>> print(top_k("item", by="price", k=3))
    top_k(item by price, 3)
    """
    pair = F.struct(_of(by).alias("by"), _of(value).alias("value"))
    return Aggregation(F.max_by(pair, pair, k), f"top_k({value} by {by}, {k})")


def distinct_count(value: str | Column, *, lg_k: int = 12) -> Aggregation:
    """The approximate number of distinct values (HyperLogLog; error 1.04 / √2^lg_k, 1.6 % by default).

    >>> print(distinct_count("customer", lg_k=14))
    distinct_count(customer)
    """
    return Aggregation(
        F.hll_sketch_estimate(F.hll_sketch_agg(_of(value), lit(lg_k))), f"distinct_count({value})"
    )


def quantiles(value: str | Column, ranks: Sequence[float] = (0.5, 0.9, 0.99)) -> Aggregation:
    """The approximate quantiles at `ranks`, as an array (KLL sketch of doubles; rank error about 1.3 %).

    >>> print(quantiles("price", [0.5, 0.99]))
    quantiles(price)
    """
    sketch = F.kll_sketch_agg_double(_of(value).cast("double"))
    return Aggregation(
        F.kll_sketch_get_quantile_double(sketch, F.array(*[lit(float(r)) for r in ranks])),
        f"quantiles({value})",
    )


def frequent(value: str | Column, k: int = 10) -> Aggregation:
    """The approximate `k` most frequent values: an array of struct(item, count).

    >>> print(frequent("item", 5))
    frequent(item, 5)
    """
    return Aggregation(F.call_function("approx_top_k", _of(value), lit(k)), f"frequent({value}, {k})")


def first(value: str | Column) -> Aggregation:
    """The value of the earliest message by event time; of several at that time, the smallest value.

    Null is smaller than any value. A map has no order: use `F.min_by` for it.

    >>> print(first("price"))
    first(price)
    """
    return Aggregation(F.min_by(_of(value), F.struct(col("__ts"), _of(value))), f"first({value})")


def last(value: str | Column) -> Aggregation:
    """The value of the latest message by event time; of several at that time, the largest value.

    Null is smaller than any value. A map has no order: use `F.max_by` for it.

    >>> print(last("price"))
    last(price)
    """
    return Aggregation(F.max_by(_of(value), F.struct(col("__ts"), _of(value))), f"last({value})")
