"""The operations for early results and late messages, which a window emits besides its results.

Called by `stream`.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from drivetrain.api.durations import milliseconds
from drivetrain.api.graphs.graph import Node
from drivetrain.api.location import caller
from drivetrain.api.operations import Aggregate, EarlyResults, LateMessages
from drivetrain.errors import GraphError

LEAST_MS: Final = 100
"""Batches take about this long anyway."""


def early(node: Node, every: str | None = None) -> EarlyResults:
    """The early results of a processor, after each batch or in each interval `every`.

    Raises `GraphError` for a processor that has none, and for a short interval.
    """
    every_ms = None if every is None else milliseconds(every, "every")
    if every_ms is not None and every_ms < LEAST_MS:
        raise GraphError(
            "an interval needs a length",
            where=f"early_every ({caller()})",
            expected='at least "100 ms"; early without an interval has results after each batch',
            got=repr(every),
        )
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
    return EarlyResults(dataclasses.replace(operation, window=window), every_ms)


def late(node: Node) -> LateMessages:
    """The late messages of a window; raises `GraphError` for a processor that has none."""
    if node.operation.grouping_window is None:
        raise GraphError(
            "only the results of a window have late messages",
            where=f"{node.id} ({caller()})",
            remedy="use .late of the stream that an aggregation of .window(...) returned",
        )
    return LateMessages(node.id)
