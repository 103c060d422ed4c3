"""How much of a channel its subscriber has not read yet, and how much the channel keeps.

Problem: lag is queried several times a second, for channels that may hold a hundred thousand entries. Reading
or summing them each time would cost more than the work being observed.

Design: running sums. Every entry is added once, passed once and trimmed once; reading the sums costs nothing.

Invariants, verified by `check`:

1. Start ≤ position ≤ end; none of them moves back.
2. `lag_rows` and `lag_bytes` are the sums over the entries from the position on, `kept_bytes` that over all
   retained ones.

Called by `spark.channel.backlog`, from the thread that polls a fragment.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from drivetrain.errors import InternalError


class EntrySize(NamedTuple):
    """The sizes of an entry; `newest_ms` is its largest timestamp, None without messages."""

    rows: int
    bytes: int
    newest_ms: int | None


class ChannelLag:
    """The lag of one subscriber on one channel; `start` is the number of the oldest retained entry."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.position = start
        self.lag_rows = 0
        self.lag_bytes = 0
        self.kept_bytes = 0
        self.newest_ms: int | None = None
        """The largest known timestamp in the channel."""
        self.newest_taken_ms: int | None = None
        """The largest timestamp below the position."""
        self._passed: Final[deque[EntrySize]] = deque()
        self._waiting: Final[deque[EntrySize]] = deque()

    @property
    def end(self) -> int:
        """The number of the entry that is added next."""
        return self.position + len(self._waiting)

    def add(self, size: EntrySize) -> None:
        """Add entry `end`. Raises InternalError for a negative size."""
        if size.rows < 0 or size.bytes < 0:
            raise InternalError(f"entry {self.end} has a negative size: {size}")
        self._waiting.append(size)
        self.lag_rows += size.rows
        self.lag_bytes += size.bytes
        self.kept_bytes += size.bytes
        self.newest_ms = _later(self.newest_ms, size.newest_ms)

    def take(self, position: int) -> None:
        """The subscriber has read the entries below `position`; a position that it had already passed changes
        nothing.

        Raises InternalError for a position beyond the end.
        """
        if position > self.end:
            raise InternalError(f"a subscriber is at entry {position} of a channel with {self.end}")
        while self.position < position:
            size = self._waiting.popleft()
            self._passed.append(size)
            self.position += 1
            self.lag_rows -= size.rows
            self.lag_bytes -= size.bytes
            self.newest_taken_ms = _later(self.newest_taken_ms, size.newest_ms)

    def trim(self, start: int) -> None:
        """The entries below `start` are deleted, whether or not they were read, or even added here."""
        while self.start < start and self._passed:
            self.kept_bytes -= self._passed.popleft().bytes
            self.start += 1
        while self.start < start and self._waiting:
            size = self._waiting.popleft()
            self.lag_rows -= size.rows
            self.lag_bytes -= size.bytes
            self.kept_bytes -= size.bytes
            self.start += 1
            self.position += 1
        if self.start < start:
            self.start = self.position = start

    def check(self) -> None:
        """Raise InternalError when an invariant of the module does not hold."""
        if self.start + len(self._passed) != self.position:
            raise InternalError(
                f"{len(self._passed)} entries from {self.start} on do not end at {self.position}"
            )
        sums = (sum(s.rows for s in self._waiting), sum(s.bytes for s in self._waiting))
        kept = sums[1] + sum(s.bytes for s in self._passed)
        if (*sums, kept) != (self.lag_rows, self.lag_bytes, self.kept_bytes):
            raise InternalError(f"the sums of a channel are wrong: expected {(*sums, kept)}")


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
