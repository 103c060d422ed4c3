"""The subscriptions of other applications, while an application changes.

Problem: the file of an application does not say who reads it. A change, a restart and a rollback build the
graph from a file or from an earlier version, and would end what others read, or give them something else.

Design: a subscription is a processor of the graph in force. Whatever builds a graph of the application takes
over the subscriptions in force. A change that removes a stream that others read, or that changes anything
which the stream is made of, is refused unless the user says so.

Invariants:

1. A graph that is carried over has every subscription in force, or is refused, or the user has given it up.

Called by `execution`, `change_proposal` and `subscribers`, and by the commands that change an application.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from drivetrain.api.graph import Graph, Node
from drivetrain.api.operations import Subscription
from drivetrain.core.change.graph_version import GraphVersion, ProcessorRecord, SubscriptionRecord
from drivetrain.errors import UserError

_REMEDY = (
    "leave the stream as it is; or pass --even-if-read, which ends or changes what they read; or end their "
    "subscriptions first with drivetrain unsubscribe"
)


def with_subscription(graph: Graph, record: SubscriptionRecord) -> Graph:
    """The graph with a subscription, in place of an earlier one of its id."""
    of = Subscription(record.reader, record.source, record.key, record.drop_after_ms)
    kept = {id: node for id, node in graph.nodes.items() if id != record.id}
    node = Node(record.id, of, (record.stream,), graph.nodes[record.stream].where)
    return dataclasses.replace(graph, nodes={**kept, record.id: node})


def without_subscriptions(graph: Graph, ids: Iterable[str]) -> Graph:
    """The graph without these subscriptions."""
    gone = set(ids)
    return dataclasses.replace(graph, nodes={id: n for id, n in graph.nodes.items() if id not in gone})


def carried_over(
    graph: Graph, in_force: Iterable[SubscriptionRecord], *, even_if_read: bool = False
) -> Graph:
    """The graph with the subscriptions in force, and no others.

    Raises UserError when a stream that others read is not in it; with `even_if_read` their subscriptions end.
    """
    own = [id for id, node in graph.nodes.items() if node.operation.is_subscription]
    made = without_subscriptions(graph, own)
    missing = []
    for record in in_force:
        if is_stream(made.nodes, record.stream):
            made = with_subscription(made, record)
        else:
            missing.append(record)
    if missing and not even_if_read:
        raise _read_by(missing, "are no longer there")
    return made


def is_stream(nodes: Mapping[str, Node], id: str) -> bool:
    """Whether there is a processor of that id that emits messages."""
    node = nodes.get(id)
    return node is not None and not (node.operation.ends_stream or node.operation.is_table)


def refuse_read(old: GraphVersion, new: GraphVersion) -> None:
    """Raise UserError when a change removes or changes what other applications read."""
    kept = {(record.id, record.key): record for record in new.subscriptions}
    gone = [record for record in old.subscriptions if (record.id, record.key) not in kept]
    if gone:
        raise _read_by(gone, "are no longer there")
    changed = [r for r in old.subscriptions if _made_of(old, r.stream) != _made_of(new, r.stream)]
    if changed:
        raise _read_by(changed, "would be made in another way")


def _made_of(version: GraphVersion, stream: str) -> dict[str, ProcessorRecord]:
    """Everything that a stream is made of, without lines."""
    found: dict[str, ProcessorRecord] = {}
    wanted = [stream]
    while wanted:
        id = wanted.pop()
        record = version.processors.get(id)
        if record is not None and id not in found:
            found[id] = _without_line(record)
            wanted += record.inputs
    return found


def _without_line(record: ProcessorRecord) -> ProcessorRecord:
    """A processor without the line in which it was written."""
    return ProcessorRecord(record.id, record.kind, record.described, record.fingerprint, record.inputs)


def _read_by(records: Iterable[SubscriptionRecord], how: str) -> UserError:
    found = list(records)
    return UserError(
        f"streams that other applications read {how}",
        where=", ".join(dict.fromkeys(record.stream for record in found)),
        got="; ".join(f"{record.reader}/{record.source} reads {record.stream}" for record in found),
        remedy=_REMEDY,
    )
