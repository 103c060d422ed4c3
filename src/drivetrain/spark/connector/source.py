"""The interface of an opened source, and the context in which a connector opens it.

The problem: the engine must start, limit, replay, watch and end every source in the same way, and
know nothing of files, formats or generators. So a connector gets a `SourceContext` and returns an
`OpenedSource`: a streaming DataFrame, and methods that the engine calls before, during and after a batch.

How the engine uses an `OpenedSource`:

- `df` has the user's columns, in order. If `bad_column` is set, one more column of that name: null on
  rows that were read, else a struct `(raw string, file string, line long, error string)` on a row
  whose data columns are all null. The engine splits these off to the dead letters. It is set only
  under the policy `dead_letter`; under `fail` a bad record fails the query with an `InputError`
  that `spark.session.spark_errors` restores from Spark's report.
- `position(offset)` translates Spark's end offset of the source (the JSON in a query's progress) into
  the amount taken, for the progress bar, and into whether a bounded source has ended. If the unit
  is rows, count messages by position: Spark's `numInputRows` of a generator counts ranges of rows.
- Both triggers work: `availableNow` ends without help; with `processingTime` the engine stops the query
  when `position(...).finished` is true and the batch is committed.

Invariants:

1. Opening twice with the same context (after a crash) gives a source that replays every batch of the
   checkpoint with exactly the same rows as before.
2. `state_dir` holds everything that replaying needs besides Spark's checkpoint; deleting both starts over.
3. One batch takes at most `max_batch_bytes` of input (or the smallest unit that cannot be divided),
   and at most `max_batch_rows` rows where rows can be counted before they are read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from drivetrain.errors import UserError
from drivetrain.runtime.channel.columns import BAD, BAD_TYPE
from drivetrain.runtime.objects.settings import StoreSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from drivetrain.errors import DrivetrainError
    from drivetrain.spark.connector.newest import Newest
    from drivetrain.spark.connector.reduction import Reduction

BAD_COLUMN = BAD
BAD_COLUMN_TYPE = BAD_TYPE

DEFAULT_MAX_BATCH_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class SourceContext:
    """The context in which a connector opens a source.

    `state_dir` is this source's own directory next to the query's checkpoint (kept and deleted with
    it). `source_id` names the source in messages and files. `max_batch_bytes` and `max_batch_rows`
    limit what one batch takes.
    """

    spark: SparkSession
    state_dir: str
    app_id: str
    source_id: str
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    max_batch_rows: int | None = None
    limit_path: str | None = None
    """The file with the share of these limits that the next batch may take; see
    `spark.measure.batch_limit`."""
    spark_log: str | None = None
    """Where Spark keeps its own log of the files taken, if Spark reads them: in the query's checkpoint."""
    kafka_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of Kafka's clients for all sources, from the configuration; may contain secrets."""
    stores: StoreSettings = field(default_factory=StoreSettings)
    """How object stores are reached, from the configuration."""
    replay_from_ms: int | None = None
    """A query without a checkpoint may skip messages from before this time. None: it begins at the oldest."""
    replay_column: str | None = None
    """The source's own column with a message's timestamp; None: the timestamp comes from elsewhere."""
    lasting_dir: str | None = None
    """This source's own directory for all lives of the application; None: it has none."""
    timed: bool = True
    """Whether its messages get an event time: without one, partitions need no clocks."""
    realtime: bool = False
    """Whether it is read in Spark's real-time mode, which cannot limit a batch."""
    reduction: Reduction | None = None
    """What is asked for in place of messages, if the source `has_end_row` and can reduce them."""


@dataclass(frozen=True)
class Position:
    """How far a source has been taken: `done` of `total` (None: no end known), in the source's unit."""

    done: int
    total: int | None
    finished: bool


