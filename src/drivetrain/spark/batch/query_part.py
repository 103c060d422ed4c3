"""The interface of a query's part in checkpoints."""

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
