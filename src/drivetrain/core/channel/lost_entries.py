"""Which batches were in entries of a channel that cannot be read any more.

Problem: an entry says which batch of its producer it holds. When the entry itself is damaged or missing,
that must be known from the entries around it, or messages would be left out, or made twice.

Design: entries carry the producer's batch ids, which grow one by one: every batch has an entry, also one
without messages, except that a fragment with results at the end only is silent until its last batch.
Between batches there may be entries that only move the clock; they repeat the batch id. So the batches that
the entries around a gap do not account for were in the gap, in order. An entry behind the gap without
messages may be a batch or a move of the clock; then its batch is taken for lost if there is room for it in
the gap: made again it has no messages if it was there already.

Invariants:

1. Every batch with messages that is in no readable entry is placed in a lost one.
2. No batch whose messages are in a readable entry is placed.
3. Placed batches stand in ascending order.

Called by layer `spark`, when it makes lost entries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from drivetrain.core.channel.channel_log import NO_BATCH, Entry
from drivetrain.errors import InternalError


def lost_batches(
    lost: Sequence[int], before: Entry | None, after: Entry | None, committed: int = NO_BATCH
) -> dict[int, int | None]:
    """The batch of each lost entry, by its number; None for one that can only have moved the clock.

    `lost` are neighbouring numbers, ascending. `before` and `after` are the entries around them: None before
    entry 0, and behind the end of the log, where `committed` is the newest batch that the producer's entries
    must reach. Raises InternalError when these are not neighbours.
    """
    _check_neighbours(lost, before, after)
    first = 0 if before is None else before.batch_id + 1
    last = committed if after is None else after.batch_id - 1 if after.segments else after.batch_id
    batches: list[int | None] = list(range(first, last + 1))
    if len(batches) > len(lost) and after is not None and not after.segments:
        batches.pop()  # no room: the entry behind is that batch itself
    batches = batches[-len(lost) :]  # what came before was silent
    batches += [None] * (len(lost) - len(batches))
    return dict(zip(lost, batches, strict=True))


def _check_neighbours(lost: Sequence[int], before: Entry | None, after: Entry | None) -> None:
    first = 0 if before is None else before.number + 1
    if not lost or list(lost) != list(range(first, first + len(lost))):
        raise InternalError(f"lost entries {list(lost)} do not follow entry {first - 1}")
    if after is not None and after.number != lost[-1] + 1:
        raise InternalError(f"entry {after.number} does not follow the lost entries {list(lost)}")
