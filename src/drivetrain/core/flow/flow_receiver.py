"""The subscriber's end of a channel: compares what its batches took with what the producer sent.

The problem, the protocol and the invariants are those of `core.flow.flow`.

Called by: `drivetrain.spark.flow.flow_book`; `tests/simulation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from drivetrain.core.flow.flow import (
    REMADE,
    UNREADABLE,
    Ack,
    AckRequest,
    Life,
    Loss,
    ReceiverEffect,
    ReportLoss,
    SendAck,
    SentEntry,
)
from drivetrain.errors import InternalError


class FlowReceiver:
    """The subscriber's end. `life` is higher than in its earlier lives; `position` is how far those
    committed.

    An entry in the producer's request that is not in the log is lost after `grace_ms`: file systems may show
    a file later to other processes than to its writer. With `trusts` nothing is compared or counted: the
    subscriber may leave messages out, and reports that it took what was sent.
    """

    def __init__(self, *, life: Life, position: int, grace_ms: int = 3_000, trusts: bool = False) -> None:
        self.life = life
        self.position = position
        """The next entry that a batch takes; earlier ones are committed."""
        self.loss: Loss | None = None
        self.stale = 0
        """How many requests came from an older incarnation."""
        self._grace_ms = grace_ms
        self._trusts = trusts
        self._received = 0
        self._counts: deque[tuple[int, int]] = deque([(position, 0)])  # how many were received up to there
        self._incarnation = -1
        self._seq = 0
        self._pending: AckRequest | None = None
        self._missing: tuple[int, int] | None = None  # the first missing entry, and since when

    # -- events --------------------------------------------------------------------------------------

    def taken(self, start: int, end: int, rows: int, logged: int) -> list[ReceiverEffect]:
        """A batch with the entries [start, end) is committed: it took so many messages, of `logged` ones."""
        if start != self.position or end < start or rows < 0:
            raise InternalError(f"a batch took entries {start} to {end} at position {self.position}")
        self.position = end
        self._received += rows
        if end > start:
            self._counts.append((end, self._received))
        if rows < logged and self.loss is None and not self._trusts:
            # Sent without a request: if this life ended before the next request, the count would be lost.
            return self._lost(Loss(start, end, f"{logged} messages", f"{rows} messages"))
        return self._answer()

    def requested(
        self, request: AckRequest, seen: Sequence[SentEntry | None], now_ms: int
    ) -> list[ReceiverEffect]:
        """A request arrived; `seen` are the entries of `wanted(request)` in the log here (None: missing)."""
        if (request.incarnation, request.seq) < (self._incarnation, self._seq):
            self.stale += 1
            return []
        self._incarnation, self._seq = request.incarnation, request.seq
        if self.loss is not None:
            return []
        self._pending = request
        # Acknowledged entries are not requested again.
        while len(self._counts) > 1 and self._counts[1][0] <= request.start:
            self._counts.popleft()
        found = None if self._trusts else self._compare(request, seen, now_ms)
        return self._answer() if found is None else found

    def wanted(self, request: AckRequest) -> range:
        """The entries that a request is to be compared with: those that no batch has verified yet."""
        return range(max(request.start, self.position), request.end)

    # -- steps ---------------------------------------------------------------------------------------

    def _compare(
        self, request: AckRequest, seen: Sequence[SentEntry | None], now_ms: int
    ) -> list[ReceiverEffect] | None:
        wanted = self.wanted(request)
        if len(seen) != len(wanted):
            raise InternalError(f"{len(seen)} entries were looked at, {len(wanted)} are wanted")
        for number, entry in zip(wanted, seen, strict=True):
            rows, checksum = request.entries[number - request.start]
            expected = f"{rows} messages, checksum {checksum:08x}"
            if entry is None:
                if self._missing is None or self._missing[0] != number:
                    self._missing = (number, now_ms)
                if now_ms - self._missing[1] >= self._grace_ms:
                    return self._lost(Loss(number, number + 1, expected, "the entry is missing"))
                return None
            if checksum in (REMADE, UNREADABLE):
                continue  # the producer has it from the log itself
            if entry.rows != rows or entry.checksum not in (checksum, REMADE):
                got = f"{entry.rows} messages, checksum {entry.checksum:08x}"
                return self._lost(Loss(number, number + 1, expected, got))
        self._missing = None
        return None

    def _lost(self, loss: Loss) -> list[ReceiverEffect]:
        self.loss = loss
        return [ReportLoss(loss)]

    def _answer(self) -> list[ReceiverEffect]:
        request = self._pending
        if request is None or self.loss is not None or self.position < request.start:
            return []
        start, before = next(count for count in self._counts if count[0] >= request.start)
        position, received = self.position, self._received - before
        if self._trusts:
            position = max(start, min(position, request.end))  # later entries were not requested
            requested = request.entries[start - request.start : position - request.start]
            received = sum(rows for rows, _ in requested)
        ack = Ack(request.incarnation, request.seq, self.life, start, position, received)
        if self.position >= request.end:
            self._pending = None
        return [SendAck(ack)]

    def check(self) -> None:
        """Verify the invariants of the counts; raises InternalError."""
        if self._counts[-1] != (self.position, self._received) and self._counts[-1][0] != self.position:
            raise InternalError(f"the counts end at {self._counts[-1]}, the position is {self.position}")
        if list(self._counts) != sorted(self._counts):
            raise InternalError(f"the counts of a subscriber go back: {list(self._counts)}")
