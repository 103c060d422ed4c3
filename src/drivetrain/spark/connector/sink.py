"""What a sink adapter is given, and what the engine may call on it.

The problem: one batch of a fragment feeds many sinks inside `foreachBatch`, and Spark may run that
batch again after a crash. The engine must not know formats or file systems, and each adapter must
make its own writing idempotent.

Calling order: `validate()` for every sink of the application before anything starts (or `check_fresh()` for
every sink, then `fresh()`, which removes what an earlier run of this application published, then
`validate()`), then `write(df, batch_id)` with batch ids that grow, and repeat only after a crash.

A transactional sink can also do in two steps what `write` does in one: `prepare(df, batch_id)` keeps a batch
durably and unseen, and `publish` (or, of a sink that publishes batch by batch, `commit`) shows it, so that
somebody else may decide when. Those of one group are published in one step: see `publishing`.

Invariants:

1. `validate` changes nothing that a reader of the target can see, and raises `OutputError` with a
   remedy if writing cannot work or would mix with somebody else's data.
2. `write` of a batch id that was already written adds nothing, whatever the rows are now.
3. When `write` raises, nothing of that batch is visible to readers of an exactly-once sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from drivetrain.api.sinks import Guarantee
from drivetrain.core.replay.replay import FIRST_LIFE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from drivetrain.config import Config


@dataclass(frozen=True)
class SinkContext:
    """What the engine gives an adapter.

    `app_id` is the identity that survives restarts of the same application (it decides who owns an
    output directory); `sink_id` is unique in the application and safe in a file name. `state_dir` is
    this sink's own directory next to the checkpoint; it may be deleted only together with it.
    `config` is the application's configuration, for what all sinks of a kind have in common. `life` is the
    number of the application's life: batch ids never come again in a later one (see `core.replay.replay`).
    """

    app_id: str
    sink_id: str
    state_dir: str
    config: Config | None = None
    life: int = FIRST_LIFE


class SinkWriter(Protocol):
    """An opened sink."""

    @property
    def guarantee(self) -> Guarantee:
        """What a reader of the target gets when the run is killed and started again."""
        ...

    def validate(self) -> None:
        """Check the target before anything starts; raises `OutputError`."""
        ...

    def check_fresh(self) -> None:
        """Raise `OutputError` when what was published cannot be removed; changes nothing."""
        ...

    def fresh(self) -> None:
        """Remove what this application published there before, and nothing else."""
        ...

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Write the rows of one batch, in the user's columns, and return how many they were.

        Returns 0 when the batch had been written before. Raises `OutputError` or `DiskFullError`.
        """
        ...


class PreparingSinkWriter(SinkWriter, Protocol):
    """A sink whose batches can wait, through any crash, between being known and being seen.

    4. A prepared batch is published or aborted, by whatever process opens the sink next with the same state.
    """

    def prepare(self, df: DataFrame, batch_id: int) -> int:
        """Keep the rows of a batch durably, unseen; how many they are. Replaces what was prepared before.

        A batch without rows need not be kept. One that was published before is not: 0.
        """
        ...

    def prepared(self) -> list[int]:
        """The batches that wait, growing."""
        ...

    def abort(self, batch_id: int) -> None:
        """Forget a prepared batch; nobody has seen any of it."""
        ...


@runtime_checkable
class TransactionalSinkWriter(PreparingSinkWriter, Protocol):
    """A sink that becomes visible together with all others of its group."""

    @property
    def group(self) -> str:
        """Sinks that say the same are published in one step: one database, one directory, one process."""
        ...

    def publish(
        self, txid: int, last: Mapping[str, int], sinks: Mapping[str, TransactionalSinkWriter]
    ) -> dict[str, int]:
        """Show every prepared batch up to `last` of all `sinks` of the group, itself among them, in one step.

        Both are keyed by sink id; a sink that is not in `last` shows nothing. In the same step it is noted
        per sink how far it has published: batches up to there are skipped ever after, so that publishing
        again does nothing. Safe when two processes do it at once. Returns the rows shown, by sink id.
        """
        ...


@runtime_checkable
class CommittingSinkWriter(PreparingSinkWriter, Protocol):
    """A sink that publishes batch by batch, from the process that prepared them.

    5. `commit` of a batch that was committed does nothing; one of a batch that was never prepared raises.
    """

    def commit(self, batch_id: int) -> int:
        """Publish a prepared batch whole; how many rows that were, 0 if it had been published before."""
        ...


@runtime_checkable
class RollingSinkWriter(SinkWriter, Protocol):
    """A sink whose batches may wait, counted as published, until they are shown in one piece.

    6. What `roll` has not shown yet, it shows in whatever process opens the sink next with the same state.
    """

    def roll(self, released: int | None = None, *, ends: bool = False) -> None:
        """Show what is due of the batches up to `released` (None: all); with `ends` all of them are due."""
        ...
