"""How much a channel keeps, and when it is full.

Problem: a channel's entries are deleted only when all subscribers have passed them, because losing messages
is no way to save space. So a stopped subscriber would fill the disk, or leave its producer accumulating
results that are too old to be useful by the time they are read.

Design: a record of the retained entries, with their sizes and when they were appended. A channel is full when
it keeps as many bytes as it may, or when its oldest unread entry is older than it may be; its producer must
then wait, or fail. A channel is never full when everything in it has been read: the entries that are left are
kept for repairs and checkpoints, and waiting for the subscriber would free nothing. Barriers do not count as
unread: a subscriber takes them together with the entry after them.

Invariants, checked by `check()`:

1. The bytes kept are those of the entries from `start` to `end`.
2. A channel in which everything but barriers is acknowledged is not full.

Called by: `drivetrain.spark.flow.flow_book`, for the producer of each channel.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass

from drivetrain.errors import InternalError


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a channel keeps, in bytes, and the largest age in ms of unread entries; 0: no limit."""

    bytes: int = 0
    age_ms: int = 0


class Retention:
    """The retained entries of one channel; `start` is the number of the first entry that will be added."""

    def __init__(self, limits: Limits, start: int = 0) -> None:
        self.limits = limits
        self.kept_bytes = 0
        # Size, when it was appended, whether it is a barrier.
        self._entries: deque[tuple[int, int, bool]] = deque()
        self._start = start

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._start + len(self._entries)

    def added(self, size_bytes: int, appended_ms: int, *, is_barrier: bool = False) -> None:
        """Entry `end` was appended."""
        self._entries.append((size_bytes, appended_ms, is_barrier))
        self.kept_bytes += size_bytes

    def trimmed(self, start: int) -> None:
        """The entries below `start` are deleted."""
        if start > self.end:
            raise InternalError(f"entries up to {start} were trimmed, {self.end} exist")
        while self._start < start:
            self.kept_bytes -= self._entries.popleft()[0]
            self._start += 1

    def excess(self, position: int, now_ms: int) -> str | None:
        """Why the channel is full for a subscriber at `position`, as a phrase; None when it is not full."""
        unread = itertools.islice(self._entries, max(0, position - self._start), None)
        oldest_ms = next((appended_ms for _, appended_ms, is_barrier in unread if not is_barrier), None)
        if oldest_ms is None:
            return None
        if self.limits.bytes and self.kept_bytes >= self.limits.bytes:
            return f"{self.kept_bytes} bytes"
        if self.limits.age_ms and now_ms - oldest_ms >= self.limits.age_ms:
            return f"a batch that has been unread for {now_ms - oldest_ms} ms"
        return None

    def check(self) -> None:
        """Verify the invariants; raises InternalError."""
        if self.kept_bytes != sum(size for size, _, _ in self._entries):
            raise InternalError(f"retention invariant 1: {self.kept_bytes} bytes are not the entries'")
        if self.excess(self.end, 1 << 62) is not None:
            raise InternalError("retention invariant 2: a channel that is read is full")
