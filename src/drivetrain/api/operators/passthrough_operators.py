"""The operators of a stream that pass on messages unchanged, either all messages or some.

They are a part of `Stream`, in a module of its own because a stream has many operators. The class also holds
what every operator needs: the application and the id of the processor.

Called by `stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from drivetrain.api.durations import milliseconds
from drivetrain.api.expressions.columns import Column
from drivetrain.api.foreign_operator_names import STREAM_WORDS
from drivetrain.api.graphs.functions import function, named_after
from drivetrain.api.graphs.graph_builder import GraphBuilder
from drivetrain.api.location import caller
from drivetrain.api.operations import (
    Deduplicate,
    Filter,
    Function,
    Log,
    OnError,
    Operation,
    Repartition,
    Sample,
    Write,
)
from drivetrain.api.operators.column_arguments import as_column, event_time, require_names_of_columns
from drivetrain.api.sinks import Sink
from drivetrain.api.spelling import other_word
from drivetrain.errors import GraphError

T = TypeVar("T")
_MOST_TASKS = 100_000
"""The largest number with which Spark still starts."""


class PassThroughOperators(Generic[T]):
    """A handle on a processor, with the operators that leave the columns of messages as they are."""

    def __init__(self, app: GraphBuilder, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"Stream({self.id!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            error = other_word(self, name, STREAM_WORDS)
            error.add_note(f"A column of a stream is written col({name!r}).")
            raise error

        def __getitem__(self, name: str) -> Any:
            raise TypeError(f"a stream has no columns of its own: write col({name!r})")

        __iter__ = None

    def filter(
        self,
        condition: Column | str | Callable[[T], bool],
        *,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Self:
        """Keep the messages for which the condition (a column, SQL text or a function) is true.

        >>> cheap = sales.filter("price < 5 OR item IS NULL")
        >>> dear = sales.filter(lambda sale: sale.price > 5, name="dear")
        """
        what: Column | Function
        if isinstance(condition, Column | str):
            what = as_column(condition)
        else:
            what = function("filter", caller(), condition, bool, on_error=on_error)
        return self._pass("filter", Filter(what), name, condition)

    def event_time(
        self,
        column: Column | str,
        *,
        max_disorder: str = "0 s",
        partition: Column | str | None = None,
        partitions: int | Iterable[int | str] | None = None,
        idle_timeout: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Take the timestamp from a column; messages are out of order by at most `max_disorder`.

        A message that is farther out of order may be late for its window; late messages are counted. To give
        each partition of the input its own clock, name the column with the partition in `partition`, and its
        values in `partitions` (a number n means 0 to n - 1); the smallest of these clocks is the stream's.
        The clock ignores a partition without messages for `idle_timeout` ("30 s" by default). Raises
        `GraphError` for invalid partitions.

        >>> sales.event_time("sold", max_disorder="10 min")
        Stream('event_time')
        >>> sales.event_time("sold", partition="shop", partitions=["eu", "us"], name="by_shop")
        Stream('by_shop')
        """
        operation = event_time(column, max_disorder, partition, partitions, idle_timeout)
        return self._pass("event_time", operation, name)

    def log(self, limit: int = 20, *, name: str | None = None) -> Self:
        """Write up to `limit` messages of every batch to the log; the stream is unchanged.

        >>> sales.log(5)
        Stream('sales')
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise GraphError(
                "log cannot write this number of messages",
                where=str(caller()),
                expected="a whole number from 1 on",
                got=repr(limit),
            )
        self._pass("log", Log(limit), name)
        return self

    def deduplicate(self, *keys: str, within: str, name: str | None = None) -> Self:
        """For each key, let a message pass and drop the messages that follow it within a span of time.

        Messages are compared in the order of their timestamps: each waits until the clock reaches its
        timestamp. Without `keys`, all columns together are the key.

        >>> sales.deduplicate("item", within="1 h")
        Stream('deduplicate')
        """
        return self._pass("deduplicate", Deduplicate(keys, milliseconds(within, "within")), name)

    def cut(self) -> Self:
        """Insert a channel: the following operators run as a separate query, which restarts alone.

        >>> sales.map(lambda sale: sale.item, returns=str).cut().group_by("value").count()
        Stream('aggregate')
        """
        self._app._cut(self.id)
        return self

    def sample(self, fraction: float, *keys: str, seed: int = 0, name: str | None = None) -> Self:
        """Keep about `fraction` (0 to 1) of the messages, the same ones whenever they are processed.

        A hash of the message, its timestamp and `seed` decides: equal messages are kept or left out together.
        With `keys`, a hash of these columns decides: all messages of a key are kept, or none. Another `seed`
        gives another sample. Raises `GraphError` for an invalid fraction or seed.

        >>> sales.sample(0.1)
        Stream('sample')
        >>> sales.sample(0.01, "item", seed=7, name="some_items")
        Stream('some_items')
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise GraphError(
                "not a part of the messages",
                where=f"sample ({caller()})",
                expected="a fraction from 0 to 1, such as 0.1",
                got=repr(fraction),
            )
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
            raise GraphError(
                "not a seed",
                where=f"sample ({caller()})",
                expected="a whole number of 64 bits",
                got=repr(seed),
            )
        if keys:
            require_names_of_columns("sample", keys, 'sample(0.1, "column")')
        return self._pass("sample", Sample(float(fraction), keys, seed), name)

    def repartition(self, tasks: int, *keys: str, name: str | None = None) -> Self:
        """Distribute the messages over this many tasks: evenly, or equal values of `keys` to the same task.

        Use this when the partitions of a source would leave the work to only a few cores. Raises `GraphError`
        for a number of tasks below 1.

        >>> sales.repartition(16).map(lambda sale: sale.item, returns=str)
        Stream('map')
        """
        if isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= _MOST_TASKS:
            raise GraphError(
                "not a number of tasks",
                where=f"repartition ({caller()})",
                expected=f"a whole number from 1 to {_MOST_TASKS}, as in repartition(16)",
                got=repr(tasks),
            )
        if keys:
            require_names_of_columns("repartition", keys, 'repartition(16, "column")')
        return self._pass("repartition", Repartition(tasks, keys), name)

    def sink(self, sink: Sink, *, name: str | None = None) -> None:
        """Write every message to a sink; a stream may have several sinks.

        >>> sales.sink(sinks.parquet("out/"), name="out")
        """
        if not hasattr(sink, "guarantee"):
            raise GraphError(
                "not a sink", where=str(caller()), expected="one of drivetrain.sinks", got=type(sink).__name__
            )
        self._pass("sink", Write(sink), name)

    def _pass(self, kind: str, operation: Operation, name: str | None, fn: object = None) -> Self:
        made: Self = self._app._add(named_after(kind, fn), operation, (self.id,), name)
        return made
