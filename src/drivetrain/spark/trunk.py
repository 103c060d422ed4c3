"""The trunk of a fragment as it was compiled: a streaming DataFrame, and what is known of its inputs.

Made by `fragment`; used by whatever runs a fragment's query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from drivetrain.api.graph import Aggregate, EventTime
from drivetrain.core.plan import Plan

if TYPE_CHECKING:
    from drivetrain.spark.compile.frame import Frame
    from drivetrain.spark.ingested import Ingested
    from drivetrain.spark.sources import OpenedSource


@dataclass(frozen=True)
class Trunk:
    """A compiled trunk: the streaming DataFrame, Spark's output mode, what feeds it.

    `inputs` are source and channel ids in the order of Spark's offsets; a plain source behind a
    clock is followed by its clock stream (`None`). `frame` is what branches start from, as a
    function of a batch DataFrame. `stored` are the sources that are stored at their end first.
    """

    df: DataFrame
    mode: str
    inputs: tuple[str | None, ...]
    sources: Mapping[str, OpenedSource]
    frame: Callable[[DataFrame], Frame]
    stored: Mapping[str, Ingested]
    observed: tuple[str, ...] = ()
    """The processors in the trunk whose event time is observed there, as `newest_name` calls it."""
    skipping: tuple[str, ...] = ()
    """The processors in the trunk behind which what is older than the replay is dropped."""
    clock_paths: Mapping[str, str] = field(default_factory=dict)
    """Where the clocks of sources with partitions are published, by the processor that assigns event time."""

    @property
    def only_at_end(self) -> bool:
        """Whether only the batch that ends the input has results: those of a global window."""
        return self.mode == "complete"


def tells_only_at_end(plan: Plan, fragment: str) -> bool:
    """Whether only the batch that ends the input of a fragment has results: those of a global window."""
    stateful = next(f.stateful for f in plan.fragments if f.id == fragment)
    operation = None if stateful is None else plan.graph.nodes[stateful].operation
    if not isinstance(operation, Aggregate):
        return False
    return operation.window.kind == "global" and operation.window.emission == "discarding"


def newest_name(id: str) -> str:
    """The name under which Spark tells the largest timestamp of a batch that processor `id` assigned."""
    return f"newest of {id}"


def source_event_time(source: object) -> EventTime:
    """The event time that a source declares (`event_time=`, `max_disorder=`) as an operation."""
    from drivetrain.api.columns import col
    from drivetrain.api.durations import milliseconds

    disorder = getattr(source, "max_disorder", None) or "0 s"
    return EventTime(col(str(source.event_time)), milliseconds(disorder, "max_disorder"))  # type: ignore[attr-defined]
