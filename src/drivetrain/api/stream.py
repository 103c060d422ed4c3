"""Streams: handles on the nodes of a graph. Every method adds a processor and returns a new stream.

Nothing is executed and no Spark is needed: an operator takes columns (`col("delay") > 15`, SQL text)
that run natively, or Python functions whose types come from annotations. A function of `map`,
`filter` and `flat_map` receives the message: the value of a one-column stream, or the dataclass its
parameter is annotated with, or else a row with the columns as attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from drivetrain.api.columns import Column, col, expr
from drivetrain.api.durations import milliseconds
from drivetrain.api.functions import function, name_of, output_type
from drivetrain.api.graph import (
    Aggregate,
    Deduplicate,
    EventTime,
    Filter,
    FlatMap,
    Fold,
    Function,
    JoinKind,
    JoinStream,
    JoinTable,
    Late,
    Log,
    Map,
    OnError,
    Process,
    Select,
    Union,
    Write,
)
from drivetrain.api.grouped import Grouped
from drivetrain.api.location import caller
from drivetrain.api.partitioners import Partitioner, shuffle
from drivetrain.api.persistent import PersistentTask, persistence, written_hooks
from drivetrain.api.sinks import Sink
from drivetrain.api.task import Task
from drivetrain.api.types import MessageType, element_annotation, message_type, returned_annotation
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError

if TYPE_CHECKING:
    from drivetrain.api.application import Application

T = TypeVar("T")
U = TypeVar("U")


class Stream(Generic[T]):
    """The messages that one processor emits. Made by `Application.read` and by other streams."""

    def __init__(self, app: Application, id: str) -> None:
        self._app = app
        self.id = id

    def __repr__(self) -> str:
        return f"Stream({self.id!r})"

    # -- one message at a time ---------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[T], U],
        *,
        returns: object | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[U]:
        """One message out for each message in, by a Python function."""
        made = function("map", caller(), fn, returns, on_error=on_error)
        return self._add("map", Map(made), name, fn)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[U]],
        *,
        returns: object | None = None,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[U]:
        """Any number of messages out for each in; `returns` is the type of one of them."""
        made = function("flat_map", caller(), fn, returns, element=True, on_error=on_error)
        return self._add("flat_map", FlatMap(made), name, fn)

    def filter(
        self,
        condition: Column | str | Callable[[T], bool],
        *,
        on_error: OnError = "fail",
        name: str | None = None,
    ) -> Stream[T]:
        """Only the messages for which the condition holds: a column, SQL text or a function."""
        what: Column | Function
        if isinstance(condition, Column | str):
            what = _column(condition)
        else:
            what = function("filter", caller(), condition, bool, on_error=on_error)
        return self._add("filter", Filter(what), name, condition)

    def select(self, *columns: Column | str, name: str | None = None, **named: Any) -> Stream[Any]:
        """Only these columns: names, SQL expressions or columns; `x=...` names a computed one."""
        return self._add("select", Select(self._columns("select", columns, named)), name)

    def with_columns(self, name: str | None = None, **named: Any) -> Stream[Any]:
        """The same message with columns added or replaced.

        A value is a column, SQL text, or a Python function whose parameters name the columns it
        takes: `with_columns(speed=kmh)` with `def kmh(distance: float, minutes: float) -> float`.
        """
        return self._add("with_columns", Select(self._columns("with_columns", (), named), keep=True), name)

    def event_time(
        self,
        column: Column | str,
        *,
        max_disorder: str = "0 s",
        partition: Column | str | None = None,
        partitions: int | Iterable[int | str] | None = None,
        idle_timeout: str | None = None,
        name: str | None = None,
    ) -> Stream[T]:
        """Take the event timestamp from a column; messages are out of order by `max_disorder` at most.

        A message that is further behind the newest one may be late for its window; late messages are
        counted. When messages come from several places, each in its own order, `partition` is the column that
        says from which, and `partitions` its values (a number n: 0 to n - 1): each then has a clock of its
        own, and the smallest counts. One that gives no message for `idle_timeout` ("30 s" unless given) does
        not hold the others. Raises `GraphError` for partitions that make no sense.
        """
        disorder_ms = milliseconds(max_disorder, "max_disorder")
        if partition is None and (partitions is not None or idle_timeout is not None):
            raise GraphError(
                "partitions need a column that says of which one a message is",
                where=str(caller()),
                expected='event_time("ts", partition="shard", partitions=4)',
            )
        operation = EventTime(_column(column), disorder_ms)
        if partition is not None:
            names = _partition_names(partitions)
            idle_ms = milliseconds(idle_timeout or "30 s", "idle_timeout")
            operation = EventTime(_column(column), disorder_ms, _column(partition), names, idle_ms)
        return self._add("event_time", operation, name)

    def log(self, limit: int = 20, *, name: str | None = None) -> Stream[T]:
        """Write up to `limit` messages of every batch to the log; the stream goes on unchanged."""
        self._add("log", Log(limit), name)
        return self

    # -- groups and windows ------------------------------------------------------------------------

    def group_by(self, *keys: Column | str, **named: Any) -> Grouped:
        """Group by columns, SQL expressions, or functions named by keyword (`word=normalise`)."""
        if not keys and not named:
            raise GraphError(
                "group_by needs a key", where=str(caller()), remedy="name a column, or use .window()"
            )
        return Grouped(self, self._columns("group_by", keys, named))

    key_by = group_by

    def window(self, window: Window) -> Grouped:
        """Cut the whole stream into windows, without keys."""
        return Grouped(self, (), window)

    def deduplicate(self, *keys: str, within: str, name: str | None = None) -> Stream[T]:
        """Let only the first message of each key pass; forget a key after `within` of event time."""
        return self._add("deduplicate", Deduplicate(keys, milliseconds(within, "within")), name)

    # -- several streams ---------------------------------------------------------------------------

    def union(self, *others: Stream[Any], name: str | None = None) -> Stream[T]:
        """All messages of these streams; columns are matched by name."""
        self._expect_ours(*others)
        return self._add("union", Union(), name, inputs=(self.id, *(o.id for o in others)))

    merge = union

    def join(
        self,
        other: Stream[Any] | Table,
        *,
        on: str | Iterable[str],
        within: str | None = None,
        how: JoinKind = "inner",
        name: str | None = None,
    ) -> Stream[Any]:
        """Join with a table by columns, or with a stream by columns and nearness in event time.

        For two streams `within` is required: messages match when their timestamps differ by at most
        that; it is also what bounds the state. `how` is "inner" or "left".
        """
        columns = (on,) if isinstance(on, str) else tuple(on)
        if how not in ("inner", "left"):
            raise GraphError("unknown join", where=str(caller()), expected='"inner" or "left"', got=repr(how))
        self._expect_ours(other)
        if isinstance(other, Table):
            return self._add("join", JoinTable(columns, how), name, inputs=(self.id, other.id))
        if within is None:
            raise GraphError(
                "a join of two streams needs within=",
                where=str(caller()),
                expected='how far apart in event time matches may be, such as within="10 min"',
                got="nothing: the join would have to remember every message for ever",
            )
        within_ms = milliseconds(within, "within")
        return self._add("join", JoinStream(columns, within_ms, how), name, inputs=(self.id, other.id))

    # -- tasks and ends ----------------------------------------------------------------------------

    def process(
        self,
        task: Callable[[], Task[T, U]],
        *,
        parallelism: int = 1,
        partitioner: Partitioner | None = None,
        returns: object | None = None,
        name: str | None = None,
    ) -> Stream[U]:
        """Run a `Task` class (or a function that makes one) in `parallelism` instances.

        A `PersistentTask` has neither parallelism nor partitioner: the same state serves any number of cores.
        """
        operation = process(task, parallelism, (partitioner or shuffle(),), returns)
        if operation.persistent is not None and partitioner is not None:
            raise GraphError(
                f"{operation.task_name} has a key, which says where a message goes",
                where=str(caller()),
                expected="no partitioner",
                got=str(partitioner),
            )
        return self._add(operation.task_name, operation, name)

    def sink(self, sink: Sink, *, name: str | None = None) -> None:
        """Write every message to a sink: the end of a stream."""
        if not hasattr(sink, "guarantee"):
            raise GraphError(
                "not a sink", where=str(caller()), expected="one of drivetrain.sinks", got=type(sink).__name__
            )
        self._add("sink", Write(sink), name)

    def cut(self) -> Stream[T]:
        """Ask for a channel here: what comes next runs as a query of its own and restarts alone."""
        self._app._cut(self.id)
        return self

    @property
    def late(self) -> Stream[Any]:
        """The messages that came too late for this stream's windows, as they were before grouping."""
        if not isinstance(self._app._nodes[self.id].operation, Aggregate | Fold):
            raise GraphError(
                "only the results of a window have late messages",
                where=f"{self.id} ({caller()})",
                remedy="ask what .window(...) and an aggregation returned",
            )
        return self._add("late", Late(self.id), None, inputs=())

    # -- building ----------------------------------------------------------------------------------

    def _expect_ours(self, *others: Stream[Any] | Table) -> None:
        for other in others:
            if other._app is not self._app:
                raise GraphError(
                    f"{other.id!r} belongs to another application, {other._app.name!r}", where=str(caller())
                )

    def _add(
        self,
        kind: str,
        operation: Any,
        name: str | None,
        fn: object = None,
        inputs: tuple[str, ...] | None = None,
    ) -> Stream[Any]:
        return self._app._add(
            kind
            if fn is None or not callable(fn)
            else f"{kind}-{name_of(fn)}"
            if name_of(fn) != "lambda"
            else kind,
            operation,
            (self.id,) if inputs is None else inputs,
            name,
        )

    def _columns(
        self, operator: str, positional: Iterable[Column | str], named: dict[str, Any]
    ) -> tuple[tuple[str | None, Column | Function], ...]:
        out: list[tuple[str | None, Column | Function]] = []
        for c in positional:
            if not isinstance(c, Column | str):
                raise GraphError(
                    "a function needs a name here",
                    where=f"{operator} ({caller()})",
                    expected=f"{operator}(name=function)",
                    got=f"{operator}({name_of(c)})",
                )
            out.append((None, _column(c)))
        for key, value in named.items():
            if isinstance(value, Column | str):
                out.append((key, _column(value)))
            elif callable(value):
                out.append((key, function(operator, caller(), value, None)))
            else:
                raise GraphError(
                    f"{key}= is neither a column nor a function",
                    where=f"{operator} ({caller()})",
                    expected="a column, SQL text or a function; lit(...) for a constant",
                    got=repr(value),
                )
        return tuple(out)


