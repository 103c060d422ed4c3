"""One batch of a fragment, as data: its input and its outcome.

Problem: several modules process a batch in several steps. Each must know exactly what it
may rely on, and nothing may depend on the order in which modules touch shared state.

Design: two frozen records. `Batch` is the input of the steps, made by the query; `BatchOutcome` is what the
query keeps of a batch that has run. The branches' intermediate result (`BranchResult`) is between the two.

Called by every module of this package that takes part in a batch, and by `spark.repair.rerun_batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from drivetrain.core.channel.channel_log import Segment
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.connector.newest import Newest


@dataclass(frozen=True)
class Batch:
    """The input of one batch.

    `offsets` are the end offsets of the fragment's inputs, in the order of `Trunk.inputs`; `watermark_ms` is
    Spark's during the batch; `clock_ms` is the fragment's clock when the batch begins. `planned_ms` is when
    Spark planned it (monotonic), `query` is Spark's query, which has observed the trunk (None for an engine
    without observation). `may_have_run` means that Spark may have run the batch before, `final` that no
    other batch follows. With `whole` no output may show anything of it if another one's messages cannot be
    computed, and the messages that reach the branches are counted.
    `partitions` is how many partitions Spark's shuffles have in it, None if that is not recorded. `held_rows`
    is how many results of windows the state may add to those of the batch's messages.
    """

    df: DataFrame
    id: int
    clock_ms: int | None
    offsets: tuple[str | None, ...] = ()
    watermark_ms: int = 0
    planned_ms: int = 0
    query: StreamingQuery | None = None
    may_have_run: bool = False
    final: bool = False
    whole: bool = False
    partitions: int | None = None
    held_rows: int = 0


@dataclass(frozen=True)
class BranchResult:
    """The branches' result for a batch.

    `segments` are new segments by channel id: a missing channel already has an entry for the batch.
    `newest` are the largest timestamps, by the processor that assigned them. `counts` are those of the batch,
    without the messages of sinks and dead letters, which are counted when these outputs have them: an output
    skips a batch that it already has. `reached` is how many messages of a whole batch have reached the
    branches; during a handover, those of the new version.
    """

    segments: Mapping[str, list[Segment]] = field(default_factory=dict)
    newest: Mapping[str, Newest] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    reached: int = 0


@dataclass(frozen=True)
class BatchOutcome:
    """The outcome of a batch: its end offsets, and the fragment's clock after it (None: not known yet).

    `counts` are those that the query adds to its own, see `BranchResult`, also for `reached`. `taken` is how
    much of each input the batch read, in the input's unit, and `took_ms` its duration, with its planning.
    """

    batch_id: int
    offsets: tuple[str | None, ...]
    clock_ms: int | None
    counts: Counts = field(default_factory=Counts)
    taken: Mapping[str, int] = field(default_factory=dict)
    took_ms: int = 0
    reached: int = 0

    @property
    def has_input(self) -> bool:
        """Whether the inputs gave the batch something."""
        return any(self.taken.values())


Begun = Callable[[], None]
"""Called before the first output that would write the batch twice if the batch ran again."""


def ignore_begun() -> None:
    """For batches whose outputs skip repeated batches."""