class OpenedSource(ABC):
    """A source that is ready to run: a subclass per connector; see the module's docstring.

    A subclass sets `df`, `bounded` and `total`, and overrides the methods that it needs. The engine calls
    `check`, `ran` and `committed` in the thread that runs batches, `position` and `lost` in any thread.
    """

    reader: ClassVar[str] = "connector"
    """A short name of the way of reading."""
    how_read: ClassVar[str] = "read by a connector"
    """The way of reading as text, for the printed plan."""
    limited_by: ClassVar[Literal["bytes", "rows"] | None] = None
    """The unit of the limit that it observes for each batch; None: it does not follow `limit_path`."""
    unit: ClassVar[Literal["bytes", "rows"]] = "rows"
    """The unit of `position`."""

    df: DataFrame
    bounded: bool
    total: int | None = None
    """How much there is to read, in `unit`; None: unknown, or without end."""
    bad_column: str | None = None
    """The column that holds records that could not be read (`BAD_COLUMN`), if there is one."""
    reads_columns: bool = False
    """Whether Spark reads `df` from files, and only those columns that are used."""
    has_end_row: bool = False
    """Whether the batch that reaches the end has one more row, which marks the end."""
    partitions: int = 0
    """How many partitions with their own clocks are known at opening; their dense numbers are in the
    column `PART`, and partitions that are found later get the next ones. 0: the source has no such column."""
    idle_ms: int | None = None
    """After how long without a message the clock ignores a partition; None: never."""

    def reduced(self, reduction: Reduction) -> DataFrame | None:
        """A stream of partial results in place of messages, with the columns of `reduction`; None if the
        source delivers messages only.

        It has the offsets of `df`, and if `has_end_row` a last row like `df`: with 0 `ROWS` and the final
        `WM`.
        """
        return None

    @abstractmethod
    def position(self, offset: str | None) -> Position:
        """How far the source has been read at Spark's end offset (JSON; None: at the beginning)."""

    def check(self, offset: str | None) -> None:  # noqa: B027 - optional
        """Raise `InputError` when the input of the batch that ends at `offset` has changed.

        Called before each batch.
        """

    def ran(self, before: str | None, offset: str | None, newest: Newest | None) -> None:  # noqa: B027 - optional
        """Note a batch that ran and is not committed yet.

        It goes from the end offset of the batch before, `before`, to `offset`; `newest` has the largest
        timestamps of its messages (None: unknown).
        """

    def committed(self, offset: str | None) -> None:  # noqa: B027 - optional
        """Note that a batch was committed, with its end offset; of several batches perhaps only the last."""

    def explain(self, text: str) -> DrivetrainError | None:
        """The error for Spark's report `text` about a failed batch; None if another part is the cause."""
        return None

    def messages(self, before: str | None, offset: str | None) -> int:
        """The messages between two of Spark's end offsets, if it `reads_columns` and has no end row.

        From any thread.
        """
        return 0

    def taken_of_partitions(self, before: str | None, offset: str | None) -> Mapping[int, int]:
        """The messages between two of Spark's end offsets by the number of their partition (`PART`).

        Empty for a source without partitions, or one that does not count them. From any thread.
        """
        return {}

    def lost(self) -> int:
        """How many messages were gone before they were read, if the user accepts that."""
        return 0

    def history_start(self, from_ms: int, end: str) -> str | None:
        """Spark's offset before every message that may be at or after `from_ms`; None: before all messages.

        It is not after `end`. Raises `UserError` when some of them are gone, or the source cannot be read
        twice.
        """
        raise UserError(
            "messages that were read cannot be read again from this source",
            where=str(from_ms),
            expected="files, a Kafka topic, a generator, or a source that is stored first",
            remedy="leave --history out: the new fragment then begins with the next message",
        )

    def history_part(self, start: str | None, end: str, fraction: float) -> str:
        """The end offset of a part that begins at `start`: at most a `fraction` of a batch, up to `end`."""
        return end

    def close(self) -> None:  # noqa: B027 - optional
        """Release connections; called when the query has ended. Later calls may open them again."""
