"""The largest timestamps of a batch by partition, and the resulting clock of a source.

Problem: the clock of a source with partitions needs the largest timestamp of each, for every batch, without a
second pass over it; and an unknown partition may appear.

Design: Spark computes the largest timestamps while the batch passes (`observe`): that of all messages and,
if messages carry the number of their partition (`PART`), that of each partition that was known when the
query was compiled; and it counts the messages of other partitions. `PartitionClocks` passes them to
`core.clock.source_clocks`. A batch with messages of an unknown partition does not move the clock, nor does
anything after it: the query must be compiled again (`has_outgrown`), with that partition.

Called by `fragment`, `branch_frames` and `realtime_query` (columns), and by `fragment_clock`. The caller is
responsible for locking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from drivetrain.api.graphs.graph import Graph
from drivetrain.core.clock.source_clocks import SourceClocks
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import UnavailableError
from drivetrain.runtime.channel.columns import PART, TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.session.dataframe_calls import observing, without_columns

if TYPE_CHECKING:
    from drivetrain.spark.connector.source import OpenedSource


@dataclass(frozen=True)
class Partitions:
    """How many partitions an event time's source has, and after how long without a message one is silent."""

    count: int
    idle_ms: int | None


class PartitionsChangedError(UnavailableError):
    """A source has more partitions than its query knows; the query is compiled again and continues."""

    code = "partitions-changed"


def partitions_of(graph: Graph, id: str, sources: Mapping[str, OpenedSource]) -> Partitions | None:
    """The partitions of the event time that processor `id` assigns; None if it has one clock.

    `sources` are the opened sources, by processor id. Partitions of a single unbounded source can be silent.
    """
    node = graph.nodes[id]
    above = _sources_above(graph, id)
    opened = sources.get(above[0]) if len(above) == 1 else None
    bounded = all(_is_bounded(graph, up) for up in above)
    time = node.operation.assigned_time
    if time is not None and time.partition is not None:
        if len(time.partitions) < 2:
            return None
        return Partitions(len(time.partitions), None if bounded else time.idle_ms)
    if opened is None or not opened.partitions:
        return None
    return Partitions(opened.partitions, None if opened.bounded else opened.idle_ms)


def newest_columns(columns: list[str], partitions: Partitions | None) -> list[str]:
    """The observations for a frame with these columns after its event time; read with `read_newest`."""
    ms = f"if(unix_millis({TS}) < {FINAL_CLOCK_MS}L, unix_millis({TS}), null)"  # later ones mean "no end"
    wanted = [f"max({ms}) AS newest"]
    if partitions is not None and PART in columns:
        numbers = range(partitions.count)
        wanted += [f"max(if({PART} = {number}, {ms}, null)) AS `newest {number}`" for number in numbers]
        wanted.append(f"count_if({PART} >= {partitions.count}) AS unknown")
    return wanted


def with_newest_observed(
    frame: Frame, id: str, observation: str | Observation, graph: Graph, sources: Mapping[str, OpenedSource]
) -> Frame:
    """The frame after processor `id`, which assigns event times, with its largest timestamps observed.

    `observation` may be the name under which a streaming query reports it; read it with `read_newest`.
    `sources` are the opened sources, by processor id. The result no longer has the column `PART`.
    """
    frame = frame.resolved()
    wanted = newest_columns(frame.df.columns, partitions_of(graph, id, sources))
    return Frame(without_columns(observing(frame.df, observation, *wanted), PART), (), frame.message)


def read_newest(observed: Mapping[str, Any]) -> Newest:
    """The observed timestamps of a batch, by the names of `newest_columns`."""
    by_partition = {
        int(name.removeprefix("newest ")): int(ms)
        for name, ms in observed.items()
        if name.startswith("newest ") and ms is not None
    }
    newest_ms = observed.get("newest")
    unknown = observed.get("unknown")
    return Newest(
        None if newest_ms is None else int(newest_ms), by_partition, unknown or 0, unknown is not None
    )


def newest_of_all(observed: Sequence[Newest]) -> Newest:
    """The largest timestamps of all event times together, if messages get theirs in several places."""
    is_partitioned = all(newest.is_partitioned for newest in observed)
    if any(not newest.is_partitioned and newest.newest_ms is None for newest in observed):
        return Newest(None)  # one was not observed
    every = [newest.newest_ms for newest in observed if newest.newest_ms is not None]
    by_partition: dict[int, int] = {}
    for newest in observed if is_partitioned else ():
        for number, ms in newest.by_partition.items():
            by_partition[number] = max(ms, by_partition.get(number, ms))
    unknown = max((newest.unknown for newest in observed), default=0)
    return Newest(max(every, default=None), by_partition, unknown, is_partitioned)


class PartitionClocks:
    """The clock of one event time whose source has partitions; times in ms of a monotonic clock."""

    def __init__(self, partitions: Partitions, disorder_ms: int, now_ms: int) -> None:
        self.partitions = partitions
        self.has_outgrown = False
        """Whether there are more partitions than are known here: the clock stops until the query has been
        compiled again."""
        self._core: SourceClocks[int] = SourceClocks(
            range(partitions.count), disorder_ms=disorder_ms, idle_ms=partitions.idle_ms, now_ms=now_ms
        )

    @property
    def clock_ms(self) -> int | None:
        """The source's clock."""
        return self._core.clock_ms

    @property
    def newest_ms(self) -> Mapping[int, int]:
        """The largest timestamp of each partition that has one."""
        return self._core.newest_ms

    @property
    def silent(self) -> tuple[int, ...]:
        """The partitions that the clock ignores."""
        return self._core.idle

    @property
    def waiting_for(self) -> str:
        """The partitions that hold back the clock, as text after "waiting for"."""
        holding = self._core.holding
        return "data of its source" if holding is None else f"partition {holding} of its source"

    def observe(self, newest: Newest, planned_ms: int, now_ms: int) -> None:
        """Take a batch that was planned at `planned_ms`."""
        self.has_outgrown = self.has_outgrown or newest.unknown > 0
        if not self.has_outgrown:
            self._core.observe(newest.by_partition, planned_ms, now_ms)

    def looked(self, now_ms: int) -> bool:
        """Note that the query waits for data; returns whether that moved the clock."""
        before = self._core.clock_ms
        if not self.has_outgrown:
            self._core.looked(now_ms)
        return self._core.clock_ms != before


def _sources_above(graph: Graph, id: str) -> list[str]:
    found: list[str] = []
    stack = [id]
    while stack:
        node = graph.nodes[stack.pop()]
        if node.operation.stream_source is not None:
            found.append(node.id)
        stack.extend(node.inputs)
    return list(dict.fromkeys(found))


def _is_bounded(graph: Graph, id: str) -> bool:
    source = graph.nodes[id].operation.stream_source
    return source is not None and source.bounded
