"""What is asked of a query engine: to compile a fragment, to run it in batches, and to say how far it is.

Problem: what a fragment's query does around its batches (it starts, appends, is saved, dies, is repaired and
goes on) is told apart from Spark's work only if both meet in few places. Then a simulation can put another
engine there, and kill the real query between any two of its effects.

Design: four protocols. `QueryEngine` compiles a fragment and starts its query. `RunningQuery` is that query.
`CompiledBranches` and `BatchFrames` are the messages behind the trunk: what an output is given of a batch.
The other half of the contract is the query's directory, which an engine keeps as Spark does (`offset_log`):

    metadata             written when the query starts for the first time
    offsets/<batch>      what a batch takes, written before the batch is handed over
    commits/<batch>      written after the batch has returned, before the next is planned

Invariants, of an engine:

1. A batch that has offsets and no commit runs again before any other, with the same offsets.
2. One batch of a query is handed over at a time. When it raises, the query ends.
3. After `stop` nothing of the query runs, and nothing is written to its directory.

Called by `fragment_query`, `branches` and `spark.repair.rerun_batch`; implemented by `spark_engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import StructType

from drivetrain.api.graph import Node
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.plan.plan import Fragment, PlannedChannel
from drivetrain.runtime.channel.segments import SEGMENTS
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.batch import Batch
from drivetrain.spark.batch.message_counts import Counts
from drivetrain.spark.connector.newest import Newest
from drivetrain.spark.prepare.compile_context import CompileContext
from drivetrain.spark.prepare.trunk import Trunk

OnBatch: TypeAlias = Callable[[DataFrame, int], None]
"""Takes a batch and its number, in a thread of the engine's."""


class RunningQuery(Protocol):
    """A query that was started; from any thread."""

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        ...

    @property
    def waits_for_data(self) -> bool:
        """Whether no batch runs, and its inputs have nothing new."""
        ...

    @property
    def of_spark(self) -> StreamingQuery | None:
        """Spark's own query, which has observed the trunk; None of an engine that observes nothing there."""
        ...

    def exception(self) -> BaseException | None:
        """What ended it; None while it runs and when it was stopped."""
        ...

    def reports(self) -> Sequence[StreamingQueryProgress]:
        """Its last batches as the engine reports them, oldest first; none if nothing is new since the last
        time. A report comes a moment after the commit of its batch."""
        ...

    def stop(self) -> None:
        """End it, and wait for that; the batch that runs is not committed."""


class BatchFrames(Protocol):
    """What the branches make of one batch."""

    def compute_all(self) -> None:
        """Compute what outputs read, whatever of it they skip: the state must advance."""

    def for_sink(self, node: Node) -> DataFrame:
        """What a sink is given."""
        ...

    def log(self, node: Node) -> None:
        """Write what a `Log` wants to see into the log."""

    def segments(self, channel: PlannedChannel, store: ChannelStore, folder: str = SEGMENTS) -> list[Segment]:
        """What a channel is given, written as new segments, which count once an entry names them."""
        ...

    @property
    def has_letters(self) -> bool:
        """Whether there may be dead letters in the batch."""
        ...

    def letter_segments(self, letters: ChannelStore, number: int, counts: Counts) -> list[Segment]:
        """The dead letters, likewise; `number` is what outputs call the batch, `counts` takes how many."""
        ...

    def counts_emitted(self, id: str) -> bool:
        """Whether the messages of a processor are counted as they pass."""
        ...

    def add_counts(self, counts: Counts) -> None:
        """Add what was counted, once an output was written."""

    def newest(self) -> dict[str, Newest]:
        """The largest timestamps that the batch gave each event time it assigned, by processor."""
        ...


class CompiledBranches(Protocol):
    """The branches of one fragment."""

    def frames(self, batch: Batch) -> AbstractContextManager[BatchFrames]:
        """What they make of a batch; released at the end."""
        ...

    def empty(self) -> DataFrame:
        """A batch of the trunk without messages."""
        ...

    def advance(self, df: DataFrame) -> int:
        """Run a batch for the state alone; how many rows the trunk gave."""
        ...

    def schemas(self) -> dict[str, StructType]:
        """What each channel will carry, by id: analysed, not run."""
        ...


class QueryEngine(Protocol):
    """Compiles and runs the fragments of one application."""

    @property
    def spark(self) -> SparkSession:
        """The session in which Spark's plans are made."""
        ...

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def compile(
        self, context: CompileContext, fragment: Fragment, aside: Path | None = None
    ) -> tuple[Trunk, CompiledBranches]:
        """The trunk and the branches of a fragment.

        With `aside` for a query in that directory, which changes nothing of the fragment's own. Raises the
        error of the operator that cannot be run.
        """
        ...

    def start(self, trunk: Trunk, name: str, checkpoint: Path, on_batch: OnBatch) -> RunningQuery:
        """Start the query of a trunk, or go on from its directory `checkpoint`."""
        ...
