"""The places to which sinks write, and whether two sinks of an application write to one place.

Problem: files of two sinks in one directory would get mixed up. `drivetrain plan` should show that, and it
imports neither Spark nor Arrow; so the place follows from the declaration alone, without its connector.

Design: a place is a normalized text. Local paths are absolute and without links; in a URI, spellings of one
place become one. Only sinks whose place may not be shared have one: directories of files, lists in memory,
and sinks of other connectors that declare `CustomSink.place`.

Called by every module that plans an application, and by `change_proposal`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from drivetrain.api.sinks import CustomSink, FileSink, MemorySink
from drivetrain.config.references import without_password
from drivetrain.errors import GraphError

if TYPE_CHECKING:
    from drivetrain.api.sinks import Sink
    from drivetrain.core.plan.plan import Plan

_SAME_SCHEMES = {"s3a": "s3", "abfss": "abfs", "az": "abfs"}


def sink_place(sink: Sink) -> str | None:
    """The place to which only this sink may write, normalized; None: it has none, or may share it.

    >>> sink_place(FileSink(path="s3a://lake/out/")), sink_place(FileSink(path="s3://lake/out"))
    ('s3://lake/out', 's3://lake/out')
    """
    match sink:
        case FileSink(path=path):
            return _normalized(path)
        case MemorySink(name=name):
            return f"memory:{name}"
        case CustomSink():
            return sink.place
        case _:
            return None


def planned_places(plan: Plan) -> dict[str, str]:
    """The places of a plan's sinks, by processor id, of those that have one."""
    found: dict[str, str] = {}
    for node in plan.graph.nodes.values():
        place = None if node.operation.target is None else sink_place(node.operation.target)
        if place is not None:
            found[node.id] = place
    return found


def refuse_shared_places(plan: Plan) -> Plan:
    """Raise `GraphError` when two sinks write to one place, where they would mix up their results.

    Returns the plan.
    """
    taken: dict[str, str] = {}
    for id, place in planned_places(plan).items():
        node = plan.graph.nodes[id]
        if place in taken:
            raise GraphError(
                f"two sinks write to {place}",
                where=str(node),
                got=f"the other is {taken[place]}",
                remedy="give each sink a directory of its own, or union the streams before one sink",
            )
        taken[place] = str(node)
    return plan


def _normalized(path_or_uri: str) -> str:
    if "://" not in path_or_uri:
        return os.path.realpath(os.path.expanduser(path_or_uri))
    parts = urlsplit(without_password(path_or_uri))
    if parts.scheme == "file":
        return os.path.realpath(unquote(parts.path))
    scheme = _SAME_SCHEMES.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}{unquote(parts.path)}".rstrip("/")
