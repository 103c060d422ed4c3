"""How much of what waits the next batch of a fragment takes.

Problem: a batch costs the same whether it holds one message or a million, so a fragment that lags should
take much at once; but a batch that holds everything that waits takes as long as a slow sink likes, and
nothing stops, drains or acknowledges in between.

Design: Spark begins a batch as soon as there is anything, so whoever keeps up has small batches at once,
without our doing. What is decided here is the most that a batch may take, as a share of its largest size.
It starts at the whole, since a backlog on a fast pipeline is done soonest in full batches, and comes down
by measurement alone: a batch that took longer than the target says how much the target has time for. It
grows again when batches that were held back by it take less than the target. Time in which a batch waited
for its subscribers counts: there is no use in making more in one go than those behind can take.

Invariants, checked by `check()`:

1. The share lies between the floor and 1.
2. A batch that kept within the target never lowers it; one that was not held back by it never raises it.
3. One measurement raises it at most fourfold: a short batch is mostly overhead and says little of a long
   one.

Called by: `drivetrain.spark.batch.batch_limit`, after each batch.
"""

from __future__ import annotations

from drivetrain.errors import InternalError

GROWTH = 4.0
_HELD_BACK = 0.8  # of its limit: what a batch takes is cut at the border of a file or an entry


class BatchSize:
    """The share of the largest batch that the next one may take; `floor` is the least share, `target_ms` how
    long a batch should take at most."""

    def __init__(self, floor: float, target_ms: int) -> None:
        self.floor = min(1.0, floor)
        self.target_ms = target_ms
        self.share = 1.0

    def took(self, share: float, duration_ms: float) -> float:
        """A batch took that share of the largest (the most of any input); returns the new share."""
        if share < 0 or duration_ms < 0:
            raise InternalError(f"a batch took {share} of the largest in {duration_ms} ms")
        fits = share * self.target_ms / max(duration_ms, 1.0)
        if duration_ms > self.target_ms and share > 0:
            self.share = min(self.share, fits)
        elif share >= self.share * _HELD_BACK:
            self.share = min(fits, self.share * GROWTH) if fits > self.share else self.share
        self.share = min(1.0, max(self.floor, self.share))
        return self.share

    def check(self) -> None:
        """Verify invariant 1; raises InternalError."""
        if not self.floor <= self.share <= 1:
            raise InternalError(f"batch size invariant 1: {self.share} of the largest, at least {self.floor}")
