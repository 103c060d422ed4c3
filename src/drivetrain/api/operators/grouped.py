"""Grouped streams: keys and a window, followed by an operator that reduces each group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar

from drivetrain.api.durations import milliseconds
from drivetrain.api.expressions.columns import Column, require_free_names
from drivetrain.api.foreign_operator_names import GROUPED_WORDS
from drivetrain.api.graphs.functions import name_of, output_type
from drivetrain.api.location import caller
from drivetrain.api.operations import (
    Aggregate,
    Fold,
    Function,
    MatchPattern,
    Operation,
    PatternStep,
    Top,
    Without,
)
from drivetrain.api.operators.column_arguments import as_column, require_keywords
from drivetrain.api.operators.patterns import require_pattern
from drivetrain.api.spelling import other_word
from drivetrain.api.states import monoids
from drivetrain.api.states.folds import FoldMonoid, ReduceMonoid
from drivetrain.api.states.monoids import Aggregation, Monoid
from drivetrain.api.types import MessageType
from drivetrain.api.windows import Window, everything, require_window
from drivetrain.errors import GraphError

Keys = tuple[tuple[str | None, Column | Function], ...]


ADDED_BY_TOP = ("rank", "window_start", "window_end")
"""The columns that `top` adds to those of messages."""
_MOST_OF_TOP = 10_000
S = TypeVar("S")
"""The type of streams of results."""

Add = Callable[[str, Operation, str | None], S]
"""Adds a processor of a kind, with a name, after the grouped stream; returns the stream of results."""


class Grouped(Generic[S]):
    """A stream divided into groups by keys and a window (by default the global one).

    Results have the key columns, `window_start` and `window_end` (unless the window is global), and
    one column per aggregation. Their timestamp is the window's last millisecond.

    >>> sales.group_by("item").window(windows.sliding("1 h", "5 min")).mean("price")
    Stream('aggregate')
    """

    def __init__(self, add: Add[S], keys: Keys, window: Window | None = None) -> None:
        self._add = add
        self._keys = keys
        self._window = window or everything()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise other_word(self, name, GROUPED_WORDS)

    def window(self, window: Window) -> Grouped[S]:
        """The same groups, divided into windows.

        >>> sales.group_by("item").window(windows.session("30 min")).count()
        Stream('aggregate')
        """
        require_window(window)
        return Grouped(self._add, self._keys, window)

    def aggregate(
        self,
        *unnamed: Never,
        step: str | None = None,
        **aggregations: Aggregation | Monoid[Any, Any] | Column,
    ) -> S:
        """Reduce each group by aggregations: `aggregate(n=agg.count(), delay=agg.mean("delay"))`.

        `step` names the processor; every other keyword names a column.

        >>> sales.group_by("item").aggregate(n=agg.count(), dearest=agg.max("price"), step="by_item")
        Stream('by_item')
        >>> sales.group_by("item").aggregate(spread=F.max("price") - F.min("price"), step="spread")
        Stream('spread')
        """
        require_keywords("aggregate", unnamed, 'aggregate(total=agg.sum("n"))')
        if not aggregations:
            raise GraphError(
                "aggregate needs an aggregation", where=str(caller()), remedy="aggregate(n=agg.count())"
            )
        require_free_names(aggregations)
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
                "an aggregate with a custom Monoid cannot have other aggregations",
                where=f"aggregate ({caller()})",
                got=", ".join(k for k, _ in made),
                remedy="use a separate aggregate for it, or compute the others in the Monoid, too",
            )
        if custom:
            (key, monoid) = custom[0]
            result = output_type("aggregate", caller(), monoid.result, None)
            operation: Any = Fold(self._named_keys(key), self._window, monoid, result, key)
            return self._add("aggregate", operation, step)
        keys = self._named_keys(*aggregations)
        return self._add("aggregate", Aggregate(keys, self._window, tuple(made)), step)

    def count(self, *, name: str | None = None) -> S:
        """The number of messages in each group, in the column `count`.

        >>> sales.group_by("item").count(name="counts")
        Stream('counts')
        """
        return self.aggregate(step=name, count=monoids.count())

    def sum(self, column: str, *more: str, name: str | None = None) -> S:
        """The sum of a column in each group, in the column `sum`.

        >>> sales.group_by("item").sum("price")
        Stream('aggregate')
        """
        _require_one_column("sum", column, more)
        return self.aggregate(step=name, sum=monoids.sum(column))

    def min(self, column: str, *more: str, name: str | None = None) -> S:
        """The smallest value of a column in each group, in the column `min`.

        >>> sales.group_by("item").min("price")
        Stream('aggregate')
        """
        _require_one_column("min", column, more)
        return self.aggregate(step=name, min=monoids.min(column))

    def max(self, column: str, *more: str, name: str | None = None) -> S:
        """The largest value of a column in each group, in the column `max`.

        >>> sales.group_by("item").max("price")
        Stream('aggregate')
        """
        _require_one_column("max", column, more)
        return self.aggregate(step=name, max=monoids.max(column))

    def mean(self, column: str, *more: str, name: str | None = None) -> S:
        """The mean of a column in each group, in the column `mean`.

        >>> sales.group_by("item").mean("price")
        Stream('aggregate')
        """
        _require_one_column("mean", column, more)
        return self.aggregate(step=name, mean=monoids.mean(column))

    def top(self, n: int, *, by: Column | str, name: str | None = None) -> S:
        """The `n` messages of each group with the largest `by`, each with its `rank` from 1 on.

        A result has the keys, `window_start` and `window_end` (unless the window is global), `rank`, and all
        other columns of the message. Of messages with the same `by` the earlier one comes first, then the one
        with the larger columns; messages whose `by` is null do not count. For the smallest values, negate the
        column: `by="-price"`. Raises `GraphError` for an `n` that is not a whole number from 1 to 10,000.

        >>> sales.group_by("item").window(windows.tumbling("1 d")).top(3, by="price", name="dearest")
        Stream('dearest')
        """
        if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= _MOST_OF_TOP:
            raise GraphError(
                "top cannot keep this number of messages",
                where=f"top ({caller()})",
                expected=f"a whole number from 1 to {_MOST_OF_TOP}",
                got=repr(n),
            )
        return self._add("top", Top(self._named_keys(*ADDED_BY_TOP), self._window, n, as_column(by)), name)

    def match(
        self, *parts: PatternStep | Without, within: str, overlapping: bool = False, name: str | None = None
    ) -> S:
        """Find sequences of messages of each key: `patterns.step(...)` and `patterns.without(...)`.

        Messages are taken in the order of event time. All messages of a match are within `within` of its
        first one. A result has the keys, `match_start`, `match_end`, and for each step a column with its
        message (a struct), or an array of them for a step with `at_least`; its timestamp is `match_end`.
        After a match, the next one of the key begins with a later message; with `overlapping`, each message
        that fulfils the first step begins a match of its own. Raises `GraphError` for parts that do not form
        a pattern.

        >>> sales.group_by("item").match(
        ...     patterns.step("dear", "price > 5"), patterns.step("cheap", "price < 1"), within="1 h"
        ... )
        Stream('match')
        """
        if self._window != everything():
            raise GraphError(
                "a pattern has no window",
                where=f"match ({caller()})",
                expected="within=, which bounds each match",
                got=str(self._window),
                remedy="put match after group_by, without window",
            )
        keys = self._named_keys()
        within_ms = milliseconds(within, "within")
        require_pattern(parts, [name for name, _ in keys], within_ms)
        return self._add("match", MatchPattern(keys, parts, within_ms, overlapping), name)

    def reduce(
        self, fn: Callable[[Any, Any], Any], *, returns: object | None = None, name: str | None = None
    ) -> S:
        """Reduce each group to one message by an associative Python function of two messages.

        >>> def dearer(one: Sale, other: Sale) -> Sale:
        ...     return one if one.price > other.price else other
        >>> sales.group_by(day="to_date(sold)").reduce(dearer)
        Stream('reduce-dearer')
        """
        result = output_type("reduce", caller(), fn, returns)
        operation = Fold(self._named_keys(*_columns(result)), self._window, ReduceMonoid(fn), result, "value")
        return self._add(f"reduce-{name_of(fn)}", operation, name)

    def fold(
        self,
        zero: Callable[[], Any],
        fn: Callable[[Any, Any], Any],
        *,
        returns: object | None = None,
        name: str | None = None,
    ) -> S:
        """Fold each group: start from `zero()`, call `fn(state, message)` in the order of arrival.

        A fold cannot merge states, as sessions require: use `reduce` or a `Monoid` for them.

        >>> def longest(length: int, line: str) -> int:
        ...     return max(length, len(line))
        >>> lines.group_by(first="left(value, 1)").fold(int, longest)
        Stream('fold-longest')
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
        return self._add(f"fold-{name_of(fn)}", operation, name)

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


def _require_one_column(operator: str, column: str, more: tuple[str, ...]) -> None:
    if more:
        each = ", ".join(f"{name}=agg.{operator}({name!r})" for name in (column, *more))
        raise GraphError(
            f"{operator} takes one column", where=str(caller()), expected=f"aggregate({each}) for several"
        )


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
