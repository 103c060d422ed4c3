"""The graph that an application is: processors as nodes, what each does as a frozen operation.

Pure data. `Application` builds it, the planner reads it, layer `spark` compiles it.

Invariants (`Graph.check`):

1. Every input of a node is a node of the graph, and the nodes stand in topological order.
2. Every processor leads to a sink, and every one but a source has an input.
3. Nothing reads from a sink, and a source reads from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from drivetrain.api.columns import Column
from drivetrain.api.location import Location
from drivetrain.api.monoids import Aggregation, Monoid
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.persistent import Persistent
from drivetrain.api.sinks import Sink
from drivetrain.api.sources import Source
from drivetrain.api.task import Task
from drivetrain.api.types import MessageType
from drivetrain.api.windows import Window
from drivetrain.errors import GraphError

OnError = Literal["fail", "dead_letter"]
JoinKind = Literal["inner", "left"]


@dataclass(frozen=True)
class Read:
    """Reads messages from a source."""

    source: Source


@dataclass(frozen=True)
class Table:
    """Reads a bounded source whole, for joins; not a stream."""

    source: Source


@dataclass(frozen=True)
class Select:
    """Keeps or computes columns, natively; `keep` adds to the columns instead of replacing them.

    A value that is a Python function takes the columns named by its parameters.
    """

    columns: tuple[tuple[str | None, Column | Function], ...]
    keep: bool = False


@dataclass(frozen=True)
class Function:
    """A Python function over columns: its parameters name the columns it takes."""

    fn: Callable[..., Any]
    type: MessageType
    parameters: tuple[str, ...] = ()
    on_error: OnError = "fail"


@dataclass(frozen=True)
class Map:
    """One message out for each in."""

    function: Function


@dataclass(frozen=True)
class FlatMap:
    """Any number of messages out for each in."""

    function: Function


@dataclass(frozen=True)
class Filter:
    """Keeps the messages for which the condition holds."""

    condition: Column | Function


@dataclass(frozen=True)
class EventTime:
    """Says where the event timestamp is, and by how much messages may be out of order.

    With `partition` the disorder is that within a partition: the column has one of the values `partitions`,
    and one that is silent for `idle_ms` is left out of the clock.
    """

    column: Column
    max_disorder_ms: int
    partition: Column | None = None
    partitions: tuple[int | str, ...] = ()
    idle_ms: int | None = None


@dataclass(frozen=True)
class Aggregate:
    """Groups by keys and a window and reduces each group. Stateful."""

    keys: tuple[tuple[str, Column | Function], ...]
    window: Window
    aggregations: tuple[tuple[str, Aggregation | Monoid[Any, Any]], ...]


@dataclass(frozen=True)
class Fold:
    """Groups by keys and a window and folds each group with a Python function. Stateful."""

    keys: tuple[tuple[str, Column | Function], ...]
    window: Window
    monoid: Monoid[Any, Any]
    result: MessageType
    name: str


@dataclass(frozen=True)
class Late:
    """The messages that came too late for the windows of `of`, and its allowed lateness."""

    of: str
    lateness_ms: int = 0


@dataclass(frozen=True)
class LatePanes:
    """Adds up the messages of each batch that came late, within the allowed lateness. Stateless."""

    aggregate: Aggregate


@dataclass(frozen=True)
class Refine:
    """Emits a window's whole result again when late messages change it. Stateful."""

    aggregate: Aggregate


@dataclass(frozen=True)
class Union:
    """All messages of all inputs; columns are matched by name."""


@dataclass(frozen=True)
class JoinTable:
    """Joins each message with the rows of a table."""

    on: tuple[str, ...]
    how: JoinKind


@dataclass(frozen=True)
class JoinStream:
    """Joins two streams by key where their timestamps lie within a distance. Stateful."""

    on: tuple[str, ...]
    within_ms: int
    how: JoinKind


@dataclass(frozen=True)
class Deduplicate:
    """Lets the first message of each key pass, within a span of event time. Stateful."""

    keys: tuple[str, ...]
    within_ms: int


@dataclass(frozen=True)
class Process:
    """Runs a Task with a parallelism; `partitioners` stand in the order of the node's inputs.

    A persistent Task has neither: its keys say where a message goes.
    """

    task: Callable[[], Task[Any, Any]]
    task_name: str
    type: MessageType
    parallelism: int
    partitioners: tuple[Partitioner, ...]
    stateful: bool
    batched: bool
    hears_clock: bool = False
    persistent: Persistent | None = None


@dataclass(frozen=True)
class Log:
    """Writes messages to the log as they pass."""

    limit: int


@dataclass(frozen=True)
class Write:
    """Writes messages to a sink, as `parallelism` tasks if a partitioner says which gets which."""

    sink: Sink
    partitioner: Partitioner | None = None
    parallelism: int = 1


Operation = (
    Read | Table | Select | Map | FlatMap | Filter | EventTime | Aggregate | Fold | Late | LatePanes | Refine
    | Union | JoinTable | JoinStream | Deduplicate | Process | Log | Write
)  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A processor: its id, what it does, the ids it reads from, and where the user wrote it.

    `cut` asks for a channel in front of this processor, whatever the planner would choose.
    """

    id: str
    operation: Operation
    inputs: tuple[str, ...]
    where: Location
    cut: bool = False

    def __str__(self) -> str:
        return f"{self.id} ({self.where})"


Delivery: TypeAlias = Literal["exactly once", "at least once", "at most once"]
"""How often a message counts when something dies: see `drivetrain.core.delivery`."""

Latency: TypeAlias = Literal["micro-batch", "realtime", "realtime where possible"]
"""How messages pass: a batch at a time, or one by one in Spark's real-time mode."""


@dataclass(frozen=True)
class Graph:
    """An application's name and its processors by id, in topological order."""

    name: str
    nodes: Mapping[str, Node]
    latency: Latency = "micro-batch"
    delivery: Delivery = "exactly once"

    def consumers(self, id: str) -> list[Node]:
        """The nodes that read from `id`, in order."""
        return [n for n in self.nodes.values() if id in n.inputs]

    def check(self) -> None:
        """Raise `GraphError` if an invariant of this module does not hold."""
        seen: set[str] = set()
        for node in self.nodes.values():
            missing = [i for i in node.inputs if i not in seen]
            if missing:
                raise GraphError(f"reads from {missing[0]!r}, which does not come before it", where=str(node))
            seen.add(node.id)
            if node.inputs and isinstance(node.operation, Read | Table):
                raise GraphError("is a source, and cannot read from others", where=str(node))
            if not node.inputs and not isinstance(node.operation, Read | Table):
                raise GraphError(
                    "has no input",
                    where=str(node),
                    remedy="connect it to a source, or take it out of the graph",
                )
        if not any(isinstance(n.operation, Write | Log) for n in self.nodes.values()):
            raise GraphError(
                f"application {self.name!r} has no sink: nothing would leave it",
                remedy="end a stream with .sink(sinks.console()) or another sink",
            )
        for node in self.nodes.values():
            if isinstance(node.operation, Write | Log):
                if self.consumers(node.id):
                    raise GraphError("is a sink, and nothing can read from it", where=str(node))
            elif not self.consumers(node.id):
                raise GraphError(
                    "leads nowhere: no processor and no sink reads from it",
                    where=str(node),
                    remedy="end it with .sink(...), or remove it; sinks.none() drops messages on purpose",
                )
