"""Allowed lateness, expressed by existing processors.

A window with allowed lateness is rewritten before planning:

    messages ─┬─▶ N-on-time: the window, fired once ─┬─▶ N: union
              └─▶ N-late: what arrives after it fired ─┘

- discarding: `N-late` (`LatePanes`) adds up the late messages of each batch, without any state: each
  result contains the late messages of its own batch only.
- accumulating: `N-late` (`Refine`) keeps the window's state until the lateness is over, and emits the
  whole result again when late messages change it.

Both processors must agree on which messages are late, wherever batches begin: so the fragment before them
decides by its clock, and its messages carry that clock (`__before`).
"""

from __future__ import annotations

import dataclasses

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Aggregate, Fold, LateMessages, LatePanes, Refine, Top, Union
from drivetrain.errors import GraphError


def with_lateness(graph: Graph) -> Graph:
    """`graph` with every window that allows lateness rewritten; the others unchanged."""
    nodes: dict[str, Node] = {}
    on_time: dict[str, str] = {}
    for node in graph.nodes.values():
        operation = node.operation
        if isinstance(operation, LateMessages):
            nodes[node.id] = dataclasses.replace(
                node,
                operation=LateMessages(
                    on_time.get(operation.of, operation.of), _lateness_ms(graph, operation.of)
                ),
            )
        elif (window := operation.grouping_window) is not None and window.allowed_lateness_ms:
            for made in _rewritten(node):
                if made.id != node.id and made.id in graph.nodes:
                    raise GraphError(
                        f"two processors are called {made.id!r}",
                        where=str(graph.nodes[made.id]),
                        got=f"the other is made for the lateness of {node}",
                        remedy="give it another name",
                    )
                nodes[made.id] = made
            on_time[node.id] = f"{node.id}-on-time"
        else:
            nodes[node.id] = node
    return dataclasses.replace(graph, nodes=nodes)


def _rewritten(node: Node) -> list[Node]:
    operation = node.operation
    if isinstance(operation, Fold):
        raise GraphError(
            "a Python aggregation cannot allow lateness",
            where=str(node),
            got="a fold, reduce or Monoid in a window with allowed_lateness",
            remedy="use the aggregations of drivetrain.agg, or take the late messages from .late",
        )
    if isinstance(operation, Top):
        raise GraphError(
            "top cannot allow lateness",
            where=str(node),
            got="a window with allowed_lateness: a late message may push out one that has been emitted",
            remedy="allow more disorder with max_disorder, or take the late messages from .late",
        )
    assert isinstance(operation, Aggregate)
    prompt = dataclasses.replace(
        operation, window=dataclasses.replace(operation.window, allowed_lateness_ms=0, emission="discarding")
    )
    late = Refine(operation) if operation.window.emission == "accumulating" else LatePanes(operation)
    first = Node(f"{node.id}-on-time", prompt, node.inputs, node.where)
    second = Node(f"{node.id}-late", late, node.inputs, node.where)
    return [first, second, dataclasses.replace(node, operation=Union(), inputs=(first.id, second.id))]


def _lateness_ms(graph: Graph, id: str) -> int:
    window = graph.nodes[id].operation.grouping_window
    return 0 if window is None else window.allowed_lateness_ms
