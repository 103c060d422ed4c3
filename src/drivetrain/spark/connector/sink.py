"""The interface of a sink adapter: its context, and the methods that the engine calls.

The problem: one batch of a fragment feeds many sinks inside `foreachBatch`, and Spark may run that
batch again after a crash. The engine must not know formats or file systems, and each adapter must
make its own writes idempotent.

Calling order: `validate()` for every sink of the application before anything starts (or `check_fresh()` for
every sink, then `fresh()`, which removes what an earlier run of this application published, then
`validate()`), then `write(df, batch_id)` with increasing batch ids, which repeat only after a crash.

A transactional sink can also do in two steps what `write` does in one: `prepare(df, batch_id)` keeps a batch
durably and invisibly, and `publish` (or `commit`, for a sink that publishes batch by batch) shows it, so that
the coordinator can decide when. Sinks of one group are published in one step: see `publishing`.

Invariants:

1. `validate` changes nothing that a reader of the target can see, and raises `OutputError` with a
   remedy if writing cannot work or would mix with data of others.
2. `write` of a batch id that was already written adds nothing, whatever the rows are now.
3. When `write` raises, nothing of that batch is visible to readers of an exactly-once sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from drivetrain.api.sinks import Guarantee
from drivetrain.core.replay.replay import FIRST_LIFE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from drivetrain.config import Config


def _is_alone() -> None:
    """No other process can have the sink."""


@dataclass(frozen=True)
class SinkContext:
    """The context that the engine passes to an adapter.

    `app_id` is the identity that survives restarts of the same application (it decides who owns an
    output directory); `sink_id` is unique in the application and safe in a file name. `state_dir` is
    this sink's own directory next to the checkpoint; it may be deleted only together with it.
    `config` is the application's configuration, for settings that all sinks of a kind share. `life` is the
    number of the application's life: batch ids are never reused in a later one (see `core.replay.replay`).
    `require_own` raises LostLockError if another process runs the sink's fragment by now: call it just before
    something becomes visible, if another process could do that, too.
    `claim` is the name of the claim of this process to the application's copied checkpoints (see
    `runtime.checkpoints.claim_file`), "" if they are not copied.
    """

    app_id: str
    sink_id: str
    state_dir: str
    config: Config | None = None
    life: int = FIRST_LIFE
    claim: str = ""
    require_own: Callable[[], None] = _is_alone


class SinkWriter(Protocol):
    """An opened sink."""

    @property
    def guarantee(self) -> Guarantee:
        """The delivery that a reader of the target gets when the run is killed and restarted."""
        ...

    def validate(self) -> None:
        """Check the target before anything starts; raises `OutputError`."""
        ...

    def check_fresh(self) -> None:
        """Raise `OutputError` when published data cannot be removed; changes nothing."""
        ...

    def fresh(self) -> None:
        """Remove what this application published there before, and nothing else."""
        ...

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Write the rows of one batch, in the user's columns, and return their number.

        Returns 0 when the batch had been written before. Raises `OutputError` or `DiskFullError`.
        """
        ...


@runtime_checkable
class ComputingSinkWriter(SinkWriter, Protocol):
    """A sink that may show a batch twice, but computes all of its rows before it shows any."""

    computes_first: Literal[True]


@runtime_checkable
class NumberedSinkWriter(SinkWriter, Protocol):
    """A sink whose target shows which batches it has."""

    def newest(self) -> int:
        """The number of the newest batch that the target has; a negative number if it has none."""
        ...


def shows_whole_batches(sink: SinkWriter) -> bool:
    """Whether readers get nothing of a batch whose rows cannot all be computed."""
    return sink.guarantee == "exactly once" or isinstance(sink, ComputingSinkWriter)


class PreparingSinkWriter(SinkWriter, Protocol):
    """A sink whose prepared batches can wait, through any crash, until they become visible.

    4. A prepared batch is published or aborted, by whatever process opens the sink next with the same state.
    """

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch durably, unseen; returns their number. Replaces an earlier try.

        A batch without rows need not be kept. A batch that was published before is not kept: returns 0.
        """
        ...

    def prepared(self) -> list[int]:
        """The prepared batches, in increasing order."""
        ...

    def abort(self, batch_id: int) -> None:
        """Drop a prepared batch; no reader has seen any of it."""
        ...


@runtime_checkable
class TransactionalSinkWriter(PreparingSinkWriter, Protocol):
    """A sink that becomes visible together with all others of its group."""

    @property
    def group(self) -> str:
        """Sinks with the same group are published in one step: one database, one directory, one process."""
        ...

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Show every prepared batch up to `last` of all `sinks` of the group, itself included, in one step.

        Both are keyed by sink id; a sink that is not in `last` shows nothing. The same step records per sink
        how far it has published: batches up to there are skipped from then on, so publishing again does
        nothing. Safe when two processes do it at once. Returns the rows shown, by sink id.
        """
        ...


@runtime_checkable
class CommittingSinkWriter(PreparingSinkWriter, Protocol):
    """A sink that publishes batch by batch, from the process that prepared them.

    5. `commit` of a committed batch does nothing; of a batch that was never prepared, it raises.
    """

    def commit(self, batch_id: int) -> int:
        """Publish a whole prepared batch; returns its number of rows, 0 if it had been published before."""
        ...


@runtime_checkable
class RollingSinkWriter(SinkWriter, Protocol):
    """A sink that may collect batches, which count as published, and show them together.

    6. Batches that `roll` has not shown yet are shown by the next process that opens the sink with the same
       state.
    """

    def roll(self, released: int | None = None, *, ends: bool = False) -> None:
        """Show the due batches among those up to `released` (None: all); with `ends` all of them are due."""
        ...


@runtime_checkable
class ClaimingSinkWriter(SinkWriter, Protocol):
    """A sink whose prepared batches can be reached by other processes, which may believe that they run its
    application.

    7. After `succeed` nothing counts that a former process prepares or publishes, even if it still runs.
    """

    def claimed(self, claim: str) -> None:
        """This process, with its own state, runs the application under this claim from now on."""
        ...

    def succeed(self, claim: str, last: int | None, *, is_copied: bool) -> None:
        """This process continues what a former one has prepared up to its batch `last` (None: nothing of it).

        With `is_copied` it has that from a copied checkpoint, otherwise from a savepoint.
        """
        ...
