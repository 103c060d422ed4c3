"""Figures about checkpoints: the last one, its duration and size, and recent failures.

Problem: a checkpoint that becomes slow, or fails again and again, must be seen before it is needed.

Design: the coordinator records what happens here; programs that show it read `CheckpointFigures`, which is
data. Only the newest failures are kept, as many as fit a screen.

Invariants:

1. A checkpoint's duration is from the start of PREPARE to the acknowledgement of the last COMMIT; a
   fragment's is from the start of PREPARE to its own acknowledgement of it.
2. No more than `KEPT_FAILURES` failures are kept; all are counted.

Called by `core.checkpoint.coordinator`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from drivetrain.core.checkpoint.transaction import Action, CheckpointRecord, Phase

KEPT_FAILURES: Final = 10


class CheckpointDone(msgspec.Struct, frozen=True):
    """A committed checkpoint; `fragment_ms` is how long each fragment took to prepare.

    `as_of_ms` is the application time of its record.
    """

    txid: int
    as_of_ms: int | None
    started_ms: int
    duration_ms: int
    bytes: int
    fragment_ms: dict[str, int]


class CheckpointFailure(msgspec.Struct, frozen=True):
    """A failed checkpoint; `fragments` are those that failed, or that had not answered in time."""

    txid: int
    action: Action | None
    at_ms: int
    fragments: tuple[str, ...]
    reason: str


class CheckpointFigures(msgspec.Struct, frozen=True):
    """Checkpoints of one application; `running_ms` is the age of the one that is running, if any.

    `interval_ms` is the time between two checkpoints; None: the application makes them only on request.
    `copied_to` is the place to which each is copied before its results are published.
    """

    txid: int
    phase: Phase
    recovering: bool
    running_ms: int | None
    completed: int
    failed: int
    last: CheckpointDone | None
    failures: tuple[CheckpointFailure, ...]
    interval_ms: int | None = None
    copied_to: str | None = None


class CheckpointHistory:
    """Collects `CheckpointFigures`, over the lifetime of one coordinator."""

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.last: CheckpointDone | None = None
        self.failures: Final[deque[CheckpointFailure]] = deque(maxlen=KEPT_FAILURES)
        self.started_ms: int | None = None
        self._fragment_ms: dict[str, int] = {}

    def started(self, now_ms: int) -> None:
        """PREPARE begins."""
        self.started_ms = now_ms
        self._fragment_ms = {}

    def prepared(self, fragment: str, now_ms: int) -> None:
        """A fragment is prepared."""
        if self.started_ms is not None:
            self._fragment_ms.setdefault(fragment, now_ms - self.started_ms)

    def committed(self, record: CheckpointRecord, now_ms: int) -> None:
        """All have committed; a transaction that an earlier coordinator began has no duration."""
        self.completed += 1
        if self.started_ms is not None:
            duration_ms = now_ms - self.started_ms
            self.last = CheckpointDone(
                record.txid,
                record.as_of_ms,
                self.started_ms,
                duration_ms,
                record.bytes,
                self._fragment_ms,
            )
        self.started_ms = None

    def rolled_back(self) -> None:
        """The current one was abandoned."""
        self.started_ms = None

    def failure(self, failure: CheckpointFailure) -> None:
        """Record a failure."""
        self.failed += 1
        self.failures.append(failure)
