"""The interface of a query engine: it compiles a fragment, runs it in batches, and reports its progress.

Problem: a fragment's query does more than Spark's batches (it starts, appends, is saved, dies, is repaired
and continues). To test that apart from Spark, the two must meet in few places. Then a simulation can use
another engine, and kill the real query between any two of its effects.

Design: four protocols. `QueryEngine` compiles a fragment and starts its query. `RunningQuery` is that query.
`CompiledBranches` and `BatchFrames` are the messages after the trunk: the input of each output in a batch.
The other half of the contract is the query's directory, which an engine keeps as Spark does (`offset_log`):

    metadata             written when the query starts for the first time
    offsets/<batch>      the extent of a batch, written before the batch is passed on
    commits/<batch>      written after the batch has returned, before the next is planned

Invariants of an engine:

1. A batch that has offsets and no commit runs again before any other, with the same offsets.
2. One batch of a query is passed on at a time. When it raises, the query ends.
3. After `stop` nothing of the query runs, and nothing is written to its directory.

Called by `fragment_query`, `branches` and `spark.repair.rerun_batch`; implemented by `spark_engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import StructType

from drivetrain.api.graphs.graph import Node
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
"""Runs a batch, given its DataFrame and number, in one of the engine's threads."""


class RunningQuery(Protocol):
    """A started query; usable from any thread."""

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
        """Spark's own query, which has observed the trunk; None for an engine without observation."""
        ...

    def exception(self) -> BaseException | None:
        """The error that ended it; None while it runs and if it was stopped."""
        ...

    def reports(self, after: int) -> Sequence[StreamingQueryProgress]:
        """The engine's reports of batches after batch `after`, oldest first; none if the engine has reported
        nothing since the last call. A report comes a moment after the commit of its batch."""
        ...

    def stop(self) -> None:
        """End it, and wait for that; the running batch is not committed."""


class BatchFrames(Protocol):
    """The branches' DataFrames for one batch."""

    def compute(self, ids: Set[str] | None = None) -> None:
        """Compute the messages of some processors, before an output shows something.

        None: of all that outputs read, even if they skip some of it: the state must advance.
        """

    def for_sink(self, node: Node) -> DataFrame:
        """The rows for a sink."""
        ...

    def log(self, node: Node) -> None:
        """Write the messages for a `Log` into the log."""

    def segments(self, channel: PlannedChannel, store: ChannelStore, folder: str = SEGMENTS) -> list[Segment]:
        """Write the messages for a channel as new segments, which count once an entry names them."""
        ...

    @property
    def has_letters(self) -> bool:
        """Whether there may be dead letters in the batch."""
        ...

    def letter_segments(self, letters: ChannelStore, number: int, counts: Counts) -> list[Segment]:
        """Write the dead letters likewise. `number` is the batch's number for outputs; how many letters
        there are is added to `counts`."""
        ...

    def counts_emitted(self, id: str) -> bool:
        """Whether the messages of a processor are counted as they pass."""
        ...

    def add_counts(self, counts: Counts) -> None:
        """Add the counts, once an output was written."""

    def reached(self) -> int:
        """How many messages of a whole batch have reached the branches, once an output was written; during a
        handover, those of the new version."""
        ...

    def newest(self) -> dict[str, Newest]:
        """The largest timestamps in the batch, for each event time that it assigned, by processor."""
        ...


class CompiledBranches(Protocol):
    """The branches of one fragment."""

    def frames(self, batch: Batch) -> AbstractContextManager[BatchFrames]:
        """Their DataFrames for a batch; released at the end."""
        ...

    def empty(self) -> DataFrame:
        """A batch of the trunk without messages."""
        ...

    def advance(self, df: DataFrame) -> int:
        """Run a batch only for the state; returns the number of rows from the trunk."""
        ...

    def schemas(self) -> dict[str, StructType]:
        """The schema of each channel, by id: analysed, not run."""
        ...

    def release(self) -> None:
        """Free what functions take that are kept for the next batch. If another one follows, they are created
        again; no batch may be running."""


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

        With `aside` they are for a query in that directory, which does not change the fragment's own
        directory. Raises the error of the operator that cannot be run.
        """
        ...

    def branches(self, context: CompileContext, fragment: Fragment, trunk: Trunk) -> CompiledBranches:
        """Other branches after a trunk that was compiled before, of a version with the same trunk.

        If the context names a version that hands over, they are the branches of both.
        """
        ...

    def divide(self, checkpoint: Path, partitions: int) -> Generator[None, None, None]:
        """Divide the state in a checkpoint that no query uses into other partitions, in steps.

        The checkpoint then has one more batch, committed, with the extent of its last one. Closing the steps
        gives it up, and leaves the checkpoint unusable.
        """
        ...

    def empty_state(self, place: Path, *, changes: bool) -> Path:
        """The file of a state without keys, or (`changes`) of a batch that changed none; below `place`."""
        ...

    def start(self, trunk: Trunk, name: str, checkpoint: Path, on_batch: OnBatch) -> RunningQuery:
        """Start the query of a trunk, or continue from its directory `checkpoint`."""
        ...
