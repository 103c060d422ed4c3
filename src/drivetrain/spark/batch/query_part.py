"""The interfaces of a query's companions: one takes part in checkpoints, one samples late messages."""

from __future__ import annotations

from typing import Protocol


class CheckpointPart(Protocol):
    """The part of one fragment's query in checkpoints; `spark.checkpoints.participation` implements it."""

    def start(self) -> None:
        """The query has started: take part from now on."""

    def ran(self) -> None:
        """The query has run a batch, or its clock has moved."""

    def close(self) -> None:
        """Stop taking part; waits for a running step."""


class LatePart(Protocol):
    """Looks at the late messages of one fragment; `spark.repair.late_sampler` implements it."""

    def note(self, batch_id: int) -> None:
        """A batch had late messages."""

    def look(self) -> None:
        """Look at the newest committed batch with late messages, if it is time; does not wait for that."""

    def is_settled(self, *, is_reported: bool) -> bool:
        """Whether the fragment may end; `is_reported`: Spark has reported its last batch."""
        ...

    def oldest_needed(self, newest: int) -> int:
        """The oldest batch whose input must be there, if `newest` is the newest that is committed."""
        ...

    def stop(self) -> None:
        """End a look that runs, and begin no other."""
