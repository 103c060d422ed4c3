"""How much of the waiting input the next batch of a fragment takes.

Problem: a batch has a fixed cost, whether it holds one message or a million, so a fragment that lags should
take many at once. But a batch that takes everything may last as long as a slow sink needs, and the fragment
cannot stop, drain or acknowledge in the meantime.

Design: Spark starts a batch as soon as there is input, so a fragment that keeps up has small batches anyway.
This module only limits a batch, to a share of the largest size. The share starts at 1, because a fast
pipeline clears a backlog soonest with full batches. It falls when a batch takes longer than the target, to
what would have fitted into the target. It rises again when batches at the limit take less than the target.
Time in which a batch waited for its subscribers counts: larger batches are useless if the next fragments
cannot keep up.

Invariants, checked by `check()`:

1. The share lies between the floor and the ceiling, which is at most 1.
2. A batch within the target never lowers the share; a batch below its limit never raises it.
3. One measurement raises the share at most fourfold: a short batch is mostly overhead and predicts little
   about a long one.

Called by: `drivetrain.spark.measure.batch_limit`, after each batch.
"""

from __future__ import annotations

from drivetrain.errors import InternalError

GROWTH = 4.0
_HELD_BACK = 0.8  # a batch with this share of its limit is at the limit: it ends with a file or an entry


class BatchSize:
    """The share of the largest batch that the next one may take, at least `floor` and at most `ceiling`;
    `target_ms` is how long a batch should take at most."""

    def __init__(self, floor: float, target_ms: int, ceiling: float = 1.0) -> None:
        self.share = 1.0
        self.limit(floor, target_ms, ceiling)

    def limit(self, floor: float, target_ms: int, ceiling: float = 1.0) -> None:
        """Set the limits, also while batches run; the share changes only as far as they demand."""
        self.ceiling = min(1.0, ceiling)
        self.floor = min(self.ceiling, floor)
        self.target_ms = target_ms
        self.share = self._within(self.share)

    def record(self, share: float, duration_ms: float) -> float:
        """Record the duration of a batch that took `share` of the largest size; returns the new share."""
        if share < 0 or duration_ms < 0:
            raise InternalError(f"a batch took {share} of the largest in {duration_ms} ms")
        fits = share * self.target_ms / max(duration_ms, 1.0)
        if duration_ms > self.target_ms and share > 0:
            self.share = min(self.share, fits)
        elif share >= self.share * _HELD_BACK:
            self.share = min(fits, self.share * GROWTH) if fits > self.share else self.share
        self.share = self._within(self.share)
        return self.share

    def check(self) -> None:
        """Verify invariant 1; raises InternalError."""
        if not self.floor <= self.share <= self.ceiling <= 1:
            limits = f"{self.floor} to {self.ceiling}"
            raise InternalError(f"batch size invariant 1: {self.share} of the largest, not in {limits}")

    def _within(self, share: float) -> float:
        return min(self.ceiling, max(self.floor, share))
