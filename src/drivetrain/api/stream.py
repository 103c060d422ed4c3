"""Streams: handles on the nodes of a graph. Every operator adds a processor and returns a new stream.

Building a graph executes nothing and needs no Spark. An operator takes columns (`col("delay") > 15`, SQL
text), which run natively, or Python functions, whose types come from annotations. A function of `map`,
`filter` and `flat_map` receives the message: an instance of the dataclass that annotates its parameter, the
bare value if the stream has one column, otherwise a row with the columns as attributes.

`name` names the processor. `select`, `with_columns` and `rename` take `step` instead, because their other
keywords are names of columns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import UnionType
from typing import Any, Generic, Literal, Never, TypeVar

from drivetrain.api.expressions.columns import Column, require_free_names
from drivetrain.api.graphs.functions import calls_of, function, named_after
from drivetrain.api.graphs.graph_builder import require_of
from drivetrain.api.graphs.task_operation import no_output, process, require_no_key
from drivetrain.api.location import caller
from drivetrain.api.operations import (
    AsyncMap,
    Drop,
    FlatMap,
    JoinKind,
    Map,
    OnError,
    Operation,
    Output,
    Process,
    Rename,
    Select,
)
from drivetrain.api.operators.column_arguments import (
    named_columns,
    require_keywords,
    require_names_of_columns,
)
from drivetrain.api.operators.early_results import early, late
from drivetrain.api.operators.grouped import Grouped
from drivetrain.api.operators.multi_message_columns import require_no_window
from drivetrain.api.operators.passthrough_operators import PassThroughOperators
from drivetrain.api.operators.statements import sql
from drivetrain.api.operators.table import Table, join, join_as_of, union
from drivetrain.api.partitioners import Partitioner, shuffle
from drivetrain.api.task import Task
from drivetrain.api.windows import Window, require_window
from drivetrain.errors import GraphError

T = TypeVar("T")
U = TypeVar("U")


class Stream(PassThroughOperators[T], Generic[T]):
    """The messages that one processor emits; returned by `Application.read` and by operators.

    >>> sales.filter("price > 5").map(lambda sale: sale.item, returns=str)
    Stream('map')
    """

    # -- one message at a time ---------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[T], U],
        *,
        returns: type[U] | UnionType | str | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[U]:
        """Emit one message for each message: the result of a Python function.

        >>> def euros(sale: Sale) -> float:
        ...     return sale.price / 100
        >>> sales.map(euros)
        Stream('map-euros')
        """
        made = function("map", caller(), fn, returns, on_error=on_error)
        return self._add("map", Map(made), name, fn)

    def async_map(
        self,
        fn: Callable[[T], Awaitable[U]],
        *,
        returns: type[U] | UnionType | str | None = None,
        concurrency: int = 20,
        timeout: str = "10 s",
        retries: int = 2,
        backoff: str = "200 ms",
        cache: str | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[U]:
        """Emit one message for each message, in the same order: the result of an `async def` function.

        Each Spark task waits for up to `concurrency` calls at a time. A call that raises, or takes longer
        than `timeout`, is repeated up to `retries` times, after `backoff`, twice that and so on; then
        `on_error` decides. With `cache="10 min"` the results of equal messages are used again for that long,
        in each Python process. A batch that runs again makes its calls again.

        >>> async def city(sale: Sale) -> str:
        ...     return "Oslo"  # after a request to a service
        >>> sales.async_map(city, concurrency=50, on_error="dead_letter")
        Stream('async_map-city')
        """
        calls = calls_of(fn, concurrency, timeout, retries, backoff, cache)
        made = function("async_map", caller(), fn, returns, on_error=on_error)
        return self._add("async_map", AsyncMap(made, calls), name, fn)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        *,
        returns: type[U] | UnionType | str | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[U]:
        """Emit any number of messages for each message; `returns` is the type of one of them.

        >>> lines.flat_map(str.split, returns=str)
        Stream('flat_map-split')
        """
        made = function("flat_map", caller(), fn, returns, element=True, on_error=on_error)
        return self._add("flat_map", FlatMap(made), name, fn)

    def select(self, *columns: Column | str, step: str | None = None, **named: Any) -> Stream[Any]:
        """Keep only these columns: names, SQL expressions or columns; `x=...` is a computed column named `x`.

        `step` names the processor.

        >>> sales.select("item", "sold", euros="round(price / 100, 2)", step="priced")
        Stream('priced')
        """
        return self._add("select", Select(named_columns("select", columns, named)), step)

    def with_columns(self, *unnamed: Never, step: str | None = None, **named: Any) -> Stream[Any]:
        """Add or replace columns. `step` names the processor.

        A value is a column, SQL text, or a Python function whose parameters are named like the columns that
        it needs: `with_columns(speed=kmh)` with `def kmh(distance: float, minutes: float) -> float`.

        >>> def taxed(price: float) -> float:
        ...     return price * 1.2
        >>> sales.with_columns(shout=F.upper("item"), taxed=taxed)
        Stream('with_columns')
        """
        require_keywords("with_columns", unnamed, "with_columns(total='price * 2')")
        return self._add("with_columns", Select(named_columns("with_columns", (), named), keep=True), step)

    def drop(self, *columns: str, name: str | None = None) -> Stream[Any]:
        """Remove columns: `drop("raw", "comment")`.

        >>> sales.drop("sold")
        Stream('drop')
        """
        require_names_of_columns("drop", columns, 'drop("column", ...)')
        return self._add("drop", Drop(columns), name)

    def rename(self, *unnamed: Never, step: str | None = None, **names: str) -> Stream[Any]:
        """Give columns new names: `rename(new="old")`. `step` names the processor.

        >>> sales.rename(product="item")
        Stream('rename')
        """
        require_keywords("rename", unnamed, 'rename(new="old")')
        require_names_of_columns("rename", names.values(), 'rename(new="old")')
        require_free_names(names)
        return self._add("rename", Rename(tuple(names.items())), step)

    def sql(self, statement: str, *, name: str | None = None) -> Stream[Any]:
        """The result of an SQL query over this stream, which is named `this` in it: `SELECT … FROM this …`.

        Without GROUP BY: expressions, WHERE and LATERAL VIEW. With GROUP BY: an aggregation, in the window of
        `window(at, '1 hour')` or `session_window(...)`, with HAVING. `timestamp()` is a message's time.
        Raises `GraphError`, with the operator to use, for what SQL over a stream cannot do.

        >>> sales.sql("SELECT upper(item) AS item, price FROM this WHERE price > 5")
        Stream('sql')
        >>> sales.sql("SELECT item, count(*) AS n FROM this GROUP BY item, window(timestamp(), '1 hour')")
        Stream('sql-select')
        """
        made: Stream[Any] = sql(self._app, self.id, statement, name)
        return made

    # -- groups and windows ------------------------------------------------------------------------

    def group_by(self, *keys: Column | str, **named: Any) -> Grouped[Stream[Any]]:
        """Group by columns, SQL expressions, or functions named by keyword (`word=normalise`).

        >>> sales.group_by("item").count()
        Stream('aggregate')
        >>> sales.group_by(day=F.to_date("sold")).sum("price", name="by_day")
        Stream('by_day')
        """
        if not keys and not named:
            raise GraphError(
                "group_by needs a key", where=str(caller()), remedy="name a column, or use .window()"
            )
        by = named_columns("group_by", keys, named)
        for _, key in by:
            if isinstance(key, Column):
                require_no_window(key)
        return Grouped(self._add, by)

    def window(self, window: Window) -> Grouped[Stream[Any]]:
        """Divide the whole stream into windows, without keys.

        >>> sales.window(windows.tumbling("1 h")).count()
        Stream('aggregate')
        """
        require_window(window)
        return Grouped(self._add, (), window)

    def union(
        self,
        *others: Stream[Any],
        missing: Literal["null"] | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Combine the messages of these streams; columns are matched by name, whatever their order.

        All streams must have the same columns; with `missing="null"`, a column that a stream does not have is
        null in its messages. Raises `GraphError` for another `missing`.

        >>> sales.filter("price > 5", name="dear").union(sales.filter("item = 'tea'", name="tea"))
        Stream('union')
        >>> sales.union(sales.select("item", "sold", kind="'none'"), missing="null", name="wide")
        Stream('wide')
        """
        require_of(self._app, *others)
        return self._add("union", union(missing), name, inputs=(self.id, *(o.id for o in others)))

    def join(
        self,
        other: Stream[Any] | Table,
        *,
        on: str | Iterable[str],
        within: str | None = None,
        how: JoinKind = "inner",
        name: str | None = None,
    ) -> Stream[Any]:
        """Join with a table by columns, or with a stream by columns and time.

        Two streams need `within`: messages match if their timestamps differ by at most this time, which
        also limits the size of the state. `how` is "inner", or "left", "right" or "full", which also emit
        messages of one side or both without a match. A table allows "inner", "left", and two more, which
        leave the messages as they are: "semi" keeps those that have a match, "anti" those that have none.

        >>> kinds = app.table(sources.csv("kinds.csv", schema="item string, kind string"))
        >>> sales.join(kinds, on="item", how="left")
        Stream('join')
        >>> sales.join(kinds, on="item", how="anti", name="unknown_items")
        Stream('unknown_items')
        >>> returns = app.read(sources.json("returns/", schema="item string, at timestamp", event_time="at"))
        >>> sales.join(returns, on="item", within="30 d", name="returned")
        Stream('returned')
        """
        operation = join(other, on, within, how)
        require_of(self._app, other)
        return self._add("join", operation, name, inputs=(self.id, other.id))

    def join_as_of(
        self,
        versions: Stream[Any],
        *,
        on: str | Iterable[str] = (),
        per: str | Iterable[str] = (),
        how: JoinKind = "inner",
        name: str | None = None,
    ) -> Stream[Any]:
        """Join each message with a table that changes: with the version that was the newest at its timestamp.

        `versions` is a stream whose messages replace earlier ones with equal `on`. A message at time t gets
        the columns of the version with equal `on` and the largest timestamp up to t, whatever the order of
        arrival: it waits until the clock of both streams has passed t. `per` names further columns of
        versions: a message then has one result for each of their values, with the newest version that has
        this value. Without `on`, every message sees all versions, as with broadcast rules. `how="left"` also
        emits messages without a version.

        Raises `GraphError` without `on` and `per`, or for another `how`.

        >>> prices = app.read(sources.json("prices/", schema="item string, at timestamp, list double",
        ...                                event_time="at"))
        >>> sales.join_as_of(prices.select("item", "list"), on="item", how="left", name="listed")
        Stream('listed')
        >>> rules = app.read(sources.json("rules/", schema="rule string, at timestamp, above double",
        ...                               event_time="at"))
        >>> sales.join_as_of(rules.select("rule", "above"), per="rule").filter("price > above")
        Stream('filter')
        """
        operation = join_as_of(versions, on, per, how)
        require_of(self._app, versions)
        return self._add("join_as_of", operation, name, inputs=(self.id, versions.id))

    # -- tasks -----------------------------------------------------------------------------------

    def process(
        self,
        task: Callable[[], Task[T, U]],
        *,
        parallelism: int = 1,
        partitioner: Partitioner | None = None,
        returns: type[U] | UnionType | str | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Run a `Task` class (or a function that creates a Task) in `parallelism` instances.

        A `PersistentTask` or `KeyedTask` takes neither `parallelism` nor `partitioner`: it uses any number
        of cores.

        >>> class Shout(Task[str, str]):
        ...     def on_next(self, message: str) -> list[str]:
        ...         return [message.upper()]
        >>> lines.process(Shout, parallelism=4, partitioner=partitioners.hash())
        Stream('Shout')
        """
        operation = process(task, parallelism, (partitioner or shuffle(),), returns)
        if partitioner is not None:
            require_no_key(operation, partitioner)
        return self._add(operation.task_name, operation, name)

    def output(self, name: str) -> Stream[Any]:
        """The messages that a Task emits to its output `name`, with `NamedOutput(name, value)`.

        Each message has the timestamp that a result in the main output would have. Raises `GraphError` for a
        stream of another operator, or a name that the Task does not declare in `outputs`.

        >>> class Priced(Task[Sale, Sale]):
        ...     outputs = {"refused": str}
        ...
        ...     def on_next(self, sale: Sale) -> list[Sale | NamedOutput]:
        ...         return [sale if sale.price > 0 else NamedOutput("refused", sale.item)]
        >>> priced = sales.process(Priced)
        >>> priced.output("refused")
        Stream('Priced-refused')
        """
        operation = self._app._nodes[self.id].operation
        declared = dict(operation.outputs) if isinstance(operation, Process) else {}
        if name not in declared:
            raise no_output(self.id, name, operation)
        return self._once(f"{self.id}-{name}", Output(name, declared[name]), (self.id,))

    @property
    def late(self) -> Stream[Any]:
        """The messages that were late for this stream's windows, as they were before grouping.

        >>> sales.group_by("item").window(windows.tumbling("1 h")).count().late.sink(sinks.json("too_late/"))
        """
        return self._add("late", late(self._app._nodes[self.id]), None, inputs=())

    @property
    def early(self) -> Stream[Any]:
        """The results so far of this stream's windows, after each batch that changes them, until they end.

        This is a separate stream with the same columns. The newest result of each window counts, until the
        window itself emits its result. Raises `GraphError` unless this stream is the result of a native
        aggregation in tumbling or sliding windows.

        >>> hourly = sales.group_by("item").window(windows.tumbling("1 h")).count()
        >>> hourly.early
        Stream('aggregate-early')
        """
        node = self._app._nodes[self.id]
        return self._once(f"{self.id}-early", early(node), node.inputs)

    def early_every(self, interval: str) -> Stream[Any]:
        """The results so far of this stream's windows as `early`, but at most once per interval of wall time.

        Raises `GraphError` as `early`, and for an interval below 100 ms.

        >>> hourly = sales.group_by("item").window(windows.tumbling("1 h")).count()
        >>> hourly.early_every("10 s")
        Stream('aggregate-early')
        """
        node = self._app._nodes[self.id]
        operation = early(node, interval)
        return self._once(f"{self.id}-early", operation, node.inputs, f"every {operation.every_ms}")

    def _once(self, kind: str, operation: Operation, inputs: tuple[str, ...], which: str = "") -> Stream[Any]:
        """The stream of a processor that is added when it, or `which` of its kind, is first asked for."""
        asked = (self.id, kind + which)
        if (known := self._app._asked.get(asked)) is not None:
            return Stream(self._app, known)
        made = self._add(kind, operation, None, inputs=inputs)
        self._app._asked[asked] = made.id
        return made

    def _add(
        self,
        kind: str,
        operation: Any,
        name: str | None,
        fn: object = None,
        inputs: tuple[str, ...] | None = None,
    ) -> Stream[Any]:
        ids = (self.id,) if inputs is None else inputs
        made: Stream[Any] = self._app._add(named_after(kind, fn), operation, ids, name)
        return made
