"""The producer's end of a channel: what was sent, what is acknowledged, whether the window is full.

The problem, the protocol and the invariants are those of `core.flow.flow`.

Called by: `drivetrain.spark.flow.flow_book`; `tests/simulation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from drivetrain.core.flow.flow import (
    STEPS,
    UNREADABLE,
    Ack,
    AckRequest,
    Life,
    Loss,
    ReportLoss,
    SendAckRequest,
    SenderEffect,
    SentEntry,
    Window,
)
from drivetrain.errors import InternalError, PeerViolationError


class FlowSender:
    """The producer's end. `entries` are those of the log from `position` on; times are in ms.

    A request goes out after `idle_ms` without one although something is unacknowledged, and again after
    `retry_ms` without an answer.
    """

    def __init__(
        self,
        window: Window,
        *,
        incarnation: int,
        position: int,
        entries: Iterable[SentEntry] = (),
        now_ms: int = 0,
        idle_ms: int = 200,
        retry_ms: int = 1_000,
    ) -> None:
        self.window = window
        self.incarnation = incarnation
        self.position = position
        """The entries below this position are acknowledged."""
        self.loss: Loss | None = None
        self.stale = 0
        """How many acks came from an older incarnation or life."""
        self._idle_ms = idle_ms
        self._retry_ms = retry_ms
        self._known: deque[SentEntry] = (
            deque()
        )  # from the start of the newest request on: acks are compared with these
        self._end = position
        self._rows = 0
        self._bytes = 0
        self._counted = 0  # entries other than barriers
        self._largest = SentEntry(-1, 0, 0, 0)
        self._seq = 0
        self._requested: AckRequest | None = None
        self._requested_share = 0.0
        self._spoke_ms = now_ms
        self._life: Life = (-1, -1, -1)
        for entry in entries:
            self._push(entry)
        self._largest = SentEntry(-1, self._rows, self._bytes, 0)  # as large as an earlier window allowed

    # -- state -----------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self._end

    @property
    def unacknowledged(self) -> tuple[int, int, int]:
        """Messages, bytes and entries (but barriers) that were sent and are not acknowledged."""
        return self._rows, self._bytes, self._counted

    @property
    def is_full(self) -> bool:
        """Whether the producer must wait."""
        return self.window.filled(*self.unacknowledged) >= 1

    # -- events --------------------------------------------------------------------------------------

    def appended(self, entry: SentEntry, now_ms: int, *, last: bool = False) -> list[SenderEffect]:
        """An entry is in the log. Raises InternalError when the window was full, unless it is the `last`."""
        if entry.number != self._end:
            raise InternalError(f"flow invariant 3: entry {entry.number} follows entry {self._end - 1}")
        if entry.rows and self.is_full and not last:
            raise InternalError(
                f"flow invariant 1: a batch was appended though {self.unacknowledged} of {self.window} wait"
            )
        excess = self.is_full
        self._push(entry)
        if excess:
            self._largest = SentEntry(entry.number, self._rows, self._bytes, 0)
        share = self.window.filled(*self.unacknowledged)
        if share - self._requested_share >= 1 / STEPS:
            return self._request(now_ms)
        return []

    def acknowledged(self, ack: Ack, now_ms: int) -> list[SenderEffect]:
        """An ack arrived. Raises PeerViolationError for one that no subscriber can send."""
        if ack.incarnation != self.incarnation or ack.life < self._life:
            self.stale += 1
            return []
        if ack.seq > self._seq or not 0 <= ack.start <= ack.position <= self._end or ack.received < 0:
            raise _never_sent(ack, f"at most request {self._seq} and entry {self._end}")
        sent, is_all = self._sent(ack.start, ack.position)
        if is_all and ack.received > sent:
            raise _never_sent(ack, f"at most {sent} messages of entries {ack.start} to {ack.position - 1}")
        if ack.life > self._life:
            self._life, self.loss = ack.life, None
        if self.loss is not None or ack.start < self._first or ack.position <= self.position:
            return []  # awaiting a new life; or old, and a newer request will be answered
        if ack.received < sent:
            self.loss = Loss(ack.start, ack.position, f"{sent} messages", f"{ack.received} messages")
            return [ReportLoss(self.loss)]
        self._advance(ack.position)
        if self._requested is not None and ack.position >= self._requested.end:
            self._requested = None
        self._requested_share = min(self._requested_share, self.window.filled(*self.unacknowledged))
        self._spoke_ms = now_ms
        return []

    def ticked(self, now_ms: int) -> list[SenderEffect]:
        """Time has passed: request acknowledgement of what is unacknowledged, again if necessary."""
        if self._counted == 0:
            return []
        patience_ms = self._idle_ms if self._requested is None else self._retry_ms
        return self._request(now_ms) if now_ms - self._spoke_ms >= patience_ms else []

    # -- steps ---------------------------------------------------------------------------------------

    @property
    def _first(self) -> int:
        return self._known[0].number if self._known else self._end

    def _sent(self, start: int, position: int) -> tuple[int, bool]:
        """The messages of the entries [start, position), as far as known; whether all are known."""
        entries = [entry for entry in self._known if start <= entry.number < position]
        is_all = start >= self._first and all(entry.checksum != UNREADABLE for entry in entries)
        return sum(entry.rows for entry in entries), is_all

    def _push(self, entry: SentEntry) -> None:
        if entry.number != self._end:
            raise InternalError(f"flow invariant 3: entry {entry.number} follows entry {self._end - 1}")
        self._known.append(entry)
        self._end += 1
        self._rows += entry.rows
        self._bytes += entry.bytes
        self._counted += not entry.is_barrier
        self._largest = SentEntry(
            entry.number, max(self._largest.rows, entry.rows), max(self._largest.bytes, entry.bytes), 0
        )

    def _advance(self, position: int) -> None:
        for entry in self._known:
            if self.position <= entry.number < position:
                self._rows -= entry.rows
                self._bytes -= entry.bytes
                self._counted -= not entry.is_barrier
        self.position = position

    def _request(self, now_ms: int) -> list[SenderEffect]:
        while self._known and self._known[0].number < self.position:
            self._known.popleft()
        self._seq += 1
        entries = tuple((entry.rows, entry.checksum) for entry in self._known)
        self._requested = AckRequest(self.incarnation, self._seq, self.position, entries)
        self._requested_share = self.window.filled(*self.unacknowledged)
        self._spoke_ms = now_ms
        return [SendAckRequest(self._requested)]

    def check(self) -> None:
        """Verify the invariants; raises InternalError naming the one that does not hold."""
        if not self.position <= self._end:
            raise InternalError(f"flow invariant 2: position {self.position} beyond {self._end}")
        numbers = [entry.number for entry in self._known]
        if (
            numbers != list(range(self._end - len(numbers), self._end))
            or len(numbers) < self._end - self.position
        ):
            raise InternalError(f"flow invariant 3: entries {numbers} before {self._end}")
        waiting = [entry for entry in self._known if entry.number >= self.position]
        sums = sum(e.rows for e in waiting), sum(e.bytes for e in waiting)
        if (*sums, sum(not e.is_barrier for e in waiting)) != self.unacknowledged:
            raise InternalError("flow invariant 3: the sums are not those of the entries")
        window = self.window
        if window.rows and self._rows >= window.rows + max(1, self._largest.rows):
            raise InternalError(f"flow invariant 1: {self._rows} messages wait, the window has {window.rows}")
        if window.bytes and self._bytes >= window.bytes + max(1, self._largest.bytes):
            raise InternalError(f"flow invariant 1: {self._bytes} bytes wait, the window has {window.bytes}")


def _never_sent(ack: Ack, expected: str) -> PeerViolationError:
    return PeerViolationError(
        "a subscriber acknowledged what was never sent", expected=expected, got=repr(ack)
    )
