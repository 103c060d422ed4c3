"""The built-in aggregations as monoids over Python values, for states outside Spark's own aggregates.

`agg.count()`, `sum`, `min`, `max` and `mean` have the same meaning as in `aggregate`: nulls are ignored;
without values, the count is 0 and the other results are null. Arrow adds up whole batches of messages before
the shuffle (`spark.compile.persistent_packs`); these classes merge the results, and add single messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from drivetrain.api.expressions.columns import Column
from drivetrain.api.states.monoids import Aggregation, Monoid
from drivetrain.errors import GraphError

Kind: TypeAlias = Literal["count", "sum", "min", "max", "avg"]

_KINDS: Final[tuple[Kind, ...]] = ("count", "sum", "min", "max", "avg")


@dataclass(frozen=True)
class ColumnMonoid(Monoid[Any, Any]):
    """A built-in aggregation of one column; `count` of None counts messages.

    The state of a mean is its sum and count; the state of the others is the value itself. With `scalar`,
    messages are the values of their only column.
    """

    kind: Kind
    column: str | None
    scalar: bool = False

    def __str__(self) -> str:
        name = "mean" if self.kind == "avg" else self.kind
        return f"{name}({self.column or ''})"

    def zero(self) -> Any:
        """The state without messages."""
        return 0 if self.kind == "count" else (None, 0) if self.kind == "avg" else None

    def add(self, state: Any, message: Any) -> Any:
        """The state after one more message."""
        if self.column is None:
            return state + 1
        value = message if self.scalar else getattr(message, self.column)
        if value is None:
            return state
        if self.kind == "count":
            return state + 1
        return self.plus(state, (value, 1) if self.kind == "avg" else value)

    def plus(self, left: Any, right: Any) -> Any:
        """The merged state of both sides."""
        if self.kind == "count":
            return left + right
        if self.kind == "avg":
            return _sum(left[0], right[0]), left[1] + right[1]
        if left is None or right is None:
            return right if left is None else left
        if self.kind == "sum":
            return left + right
        is_left_least = _is_least(left, right)
        return left if is_left_least == (self.kind == "min") else right

    def result(self, state: Any) -> Any:
        """The value; a mean is a float."""
        if self.kind != "avg":
            return state
        return None if not state[1] else state[0] / state[1]


def monoid_of(given: Monoid[Any, Any] | Aggregation) -> Monoid[Any, Any]:
    """A monoid for a persistent state; raises `GraphError` for an aggregation without one."""
    if isinstance(given, Monoid):
        return given
    column = given.column if isinstance(given, Aggregation) else None
    if column is not None and column.op.startswith("function:") and len(column.args) == 1:
        kind, of = column.op.removeprefix("function:"), column.args[0]
        if kind in _KINDS and isinstance(of, Column):
            if kind == "count" and of.op == "function:lit":
                return ColumnMonoid("count", None)
            name = str(of.args[0]) if of.op in ("function:col", "function:expr") else ""
            if name.isidentifier():
                return ColumnMonoid(kind, name)
    raise GraphError(
        "a persistent state cannot use this aggregation",
        expected="agg.count(), agg.sum, min, max or mean of a column, or your own Monoid",
        got=str(given),
        remedy="compute the column first, with with_columns(...); or write a Monoid: zero, add, plus, result",
    )


def name_of_monoid(monoid: Monoid[Any, Any]) -> str:
    """The name of a monoid in the signature of a state."""
    return str(monoid) if isinstance(monoid, ColumnMonoid) else type(monoid).__name__


def _sum(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def _is_least(left: Any, right: Any) -> bool:
    """Whether `left` is not the larger one, in Spark's order: NaN is larger than any number."""
    if right != right:
        return True
    return bool(left <= right)
