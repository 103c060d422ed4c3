"""An application's graph with a test's messages in place of sources, and lists in place of sinks.

Problem: a test must not use the application's real inputs and outputs, and it needs to see what every
processor emits. But it must test the application's own plan, and an additional sink after a processor may
split a fragment.

Design: a source becomes `SentMessages` with the same columns, event time and disorder; a table becomes the
rows that the test gives; a sink becomes a list. Then each processor gets its own list if that does not change
the plan. The other processors run inside a trunk; when a test asks for their messages, `test_run` starts a
second run that lists them. It does the same for late messages, because a plan separates these only when the
graph reads them.

Invariants:

1. Fragments, trunks and channels are those of the application, but for what `watched` and `late` add.
2. Of the application's sources and sinks, only those in `real` are read and written.

Called by `scripted_run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import EarlyResults, LateMessages, Read, Table, Write
from drivetrain.api.sinks import MemorySink
from drivetrain.api.sources import Items, is_stored_first
from drivetrain.config.nearest import did_you_mean
from drivetrain.connectors.in_process.sent_messages import SentMessages
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import UserError
from drivetrain.spark.prepare.event_times import event_time_follows
from drivetrain.testing.sent_input import ARRIVED

Columns = Callable[[Any, str], str]
"""The columns of a source, by its declaration and id, as DDL."""


@dataclass(frozen=True)
class Setup:
    """A test's settings for a run; see `TestRun`."""

    tables: Mapping[str, Iterable[Any]] = field(default_factory=dict)
    real: frozenset[str] = frozenset()
    watched: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rewired:
    """A graph that a test can run.

    `columns` of every input are DDL; `lists` are the names of the memory sinks by the processor that they
    list, `late_lists` those of late messages.
    """

    graph: Graph
    columns: Mapping[str, str]
    lists: Mapping[str, str]
    late_lists: Mapping[str, str]


def rewired(graph: Graph, setup: Setup, columns_of: Columns, folder: str, token: str) -> Rewired:
    """The graph for a run whose inputs are below `folder`, and whose name and lists have `token` in them.

    Raises `UserError` for a table without rows and for a name that the graph does not have.
    """
    for name in (*setup.tables, *setup.real, *setup.watched, *setup.late):
        require_known(graph, name)
    columns: dict[str, str] = {}
    lists: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for id, node in graph.nodes.items():
        operation: Any = node.operation
        if operation.stream_source is not None:
            columns[id] = columns_of(operation.stream_source, id)
            operation, columns[id] = _sent(graph, node, columns[id], f"{folder}/{id}")
        elif operation.is_table and id not in setup.real:
            operation = Table(_rows(operation.any_source, id, setup, columns_of))
        elif operation.target is not None and id not in setup.real:
            lists[id] = f"{token}/{id}"
            operation = dataclasses.replace(operation, sink=MemorySink(name=lists[id]))
        elif isinstance(operation, EarlyResults) and operation.every_ms:  # a test does not wait
            operation = dataclasses.replace(operation, every_ms=0)
        nodes[id] = dataclasses.replace(node, operation=operation)
    made = dataclasses.replace(graph, name=f"{graph.name}-{token}", nodes=nodes, latency="micro-batch")
    for id in setup.real:
        if nodes[id].operation.target is not None:
            made, lists[id] = _listed(made, id, nodes[id].inputs[0], token)
    late_lists: dict[str, str] = {}
    for id in setup.late:
        late = Node(f"late-of-{id}", LateMessages(id), graph.nodes[id].inputs, graph.nodes[id].where)
        made = dataclasses.replace(made, nodes={**made.nodes, late.id: late})
        made, late_lists[id] = _listed(made, late.id, late.id, token)
    for id in setup.watched - lists.keys():
        made, lists[id] = _listed(made, id, id, token)
    return _with_free_lists(Rewired(made, columns, lists, late_lists), graph, token)


def require_known(
    graph: Graph, name: str, among: Iterable[str] | None = None, what: str = "processor"
) -> None:
    """Raise `UserError` when `name` is none of `among` (None: of the processors)."""
    known = list(graph.nodes if among is None else among)
    if name not in known:
        raise UserError(
            f"the application has no {what} {name!r}",
            where=graph.name,
            expected=", ".join(known) or "none",
            got=name,
            remedy=did_you_mean(name, known, otherwise="correct the name, or give the processor this name"),
        )


def shape(plan: Plan) -> object:
    """The parts of a plan that a list must not change."""
    trunks = [(f.id, f.inputs, f.trunk) for f in plan.fragments]
    return trunks, [(c.producer, c.producer_fragment, c.consumer_fragment) for c in plan.channels]


def _with_free_lists(made: Rewired, graph: Graph, token: str) -> Rewired:
    """The same with a list for every processor whose list leaves the plan as it is."""
    planned = shape(make_plan(made.graph))
    lists, with_lists = dict(made.lists), made.graph
    for id, node in graph.nodes.items():
        if id in lists or node.operation.is_table or node.operation.ends_stream:
            continue
        of_sink = next((lists[n.id] for n in graph.consumers(id) if n.id in lists), None)
        if of_sink is not None:  # it gets the same messages, and a second list would cost another job
            lists[id] = of_sink
            continue
        candidate, name = _listed(with_lists, id, id, token)
        if shape(make_plan(candidate)) == planned:
            with_lists, lists[id] = candidate, name
    return dataclasses.replace(made, graph=with_lists, lists=lists)


def _listed(graph: Graph, id: str, input: str, token: str) -> tuple[Graph, str]:
    name = f"{token}/{id}"
    node = Node(f"list-of-{id}", Write(MemorySink(name=name)), (input,), graph.nodes[input].where)
    return dataclasses.replace(graph, nodes={**graph.nodes, node.id: node}), name


def _sent(graph: Graph, node: Node, columns: str, uri: str) -> tuple[Read, str]:
    """The declaration that reads a test's messages in place of a source, and its columns.

    A source that stamps messages when they arrive gets a column for that: in a test, the test sets the time.
    """
    source: Any = node.operation.stream_source
    event_time, disorder = source.event_time, source.max_disorder
    stamps = is_stored_first(source) and event_time is None
    if stamps and not event_time_follows(graph, node.id, graph.nodes):
        columns, event_time, disorder = f"{columns}, {ARRIVED} timestamp", ARRIVED, None
    sent = SentMessages(
        uri=uri,
        schema=columns,
        is_bounded=source.bounded,
        event_time=event_time,
        max_disorder=disorder,
    )
    return Read(sent), columns


def _rows(source: Any, id: str, setup: Setup, columns_of: Columns) -> Items:
    if id not in setup.tables:
        raise UserError(
            f"the table {id!r} has no rows",
            where=id,
            expected=f"rows for it among the inputs, or real=[{id!r}], which reads the real table",
        )
    return Items(iterable=list(setup.tables[id]), schema=columns_of(source, id))
