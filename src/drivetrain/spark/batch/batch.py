"""One batch of a fragment, as data: its input and its outcome.

Problem: several modules process a batch in several steps. Each must know exactly what it
may rely on, and nothing may depend on the order in which modules touch shared state.

Design: two frozen records. `Batch` is the input of the steps; `BatchOutcome` is what the query keeps of a
batch. The branches' intermediate result (`Written`) is between the two.

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
    Spark may have run the batch before, `final` that no other follows. `whole` asks for all of it to be
    computed before the first output gets anything.
    """

    df: DataFrame
    id: int
    clock_ms: int | None
    offsets: tuple[str | None, ...] = ()
    watermark_ms: int = 0
    replayed: bool = False
    final: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Written:
    """The branches' result for a batch.

    `segments` are new segments by channel id: a missing channel already has an entry for the batch.
    `newest` are the largest timestamps, by the processor that assigned them.
    """

    segments: Mapping[str, list[Segment]]
    newest: Mapping[str, Newest]


@dataclass(frozen=True)
class BatchOutcome:
    """What came of a batch: its end offsets, and the fragment's clock after it (None: not known yet).

    `has_input`: its inputs gave it something.
    """

    batch_id: int
    offsets: tuple[str | None, ...]
    clock_ms: int | None
    has_input: bool = True


Begun = Callable[[], None]
"""Called before the first output that would write the batch twice if the batch ran again."""


def ignore_begun() -> None:
    """For batches whose outputs skip repeated batches."""
