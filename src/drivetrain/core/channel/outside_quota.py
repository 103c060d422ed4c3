"""How much a channel keeps for another application that reads it, and what its producer does then.

Problem: another application may be slow, stopped or gone. Its producer must not lose its messages, nor stand
still at once when the other one restarts, nor fill the disk.

Design: an account of the entries that the reader has not passed, by the numbers and sizes of the log. The
reader also announces the position at which its planned batch ends. Without an age limit, the producer waits
when the unread entries take `keep_bytes`. With one, it never waits: it drops entries that are older than
that, and the oldest ones while more than `keep_bytes` are unread. It never drops an entry of a batch that is
planned: the reader may have shown a part of it.

Invariants, checked by `check()`:

1. Entries are added in order, and passed in order; an entry is dropped at most once.
2. Nothing below the planned position is dropped.
3. `unread_bytes` are those of the entries that are neither passed nor dropped.

Called by: `drivetrain.spark.flow.outside_readers`; simulated in `tests/simulation/test_outside_readers.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from drivetrain.errors import InternalError


@dataclass(frozen=True, slots=True)
class OutsidePolicy:
    """At most how many bytes are kept unread, and after how many ms unread messages are dropped, if ever."""

    keep_bytes: int
    drop_after_ms: int | None = None


@dataclass(slots=True)
class _UnreadEntry:
    number: int
    rows: int
    bytes: int
    appended_ms: int
    is_dropped: bool = False


class OutsideQuota:
    """The account of one channel; `start` is the number of the first entry that will be added."""

    def __init__(self, policy: OutsidePolicy, start: int = 0) -> None:
        self.policy = policy
        self.position = start
        """The entries below it were passed."""
        self.unread_bytes = 0
        self.unread_rows = 0
        self._unread: deque[_UnreadEntry] = deque()
        self._end = start
        self._planned = start

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._end

    @property
    def must_wait(self) -> bool:
        """Whether the producer must wait with its next batch."""
        return self.policy.drop_after_ms is None and self._is_full

    @property
    def _is_full(self) -> bool:
        return bool(self.policy.keep_bytes) and self.unread_bytes >= self.policy.keep_bytes

    def added(self, rows: int, size_bytes: int, appended_ms: int) -> None:
        """Entry `end` is in the log."""
        self._unread.append(_UnreadEntry(self._end, rows, size_bytes, appended_ms))
        self._end += 1
        self.unread_rows += rows
        self.unread_bytes += size_bytes

    def passed(self, position: int) -> None:
        """The reader has recorded this position; an older one changes nothing."""
        position = min(position, self._end)
        while self._unread and self._unread[0].number < position:
            self._forget(self._unread.popleft())
        self.position = max(self.position, position)

    def to_drop(self, planned: int, now_ms: int) -> list[int]:
        """The entries to drop now, when the reader has planned a batch that reaches to `planned`.

        Without a limit of age there are none. The caller drops them, and confirms with `dropped`.
        """
        self._planned = max(self._planned, planned)
        limit_ms = self.policy.drop_after_ms
        if limit_ms is None:
            return []
        found: list[int] = []
        left = self.unread_bytes
        for entry in self._unread:
            if entry.number < self._planned or entry.is_dropped:
                continue
            too_much = bool(self.policy.keep_bytes) and left >= self.policy.keep_bytes
            if not too_much and now_ms - entry.appended_ms < limit_ms:
                break
            left -= entry.bytes
            if entry.rows:
                found.append(entry.number)
        return found

    def dropped(self, number: int) -> None:
        """The messages of an entry are gone."""
        for entry in self._unread:
            if entry.number == number:
                if entry.number < self._planned or entry.is_dropped:
                    raise InternalError(f"outside room invariant 2: entry {number} was dropped")
                self._forget(entry)
                entry.rows = entry.bytes = 0
                entry.is_dropped = True
                return
        raise InternalError(f"outside room invariant 1: entry {number} was dropped, and is not unread")

    def _forget(self, entry: _UnreadEntry) -> None:
        self.unread_rows -= entry.rows
        self.unread_bytes -= entry.bytes

    def check(self) -> None:
        """Verify the invariants; raises InternalError."""
        numbers = [entry.number for entry in self._unread]
        if numbers != list(range(self._end - len(numbers), self._end)):
            raise InternalError(f"outside room invariant 1: entries {numbers} before {self._end}")
        if numbers and numbers[0] < self.position:
            raise InternalError(f"outside room invariant 1: entry {numbers[0]} was passed")
        sums = sum(entry.rows for entry in self._unread), sum(entry.bytes for entry in self._unread)
        if sums != (self.unread_rows, self.unread_bytes):
            raise InternalError(f"outside room invariant 3: {sums} is not what is unread")
