"""Deduplication: which messages of a key pass when no two of them may be within a span of event time.

Problem: of the messages of a key, in the order of their times, the first one passes, and then each that is
farther than the span from the last one that passed. Only the time of that last one is needed, for any number
of keys, until all future messages are farther from it.

Design: times are kept by key in **panes** as long as the span, each a `PagedState`, of which only the touched
pages are decoded. The last message that passed within the span of another is in the pane of that other or in
the one before. A pane is dropped as a whole when no future message can be within the span of its messages.

Times are microseconds since the epoch, as Spark's are.

Invariants:

1. `passes` is called in the order of times: an earlier one raises InternalError.
2. The answers of `passes` do not depend on when `forget` was called, if no time before its clock follows.

Called by `spark.compile.deduplication` for each bucket of keys.
"""

from __future__ import annotations

from typing import Final

import msgspec

from drivetrain.core.state.paged_state import PagedState
from drivetrain.errors import InputError, InternalError

_WIDTH: Final = 8
_VERSION: Final = 1


class _Head(msgspec.Struct, array_like=True):
    version: int
    span_us: int
    last_us: int | None
    panes: list[tuple[int, bytes]]


class DeduplicationState:
    """The times of the messages that passed last, by key; `saved` gives the bytes from which the next one is
    created.

    >>> first = DeduplicationState(60)
    >>> [time for time in (0, 30, 60, 61, 121, 122) if first.passes(b"key", time)]
    [0, 61, 122]
    """

    def __init__(self, span_us: int, saved: bytes | None = None) -> None:
        self.span_us: Final = span_us
        self._length: Final = max(span_us, 1)
        self._last_us: int | None = None
        self._panes: dict[int, PagedState] = {}
        if saved is not None:
            self._take(saved)

    def passes(self, key: bytes, time_us: int) -> bool:
        """Whether the message of a key at a time passes; if so, it becomes the last one that did."""
        if self._last_us is not None and time_us < self._last_us:
            raise InternalError(
                f"messages come in the order of their times: {time_us} after {self._last_us} µs"
            )
        self._last_us = time_us
        at = time_us // self._length
        for pane in (at, at - 1):
            kept = self._panes[pane].get(key) if pane in self._panes else None
            if kept is not None and time_us - int.from_bytes(kept, "big", signed=True) <= self.span_us:
                return False
        if at not in self._panes:
            self._panes[at] = PagedState()
        self._panes[at][key] = time_us.to_bytes(_WIDTH, "big", signed=True)
        return True

    def forget(self, clock_us: int) -> None:
        """No message before this time will follow: drop what is no longer needed."""
        for pane in [pane for pane in self._panes if self._end(pane) <= clock_us]:
            del self._panes[pane]

    @property
    def forgets_at_us(self) -> int | None:
        """The clock from which on none of this is needed; None if it is empty."""
        return self._end(max(self._panes)) if self._panes else None

    def saved(self) -> bytes:
        """All of it as bytes."""
        panes = [(pane, self._panes[pane].saved()) for pane in sorted(self._panes)]
        return msgspec.msgpack.encode(_Head(_VERSION, self.span_us, self._last_us, panes))

    def _end(self, pane: int) -> int:
        """The time from which on messages are farther than the span from all messages in a pane."""
        return (pane + 1) * self._length + self.span_us

    def _take(self, saved: bytes) -> None:
        try:
            head = msgspec.msgpack.decode(saved, type=_Head)
        except msgspec.MsgspecError as error:
            raise InputError(
                "the state of a deduplication is damaged", expected="times by key", got=f"{len(saved)} bytes"
            ) from error
        if (head.version, head.span_us) != (_VERSION, self.span_us):
            raise InputError(
                "the state of a deduplication has another span",
                expected=f"{self.span_us} µs",
                got=f"{head.span_us} µs, version {head.version}",
                remedy="restore the earlier declaration, or start over with --fresh",
            )
        self._last_us = head.last_us
        self._panes = {pane: PagedState(memoryview(content)) for pane, content in head.panes}
