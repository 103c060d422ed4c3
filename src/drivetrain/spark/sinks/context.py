"""What a sink adapter is given, and what the engine may call on it.

The problem: one batch of a fragment feeds many sinks inside `foreachBatch`, and Spark may run that
batch again after a crash. The engine must not know formats or file systems, and each adapter must
make its own writing idempotent.

Calling order: `validate()` for every sink of the application before anything starts (or `fresh()`,
which removes what an earlier run of this application published, then `validate()`), then `write(df,
batch_id)` with batch ids that grow, and repeat only after a crash.

Invariants:

1. `validate` changes nothing that a reader of the target can see, and raises `OutputError` with a
   remedy if writing cannot work or would mix with somebody else's data.
2. `write` of a batch id that was already written adds nothing, whatever the rows are now.
3. When `write` raises, nothing of that batch is visible to readers of an exactly-once sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from drivetrain.api.sinks import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SinkContext:
    """What the engine gives an adapter.

    `app_id` is the identity that survives restarts of the same application (it decides who owns an
    output directory); `sink_id` is unique in the application and safe in a file name. `state_dir` is
    this sink's own directory next to the checkpoint; it may be deleted only together with it.
    """

    app_id: str
    sink_id: str
    state_dir: str


class SinkWriter(Protocol):
    """An opened sink."""

    @property
    def guarantee(self) -> Guarantee:
        """What a reader of the target gets when the run is killed and started again."""
        ...

    def validate(self) -> None:
        """Check the target before anything starts; raises `OutputError`."""
        ...

    def fresh(self) -> None:
        """Remove what this application published there before, and nothing else."""
        ...

    def write(self, df: DataFrame, batch_id: int) -> int:
        """Write the rows of one batch, in the user's columns, and return how many they were.

        Returns 0 when the batch had been written before. Raises `OutputError` or `DiskFullError`.
        """
        ...
