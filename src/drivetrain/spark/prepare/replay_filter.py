"""Replay on Spark: drops and counts messages older than the replay's timestamp.

Problem: a source that begins early enough for a replay from T also delivers older messages, in any order.
They must not reach any state or sink; rows that are not messages of the source (the end's row, records that
could not be read) must.

Design: a filter after the processor that assigns the timestamp (`core.replay.replay` determines which). In a
trunk it is part of the plan, so it stays for the whole life; Spark counts the dropped messages as a metric of
the plan.

Invariants:

1. After `since` no message is older than T, and every other row of the frame is there.

Called by `fragment` and `branch_frames`, where event time is assigned, and by `pipeline` for the count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation

from drivetrain.api.graphs.graph import Graph
from drivetrain.core.replay.replay import Life, Replay, ReplayError, replay_of
from drivetrain.runtime.channel.columns import BAD, PUNCT, TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.session.dataframe_calls import filtered, observing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.streaming import StreamingQuery


def replay_in(graph: Graph, life: Life) -> Replay | None:
    """The replay of a life; None for a life that takes everything. Raises `ReplayError`."""
    return None if life.from_ms is None else replay_from(graph, life.from_ms)


def replay_from(graph: Graph, from_ms: int) -> Replay:
    """How `graph` is replayed from `from_ms`; raises `ReplayError` when that is impossible."""
    replay = replay_of(graph, from_ms)
    replay.check(graph)
    return replay


def since(frame: Frame, from_ms: int, counted: str | Observation, where: str) -> Frame:
    """The frame without messages older than `from_ms`; `counted` (or its name) observes their number.

    Raises `ReplayError` when the frame has no timestamps.
    """
    frame = frame.resolved()
    df = frame.df
    if TS not in df.columns:
        raise ReplayError(
            "the messages have no timestamp here, so a replay cannot select them",
            where=where,
            remedy="declare it with event_time= on the source",
        )
    young = f"{TS} >= timestamp_millis({from_ms})"
    if PUNCT in df.columns:
        young += f" OR {PUNCT}"
    if BAD in df.columns:
        young += f" OR {BAD} IS NOT NULL"
    df = observing(df, counted, f"count_if(NOT ({young})) AS skipped")
    return Frame(filtered(df, young), (), frame.message)


def skipped_name(id: str) -> str:
    """The name of Spark's metric of the messages of a batch that were dropped after processor `id`."""
    return f"older than the replay, at {id}"


def skipped_in_trunk(query: StreamingQuery | None, ids: Iterable[str]) -> dict[str, int]:
    """How many messages of the running batch were dropped in its trunk, by processor."""
    wanted = tuple(ids)
    if query is None or not wanted:
        return {}
    observed = query._jsq.streamingQuery().lastExecution().observedMetrics()
    found: dict[str, int] = {}
    for id in wanted:
        row = observed.get(skipped_name(id))
        if row.isDefined() and not row.get().isNullAt(0):
            found[id] = int(row.get().getLong(0))
    return found
