"""The messages in and out of each processor, derived from the few counts that cost nothing.

Sources, sinks, filters and flat maps are counted. A map emits what it takes (unless some of it may go to the
dead letters), and the output of one processor is the input of the next. Rows of a table are not messages.
Where neither end of an edge is known, the count stays unknown: `None`, not 0.

Invariant: a known count is never overwritten by a derived one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from drivetrain.api.graphs.graph import Graph, Node


class CountRule(msgspec.Struct, frozen=True, array_like=True):
    """How the counts of a processor follow from others: `inputs` are the streams that it reads.

    `reads_aside`: its input has counted other messages; `preserves`: it emits as many as it takes.
    """

    inputs: tuple[str, ...]
    reads_aside: bool = False
    preserves: bool = False


def rules_of(graph: Graph) -> dict[str, CountRule]:
    """The rules of a graph, by processor id."""
    return {
        node.id: CountRule(
            tuple(i for i in node.inputs if not graph.nodes[i].operation.is_table),
            node.operation.reads_aside,
            _preserves(node),
        )
        for node in graph.nodes.values()
    }


def derive(
    rules: Mapping[str, CountRule], out: Mapping[str, int], into: Mapping[str, int]
) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Messages (in, out) of every processor, by id, from those that were counted."""
    given: dict[str, int | None] = {id: out.get(id) for id in rules}
    taken: dict[str, int | None] = {id: into.get(id) for id in rules}
    for _ in range(len(rules)):
        for id, rule in rules.items():
            if rule.reads_aside:
                taken[id] = given[id]
                continue
            ups = [given.get(i) for i in rule.inputs]
            if taken[id] is None and ups and all(u is not None for u in ups):
                taken[id] = sum(u for u in ups if u is not None)
            if len(rule.inputs) == 1:
                (only,) = rule.inputs
                if given.get(only) is None and taken[id] is not None:
                    given[only] = taken[id]
            if rule.preserves:
                if given[id] is None:
                    given[id] = taken[id]
                elif taken[id] is None:
                    taken[id] = given[id]
    return taken, given


def _preserves(node: Node) -> bool:
    return bool(node.operation.keeps_number and not node.operation.sets_aside)
