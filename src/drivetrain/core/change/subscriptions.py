"""The subscriptions of other applications, while an application changes.

Problem: the file of an application does not say who reads it. A change, a restart and a rollback build the
graph from a file or from an earlier version, and would end what others read, or give them something else.

Design: a subscription is a processor of the graph in force. Whatever builds a graph of the application takes
over the subscriptions in force. A change that removes a stream that others read, or that changes a processor
before it, is refused unless the user allows it.

Invariants:

1. A graph that is carried over has every subscription in force, or is refused, or the user has given it up.

Called by `preparing`, `change_proposal` and `subscribers`, by the commands that change an application, and by
`version_program` of executors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import msgspec

from drivetrain.api.graphs.graph import Graph, Node
from drivetrain.api.operations import Subscription
from drivetrain.core.change.graph_version import (
    GraphVersion,
    ProcessorRecord,
    SubscriptionRecord,
    subscriptions_of,
)
from drivetrain.errors import UserError

_REMEDY = (
    "leave the stream as it is; or pass --even-if-read, which ends or changes what they read; or end their "
    "subscriptions first with drivetrain unsubscribe"
)


def refuse_checkpoints(graph: Graph) -> None:
    """Raise UserError when other applications read a graph that is going to publish with checkpoints.

    What it has appended may then be taken back, and they would have processed it.
    """
    readers = sorted({record.reader for record in subscriptions_of(graph)})
    if readers:
        raise UserError(
            "an application that others read cannot begin to publish with checkpoints",
            where=graph.name,
            got=f"it is read by {', '.join(readers)}",
            remedy='run it with --set checkpoint.mode="off"; or end their subscriptions with drivetrain '
            "unsubscribe, and have both use a Kafka topic or files",
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


def subscriptions_by(graph: Graph, reader: str, source: str | None) -> list[str]:
    """The subscriptions of a reader in a graph, or that of one of its sources.

    `reader` is the id of an application, or its name. Raises UserError if there is none.
    """
    found = subscriptions_of(graph)
    ids = [
        record.id
        for record in found
        if reader in (record.reader, record.reader.rpartition("-")[0]) and source in (None, record.source)
    ]
    if not ids:
        raise UserError(
            "no such subscription",
            got=reader if source is None else f"{reader}/{source}",
            expected=", ".join(f"{r.reader}/{r.source}" for r in found) or "nobody reads from it",
        )
    return ids


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


def no_such_stream(graph: Graph, stream: str) -> UserError:
    """The error of a reader that asks for a stream that an application does not have."""
    nodes = graph.nodes
    return UserError(
        "the application has no such stream",
        where=graph.name,
        expected=", ".join(id for id in nodes if is_stream(nodes, id)),
        got=stream,
        remedy="name one of its processors that emit messages",
    )


def refuse_transactional(application: str, *, transactional: bool) -> None:
    """Raise UserError when an application publishes with checkpoints: no other one can read from it."""
    if transactional:
        raise UserError(
            "no other application can read from one that publishes with checkpoints",
            where=application,
            remedy='run it with --set checkpoint.mode="off", or have both use a Kafka topic or files',
        )


def with_records_carried_over(old: GraphVersion, new: GraphVersion) -> GraphVersion:
    """A version with the subscriptions of an older one to streams that both have, as `carried_over` does."""
    kept = [
        record
        for record in old.subscriptions
        if record.id not in new.processors and new.fragment_of(record.stream) is not None
    ]
    if not kept:
        return new
    fragments = dict(new.fragments)
    for record in kept:
        home = new.fragment_of(record.stream)
        assert home is not None
        own = fragments[home]
        fragments[home] = msgspec.structs.replace(own, branches=(*own.branches, record.id))
    processors = {**new.processors, **{record.id: old.processors[record.id] for record in kept}}
    return msgspec.structs.replace(
        new,
        processors=processors,
        fragments=fragments,
        subscriptions=(*new.subscriptions, *kept),
    )


def refuse_read(old: GraphVersion, new: GraphVersion) -> None:
    """Raise UserError when a change removes or changes what other applications read."""
    gone, changed = _touched(old, new)
    if gone:
        raise _read_by(gone, "are no longer there")
    if changed:
        raise _read_by(changed, "would be made in another way")


def refused_readers(old: GraphVersion, new: GraphVersion) -> dict[str, str]:
    """The subscriptions that a change would end or alter, each with the reason why it is refused."""
    gone, changed = _touched(old, new)
    unless = "--even-if-read does it anyway"
    why = {r.id: f"{r.reader}/{r.source} reads {r.stream}, which goes: {unless}" for r in gone}
    for record in changed:
        reads = f"{record.reader}/{record.source} reads {record.stream}"
        why[record.id] = f"{reads}, which would be made in another way: {unless}"
    return why


def _touched(
    old: GraphVersion, new: GraphVersion
) -> tuple[list[SubscriptionRecord], list[SubscriptionRecord]]:
    """The subscriptions that a change ends, and those whose stream it alters."""
    kept = {(record.id, record.key) for record in new.subscriptions}
    gone = [record for record in old.subscriptions if (record.id, record.key) not in kept]
    others = (record for record in old.subscriptions if record not in gone)
    return gone, [r for r in others if _made_of(old, r.stream) != _made_of(new, r.stream)]


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
