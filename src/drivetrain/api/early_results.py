"""The operation that emits results of windows before they end, and the check that a window allows it.

Called by `stream`.
"""

from __future__ import annotations

import dataclasses

from drivetrain.api.graph import Node
from drivetrain.api.location import caller
from drivetrain.api.operations import Aggregate, Early
from drivetrain.errors import GraphError


def early(node: Node) -> Early:
    """The operation for the early results of a processor; raises `GraphError` if it cannot have any."""
    operation, where = node.operation, f"{node.id} ({caller()})"
    if not isinstance(operation, Aggregate):
        what = type(operation).__name__.lower()
        raise GraphError(
            "only a native aggregation in a window has early results",
            where=where,
            expected="the stream that aggregate(...), count() or sum(...) of .window(...) returned",
            got=f"early of {what}",
        )
    if operation.window.kind == "global":
        raise GraphError(
            "the global window has no early results",
            where=where,
            expected='windows.everything(emission="accumulating"), which emits running results',
            got=str(operation.window),
        )
    if operation.window.kind == "session":
        raise GraphError(
            "sessions have no early results",
            where=where,
            expected="a tumbling or a sliding window",
            got=f"{operation.window}: a message may merge two sessions, whose results would both be wrong",
        )
    window = dataclasses.replace(operation.window, allowed_lateness_ms=0, emission="discarding")
    return Early(dataclasses.replace(operation, window=window))
