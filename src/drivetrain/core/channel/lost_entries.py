"""Which batches were in the unreadable entries of a channel.

Problem: an entry holds the number of its producer's batch. When the entry itself is damaged or missing, the
number must be derived from the entries around it; otherwise messages would be left out or duplicated.

Design: entries carry the producer's batch ids, which are consecutive: every batch has an entry, even one
without messages, except that a fragment with results only at the end writes none until its last batch.
Between batches there may be entries that only move the clock; they repeat the batch id. So the batches that
the entries around a gap do not account for were in the gap, in order. An entry after the gap without messages
may be a batch or a move of the clock. Its batch is assumed lost if the gap has an entry for it: if it was not
lost, the repaired entry simply has no messages.

Invariants:

1. Every batch with messages that is in no readable entry is placed in a lost one.
2. No batch whose messages are in a readable entry is placed.
3. Placed batches are in ascending order.

Called by layer `spark`, when it repairs lost entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivetrain.core.channel.channel_log import NO_BATCH, Entry
from drivetrain.errors import InternalError


def lost_batches(
    lost: Sequence[int], before: Entry | None, after: Entry | None, committed: int = NO_BATCH
) -> dict[int, int | None]:
    """The batch of each lost entry, by its number; None for an entry that can only have moved the clock.

    `lost` are consecutive numbers, ascending. `before` and `after` are the entries around them: None before
    entry 0, and after the end of the log, where `committed` is the newest batch that the producer's entries
    must reach. Raises InternalError when these are not neighbours.
    """
    _check_neighbours(lost, before, after)
    first = 0 if before is None else before.batch_id + 1
    last = committed if after is None else after.batch_id - 1 if after.segments else after.batch_id
    batches: list[int | None] = list(range(first, last + 1))
    if len(batches) > len(lost) and after is not None and not after.segments:
        batches.pop()  # the gap is too short: the entry after it is that batch itself
    batches = batches[-len(lost) :]  # earlier batches wrote no entry
    batches += [None] * (len(lost) - len(batches))
    return dict(zip(lost, batches, strict=True))


def _check_neighbours(lost: Sequence[int], before: Entry | None, after: Entry | None) -> None:
    first = 0 if before is None else before.number + 1
    if not lost or list(lost) != list(range(first, first + len(lost))):
        raise InternalError(f"lost entries {list(lost)} do not follow entry {first - 1}")
    if after is not None and after.number != lost[-1] + 1:
        raise InternalError(f"entry {after.number} does not follow the lost entries {list(lost)}")
