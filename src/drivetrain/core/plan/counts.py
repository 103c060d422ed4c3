"""The messages in and out of each processor, derived from the few counts that cost nothing.

Sources, sinks, filters and flat maps are counted. A map emits what it takes (unless some of it may go to the
dead letters), and the output of one processor is the input of the next. Rows of a table are not messages.
Where neither end of an edge is known, the count stays unknown: `None`, not 0.

Invariant: a known count is never overwritten by a derived one.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivetrain.api.graph import Graph, Node


def derive(
    graph: Graph, out: Mapping[str, int], into: Mapping[str, int]
) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Messages (in, out) of every processor, by id, from those that were counted."""
    given: dict[str, int | None] = {id: out.get(id) for id in graph.nodes}
    taken: dict[str, int | None] = {id: into.get(id) for id in graph.nodes}
    for _ in range(len(graph.nodes)):
        for node in graph.nodes.values():
            streams = [i for i in node.inputs if not graph.nodes[i].operation.is_table]
            if node.operation.reads_aside:  # its input has counted other messages
                taken[node.id] = given[node.id]
                continue
            ups = [given[i] for i in streams]
            if taken[node.id] is None and ups and all(u is not None for u in ups):
                taken[node.id] = sum(u for u in ups if u is not None)
            if len(streams) == 1 and given[streams[0]] is None and taken[node.id] is not None:
                given[streams[0]] = taken[node.id]
            if _preserves(node):
                if given[node.id] is None:
                    given[node.id] = taken[node.id]
                elif taken[node.id] is None:
                    taken[node.id] = given[node.id]
    return taken, given


def _preserves(node: Node) -> bool:
    return node.operation.keeps_number and not node.operation.sets_aside