class Table:
    """A bounded source read whole, for `Stream.join`. Made by `Application.table`."""

    def __init__(self, app: Application, id: str) -> None:
        self._app = app
        self.id = id


def hears_clock(kind: type[Task[Any, Any]]) -> bool:
    """Whether a Task class has a hook of its own for the clock or for the end."""
    return kind.on_watermark is not Task.on_watermark or kind.on_stop is not Task.on_stop


def process(
    task: Callable[[], Task[Any, Any]],
    parallelism: int,
    partitioners: tuple[Partitioner, ...],
    returns: object | None,
) -> Process:
    """The operation that runs `task`; raises `GraphError` when it is no Task or has no output type."""
    kind = task if isinstance(task, type) else type(task())
    where = caller()
    if not issubclass(kind, Task):
        raise GraphError(
            "not a Task", where=str(where), expected="a subclass of drivetrain.Task", got=kind.__name__
        )
    if parallelism < 1:
        raise GraphError(
            f"{kind.__name__} needs a parallelism of at least 1", where=str(where), got=str(parallelism)
        )
    if issubclass(kind, PersistentTask):
        return _persistent(task, kind, returns)
    batched = hasattr(kind, "on_batch")
    declared = returns if returns is not None else kind.output
    out: MessageType = output_type(
        kind.__name__, where, kind.on_next, declared, element=declared is None and not batched
    )
    return Process(
        task, kind.__name__, out, parallelism, partitioners, kind.stateful, batched, hears_clock(kind)
    )


