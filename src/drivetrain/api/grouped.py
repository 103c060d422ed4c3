"""Grouped streams: keys, a window, and then one of the ways to reduce each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drivetrain.api import monoids
from drivetrain.api.columns import Column
from drivetrain.api.folds import FoldMonoid, ReduceMonoid
from drivetrain.api.functions import name_of, output_type
from drivetrain.api.graph import Aggregate, Fold, Function
from drivetrain.api.location import caller
from drivetrain.api.monoids import Aggregation, Monoid
from drivetrain.api.types import MessageType
from drivetrain.api.windows import Window, everything
from drivetrain.errors import GraphError

if TYPE_CHECKING:
    from drivetrain.api.stream import Stream

Keys = tuple[tuple[str | None, Column | Function], ...]


class Grouped:
    """A stream cut into groups by keys and a window (the global one, unless said otherwise).

    Results have the key columns, `window_start` and `window_end` (unless the window is global), and
    one column per aggregation. Their timestamp is the window's last instant.
    """

    def __init__(self, stream: Stream[Any], keys: Keys, window: Window | None = None) -> None:
        self._stream = stream
        self._keys = keys
        self._window = window or everything()

    def window(self, window: Window) -> Grouped:
        """The same groups, cut into windows."""
        return Grouped(self._stream, self._keys, window)

    def aggregate(
        self, name: str | None = None, **aggregations: Aggregation | Monoid[Any, Any] | Column
    ) -> Stream[Any]:
        """Reduce each group by aggregations: `aggregate(n=agg.count(), delay=agg.mean("delay"))`."""
        if not aggregations:
            raise GraphError(
                "aggregate needs an aggregation", where=str(caller()), remedy="aggregate(n=agg.count())"
            )
        made: list[tuple[str, Aggregation | Monoid[Any, Any]]] = []
        for key, value in aggregations.items():
            if isinstance(value, Column):
                made.append((key, Aggregation(value, str(value))))
            elif isinstance(value, Aggregation | Monoid):
                made.append((key, value))
            else:
                raise GraphError(
                    f"{key}= is not an aggregation",
                    where=f"aggregate ({caller()})",
                    expected="one of drivetrain.agg, a Monoid, or a column of aggregate functions",
                    got=repr(value),
                )
        custom = [(k, v) for k, v in made if isinstance(v, Monoid)]
        if custom and len(made) > 1:
            raise GraphError(
                "a custom Monoid stands alone in an aggregate",
                where=f"aggregate ({caller()})",
                got=", ".join(k for k, _ in made),
                remedy="give it an aggregate of its own, or write the others into the Monoid",
            )
        if custom:
            (key, monoid) = custom[0]
            result = output_type("aggregate", caller(), monoid.result, None)
            operation: Any = Fold(self._named_keys(key), self._window, monoid, result, key)
            return self._stream._add("aggregate", operation, name)
        keys = self._named_keys(*aggregations)
        return self._stream._add("aggregate", Aggregate(keys, self._window, tuple(made)), name)

    def count(self, name: str | None = None) -> Stream[Any]:
        """How many messages each group has, in the column `count`."""
        return self.aggregate(name, count=monoids.count())

    def sum(self, column: str, name: str | None = None) -> Stream[Any]:
        """The sum of a column in each group, in the column `sum`."""
        return self.aggregate(name, sum=monoids.sum(column))

    def min(self, column: str, name: str | None = None) -> Stream[Any]:
        """The smallest value of a column in each group, in the column `min`."""
        return self.aggregate(name, min=monoids.min(column))

    def max(self, column: str, name: str | None = None) -> Stream[Any]:
        """The largest value of a column in each group, in the column `max`."""
        return self.aggregate(name, max=monoids.max(column))

    def mean(self, column: str, name: str | None = None) -> Stream[Any]:
        """The mean of a column in each group, in the column `mean`."""
        return self.aggregate(name, mean=monoids.mean(column))

    def reduce(
        self, fn: Callable[[Any, Any], Any], *, returns: object | None = None, name: str | None = None
    ) -> Stream[Any]:
        """Reduce each group to one message by an associative Python function of two messages."""
        result = output_type("reduce", caller(), fn, returns)
        operation = Fold(self._named_keys(*_columns(result)), self._window, ReduceMonoid(fn), result, "value")
        return self._stream._add(f"reduce-{name_of(fn)}", operation, name)

    def fold(
        self,
        zero: Callable[[], Any],
        fn: Callable[[Any, Any], Any],
        *,
        returns: object | None = None,
        name: str | None = None,
    ) -> Stream[Any]:
        """Fold each group from `zero()` by `fn(state, message)`, in the order messages arrive.

        Sessions merge, and a fold cannot: use `reduce` or a `Monoid` there.
        """
        if self._window.kind == "session":
            raise GraphError(
                "fold cannot run in session windows",
                where=str(caller()),
                got="a session, which may have to merge two states when a message joins them",
                remedy="use reduce(...) or a Monoid, which know how to merge",
            )
        result = output_type("fold", caller(), fn, returns)
        operation = Fold(
            self._named_keys(*_columns(result)), self._window, FoldMonoid(zero, fn), result, "value"
        )
        return self._stream._add(f"fold-{name_of(fn)}", operation, name)

    def _named_keys(self, *results: str) -> tuple[tuple[str, Column | Function], ...]:
        named: list[tuple[str, Column | Function]] = []
        for key, value in self._keys:
            named.append((key or _own_name(value), value))
            if named[-1][0] in results:
                raise GraphError(
                    f"a key and a result are both called {named[-1][0]!r}",
                    where=str(caller()),
                    remedy=f"give the key another name, as in group_by(by={str(value)!r})",
                )
        return tuple(named)


def _columns(result: MessageType) -> list[str]:
    return [name for name, _ in result.fields]


def _own_name(value: Column | Function) -> str:
    if isinstance(value, Column) and value.op == "function:col":
        return str(value.args[0])
    if isinstance(value, Column) and value.op == "method:alias":
        return str(value.args[1])
    raise GraphError(
        f"the key {value} needs a name", where=str(caller()), remedy=f"group_by(name={str(value)!r})"
    )
