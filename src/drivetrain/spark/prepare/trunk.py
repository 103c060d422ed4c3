"""The compiled trunk of a fragment: a streaming DataFrame, and facts about its inputs.

Made by `fragment`; used by everything that runs a fragment's query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.core.plan.plan import Plan

if TYPE_CHECKING:
    from drivetrain.spark.compile.frame import Frame
    from drivetrain.spark.connector.source import OpenedSource
    from drivetrain.spark.prepare.stored_sources import StoredInput


CLOCK: Final = "clock"
"""The file in a fragment's directory in which the clock of plain sources is published."""


@dataclass(frozen=True)
class Trunk:
    """A compiled trunk: the streaming DataFrame, Spark's output mode, its inputs.

    `inputs` are source and channel ids in the order of Spark's offsets; a plain source with a
    clock stream is followed by that (`None`). `frame` turns a batch DataFrame into the frame where branches
    start. `stored` are the sources that are stored at their end first.
    """

    df: DataFrame
    mode: str
    inputs: tuple[str | None, ...]
    sources: Mapping[str, OpenedSource]
    frame: Callable[[DataFrame], Frame]
    stored: Mapping[str, StoredInput]
    observed: tuple[str, ...] = ()
    """The processors in the trunk whose event time is observed there, under the name of `newest_name`."""
    skipping: tuple[str, ...] = ()
    """The processors in the trunk after which messages older than the replay are dropped."""
    clock_paths: Mapping[str, str] = field(default_factory=dict)
    """Where the clock of a single input is published, by the processor that assigns its event time.

    Sources with partitions have one; so has every input that can be silent in a trunk with several clocks."""
    reads: Callable[[], tuple[StructType, ...]] = tuple
    """The columns of each input of the stateful processor; Spark analyses them when it is called."""
    may_be_direct: bool = False
    """Whether its batches are those of one source that has no need to read columns that nothing uses."""
    counted: frozenset[str] = frozenset()
    """The sources that deliver partial results; Spark reports their messages as `count_name`."""

    @property
    def only_at_end(self) -> bool:
        """Whether only the batch that ends the input has results: those of a global window."""
        return self.mode == "complete"

    def close(self) -> None:
        """Close its sources; it reads no more."""
        for source in self.sources.values():
            source.close()


def tells_only_at_end(plan: Plan, fragment: str) -> bool:
    """Whether only the batch that ends the input of a fragment has results: those of a global window."""
    stateful = next(f.stateful for f in plan.fragments if f.id == fragment)
    return stateful is not None and plan.graph.nodes[stateful].operation.emits_only_at_end


def count_name(id: str) -> str:
    """The name of Spark's metric of the messages of a batch for which partial results of source `id`
    stand."""
    return f"messages of {id}"


def newest_name(id: str) -> str:
    """The name of Spark's metric of the largest timestamp of a batch that processor `id` assigned."""
    return f"newest of {id}"
