"""Finds where a message gets its event time on its way to the state.

A query has one watermark, so if a message gets several event times on its way to the state, the last one
counts: only there does the clock enter the plan.

Called by `fragment`.
"""

from __future__ import annotations

from collections.abc import Iterable

from drivetrain.api.graphs.graph import Graph
from drivetrain.api.sources import FileSource


def event_time_follows(graph: Graph, id: str, among: Iterable[str]) -> bool:
    """Whether one of these processors assigns event time to messages from processor `id`."""
    return any(
        i != id and graph.nodes[i].operation.assigned_time is not None and id in _ancestors(graph, i)
        for i in among
    )


def gets_event_time(graph: Graph, id: str, among: Iterable[str]) -> bool:
    """Whether processor `id`, or one of these after it, assigns event time."""
    return graph.nodes[id].operation.assigned_time is not None or event_time_follows(graph, id, among)


def can_have_end_row(graph: Graph, id: str, trunk: Iterable[str]) -> bool:
    """Whether the last batch of a source can mark the end: the event time that counts is assigned by the
    source, or directly after it."""
    trunk, source = tuple(trunk), graph.nodes[id].operation.stream_source
    if not isinstance(source, FileSource) or not source.bounded:
        return False
    if source.event_time is not None:
        return not event_time_follows(graph, id, trunk)
    after = graph.consumers(id)[0]
    time = after.operation.assigned_time
    if time is None or event_time_follows(graph, after.id, trunk):
        return False
    return time.partition is None  # partitions have a clock stream, which marks the end


def _ancestors(graph: Graph, id: str) -> set[str]:
    found: set[str] = set()
    stack = [id]
    while stack:
        for up in graph.nodes[stack.pop()].inputs:
            if up not in found:
                found.add(up)
                stack.append(up)
    return found
