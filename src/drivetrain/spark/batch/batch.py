"""One batch of a fragment, as data: what it is made of, and what came of it.

Problem: what happens in a batch is done in several steps, by several modules. Each must know exactly what it
may rely on, and nothing may depend on who touched what first.

Design: two frozen records. `Batch` is what the steps get; `BatchOutcome` is what the query keeps of a batch.
What the branches make of it on the way (`Written`) is between the two.

Called by every module of this package that takes part in a batch, and by `spark.repair.rerun_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from drivetrain.core.channel.channel_log import Segment
from drivetrain.spark.connector.newest import Newest


@dataclass(frozen=True)
class Batch:
    """The input of one batch.

    `offsets` are the end offsets of the fragment's inputs, in the order of `Trunk.inputs`; `watermark_ms` is
    Spark's during the batch; `clock_ms` is the fragment's clock when the batch begins. `replayed` says that
    Spark may have run the batch before, `final` that no other follows.
    """

    df: DataFrame
    id: int
    clock_ms: int | None
    offsets: tuple[str | None, ...] = ()
    watermark_ms: int = 0
    replayed: bool = False
    final: bool = False


@dataclass(frozen=True)
class Written:
    """What the branches made of a batch.

    `segments` are new segments by channel id: a channel that is missing has an entry for the batch already.
    `newest` are the largest timestamps, by the processor that assigned them.
    """

    segments: Mapping[str, list[Segment]]
    newest: Mapping[str, Newest]


@dataclass(frozen=True)
class BatchOutcome:
    """What came of a batch: its end offsets, and the fragment's clock after it (None: not known yet)."""

    batch_id: int
    offsets: tuple[str | None, ...]
    clock_ms: int | None


Begun = Callable[[], None]
"""Called before the first output that would take the batch a second time if it were offered again."""


def ignore_begun() -> None:
    """For batches whose outputs skip what they have."""
