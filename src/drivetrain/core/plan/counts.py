"""The messages in and out of each processor, derived from the few counts that cost nothing.

Sources, sinks, channels, filters and flat maps are counted. A map emits what it takes (unless some of it may
go to the dead letters), and the output of one processor is the input of the next. Rows of a table are not
messages. Where neither end of an edge is known, as between a join and a filter, the first of them must be
counted, too (`to_be_counted`); otherwise the count stays unknown: `None`, not 0.

Invariant: a known count is never overwritten by a derived one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from drivetrain.api.graph import Graph, Node


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


def to_be_counted(graph: Graph, producers: Collection[str]) -> frozenset[str]:
    """The processors whose messages must be counted as they pass, for all counts to be known.

    `producers` are those whose messages go into channels, which count them.
    """
    rules, nodes = rules_of(graph), graph.nodes
    readers: dict[str, list[str]] = {id: [] for id in rules}
    for id, rule in rules.items():
        for read in () if rule.reads_aside else rule.inputs:
            readers[read].append(id)
    counted = {id for id in rules if nodes[id].operation.is_counted}
    follows = counted | {id for id in rules if nodes[id].operation.stream_source is not None} | set(producers)
    for id in reversed(rules):  # a processor after it may say how many messages it took
        if any(
            nodes[reader].operation.ends_stream or (rules[reader].preserves and reader in follows)
            for reader in readers[id]
            if len(rules[reader].inputs) == 1
        ):
            follows.add(id)
    for id, rule in rules.items():
        is_sum = rule.preserves and bool(rule.inputs)
        if readers[id] and id not in follows and not is_sum and not nodes[id].operation.is_table:
            counted.add(id)
    return frozenset(counted)


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
