"""The offset at which a replay from a timestamp begins, for partitions whose messages are in any order.

Problem: a log's own index knows the log's timestamps; an application's timestamps are in its messages, and
may be unrelated. A replay from T must miss no message at or after T, however disordered the partition is, and
should not read the partition from its beginning.

Design: a step (offset, ms) means that no message of the partition below that offset is newer than ms. Each
batch adds one: its end, with the largest timestamp so far. A replay from T begins at the last step that is
older than T, or where the partition begins. Steps that add nothing to their successor are left out, so a
partition with little disorder has one step per batch, and one with constant timestamps has one. When there
are too many steps, every second one of the older half is dropped: replays from long ago then begin a little
earlier.

Batches may run again, and replays run over known offsets: ranges that are covered stay unchanged. A range
that was never recorded, because the process died before it could, may hold any timestamp: from there on no
step is older than any T (`UNKNOWN_MS`), until a later life runs over the gap.

Invariants:

1. Steps rise strictly, in offset and in ms, and none is at or before its partition's begin.
2. Of the recorded messages from the beginning on, none below a step is newer than its ms.
3. A partition has at most `limit` steps, and the newest step is the last one recorded.

Called by `connectors.kafka.batch_index`. Source: the timestamp index of Apache Kafka's log; the offset store
of Apache Gearpump's Kafka source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drivetrain.errors import InternalError

NOTHING_MS = -(2**63)
"""Older than every timestamp: for messages without one."""
UNKNOWN_MS = 2**63 - 1
"""Newer than every timestamp: for messages that were not recorded."""

Partition = tuple[str, int]
"""Topic and number."""


@dataclass
class Steps:
    """The index of one partition from offset `begin` on: `steps` of (offset, ms), see the module."""

    begin: int
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset after the last recorded message."""
        return self.steps[-1][0] if self.steps else self.begin


class OffsetIndex:
    """The steps of all partitions; `limit` (4 or more) is how many each may have."""

    def __init__(self, limit: int = 256) -> None:
        if limit < 4:
            raise InternalError(f"an index of {limit} steps cannot be halved")
        self.limit = limit
        self.partitions: dict[Partition, Steps] = {}

    def begin(self, partition: Partition, offset: int) -> None:
        """Messages from `offset` on are the application's; nothing changes for a known partition."""
        if offset < 0:
            raise InternalError(f"not an offset: {offset}")
        self.partitions.setdefault(partition, Steps(offset))

    def forget(self, topic: str) -> None:
        """The topic was replaced by another of the same name: drop its steps."""
        self.partitions = {p: steps for p, steps in self.partitions.items() if p[0] != topic}

    def record(self, partition: Partition, start: int, end: int, newest_ms: int | None) -> bool:
        """Record that the messages from `start` up to `end` (exclusive) are not newer than `newest_ms`.

        None stands for messages without timestamp. Returns whether anything changed.
        """
        if not 0 <= start <= end:
            raise InternalError(f"no range of offsets: {start} to {end}")
        known = self.partitions.setdefault(partition, Steps(start))
        if len(known.steps) and known.steps[-1][1] == UNKNOWN_MS:
            sure = known.steps[-2][0] if len(known.steps) > 1 else known.begin
            if start <= sure < end:
                known.steps.pop()  # a later life runs over the gap
        if end <= known.end:
            return False
        ms = UNKNOWN_MS if start > known.end else (NOTHING_MS if newest_ms is None else newest_ms)
        if known.steps and known.steps[-1][1] >= ms:
            ms = known.steps.pop()[1]
        known.steps.append((end, ms))
        if len(known.steps) > self.limit:
            half = len(known.steps) // 2
            known.steps = known.steps[1:half:2] + known.steps[half:]
        return True

    def start(self, partition: Partition, from_ms: int) -> int | None:
        """The offset below which no message is at or after `from_ms`; None for an unknown partition."""
        known = self.partitions.get(partition)
        if known is None:
            return None
        older = [offset for offset, ms in known.steps if ms < from_ms]
        return older[-1] if older else known.begin

    def check(self) -> None:
        """Verify invariants 1 and 3; raises InternalError. (2 is about messages that are not kept here.)"""
        for partition, known in self.partitions.items():
            before = (known.begin, NOTHING_MS - 1)
            for step in known.steps:
                if step[0] <= before[0] or step[1] <= before[1]:
                    raise InternalError(f"offset index invariant 1: {partition}: {step} behind {before}")
                before = step
            if len(known.steps) > self.limit:
                raise InternalError(f"offset index invariant 3: {partition}: {len(known.steps)} steps")
