"""Which offset a replay from a timestamp begins at, of partitions whose messages are in any order.

Problem: a log's own index knows the log's timestamps; an application's timestamps are in its messages, and
may have nothing to do with those. A replay from T must miss no message at or after T, however disordered the
partition is, and should not read it from its beginning.

Design: a step (offset, ms) says that every message of the partition below that offset is not newer than ms.
Each batch gives one: its end, with the largest timestamp so far. A replay from T begins at the last step that
is older than T, or where the partition begins. Steps that say nothing more than their successor are
left out, so a partition that is hardly disordered has one step for each batch, and a constant one has one.
When there are too many, every second of the older half goes: replays from long ago begin a little earlier.

Batches come again, and replays run over offsets that are known: what is covered is left as it is. What was
never told about, because whoever should have told died with it, may hold any timestamp: from there on nothing
is older than anything (`UNKNOWN_MS`), until a later life runs over the gap.

Invariants:

1. Steps rise strictly, in offset and in ms, and none is at or before its partition's begin.
2. Of the messages that were told of from the begin on, none below a step is newer than its ms.
3. A partition has at most `limit` steps, and the newest step is what was told of last.

Called by `connectors.kafka.batch_index`. Source: the timestamp index of Apache Kafka's log; the offset store
of Apache Gearpump's Kafka source.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drivetrain.errors import InternalError

NOTHING_MS = -(2**63)
"""Older than every timestamp: of messages without one."""
UNKNOWN_MS = 2**63 - 1
"""Newer than every timestamp: of messages of which nobody knows."""

Partition = tuple[str, int]
"""Topic and number."""


@dataclass
class Steps:
    """What is known of one partition from offset `begin` on: `steps` of (offset, ms), see the module."""

    begin: int
    steps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """The offset behind the last message that was told of."""
        return self.steps[-1][0] if self.steps else self.begin


class OffsetIndex:
    """The steps of all partitions; `limit` (4 or more) is how many each may have."""

    def __init__(self, limit: int = 256) -> None:
        if limit < 4:
            raise InternalError(f"an index of {limit} steps cannot be halved")
        self.limit = limit
        self.partitions: dict[Partition, Steps] = {}

    def begin(self, partition: Partition, offset: int) -> None:
        """Messages from `offset` on are the application's; nothing changes for a partition that is known."""
        if offset < 0:
            raise InternalError(f"not an offset: {offset}")
        self.partitions.setdefault(partition, Steps(offset))

    def forget(self, topic: str) -> None:
        """The topic is another one: nothing is known of it."""
        self.partitions = {p: steps for p, steps in self.partitions.items() if p[0] != topic}

    def took(self, partition: Partition, start: int, end: int, newest_ms: int | None) -> bool:
        """The messages from `start` up to `end` (exclusive) are not newer than `newest_ms`.

        None stands for messages without timestamp. Returns whether that was news.
        """
        if not 0 <= start <= end:
            raise InternalError(f"no range of offsets: {start} to {end}")
        known = self.partitions.setdefault(partition, Steps(start))
        if len(known.steps) and known.steps[-1][1] == UNKNOWN_MS:
            sure = known.steps[-2][0] if len(known.steps) > 1 else known.begin
            if start <= sure < end:
                known.steps.pop()  # a later life runs over what was missed
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
        """Verify invariants 1 and 3; raises InternalError. (2 speaks of messages that are not kept here.)"""
        for partition, known in self.partitions.items():
            before = (known.begin, NOTHING_MS - 1)
            for step in known.steps:
                if step[0] <= before[0] or step[1] <= before[1]:
                    raise InternalError(f"offset index invariant 1: {partition}: {step} behind {before}")
                before = step
            if len(known.steps) > self.limit:
                raise InternalError(f"offset index invariant 3: {partition}: {len(known.steps)} steps")