def _persistent(
    task: Callable[[], Task[Any, Any]], kind: type[PersistentTask[Any, Any]], returns: object | None
) -> Process:
    declared = returns if returns is not None else kind.output
    hooks = written_hooks(kind)
    telling = [hook for hook in hooks if element_annotation(returned_annotation(hook)) is not None]
    telling += [hook for hook in hooks if returned_annotation(hook) is None]
    if declared is not None or telling:
        of = (*telling, kind.on_next)[0]
        out = output_type(kind.__name__, caller(), of, declared, element=declared is None)
    else:
        out = message_type(str)  # nothing leaves it, but a stream has a type
    return Process(
        task, kind.__name__, out, 1, (), stateful=True, batched=False, persistent=persistence(kind)
    )


def _partition_names(partitions: int | Iterable[int | str] | None) -> tuple[int | str, ...]:
    names = tuple(range(partitions)) if isinstance(partitions, int) else tuple(partitions or ())
    if not names or len(set(names)) != len(names) or len({type(name) for name in names}) > 1:
        raise GraphError(
            "the partitions of an event time are not known",
            where=str(caller()),
            expected='their number, or their names, each once: partitions=4, partitions=["eu", "us"]',
            got=repr(partitions),
        )
    return names


def _column(value: Column | str) -> Column:
    if isinstance(value, Column):
        return value
    return col(value) if value.isidentifier() else expr(value)
