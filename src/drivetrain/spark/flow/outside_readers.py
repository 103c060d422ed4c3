"""The channels of one query that other applications read: space for batches, and dropped messages.

Problem: the reader is another application. It answers no flow message, and may be stopped for days while its
producer runs.

Design: the channel's files show the producer how far the reader is. `core.channel.outside_quota` decides
whether a batch may begin and which entries are dropped. The account is updated before a batch and every few
seconds; the files are small, and there is one subscription or a few.

Invariants:

1. A batch begins only when no subscription that blocks is full.
2. An entry is dropped only by the process that runs the channel's producer.

Called by `query_flow`, from Spark's thread and the one that polls.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from drivetrain.api.operations import Subscription
from drivetrain.config.units import show_size_bytes
from drivetrain.core.channel.channel_log import SubscriberId, TrimmedError
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.channel.outside_quota import OutsidePolicy, OutsideQuota
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, known_clock
from drivetrain.core.figures import show_counted
from drivetrain.core.plan.plan import Plan, PlannedChannel
from drivetrain.runtime.channel.outside_reader import OutsideReader
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore

log = logging.getLogger(__name__)

LOOK_S: Final = 0.1
"""How often a batch that waits for another application checks again."""


class _Outside:
    """One channel for another application."""

    def __init__(
        self, channel: PlannedChannel, shown: str, store: ChannelStore, policy: OutsidePolicy
    ) -> None:
        self.channel: Final = channel
        self.shown: Final = shown
        self.store: Final = store
        self.reader: Final = OutsideReader(store)
        self.room: Final = OutsideQuota(policy, store.start())
        self.clock_ms: int | None = None
        self.blocked_s: float | None = None
        self.blocked_before_s = 0.0
        self.reader.count()

    def learn(self) -> None:
        """Take new entries and the reader's position into the account."""
        for number in range(self.room.end, self.store.length()):
            try:
                entry = self.store.entry(number)
                stored_ms = self.store.stored_ms(number)
            except (MessageLossError, TrimmedError, FileNotFoundError):
                self.room.added(0, 0, 0)  # it is still to be repaired, or was trimmed meanwhile
                continue
            self.room.added(entry.rows, entry.bytes, stored_ms)
            self.clock_ms = known_clock(entry.clock_ms)
        position = self.store.positions().get(SubscriberId(self.channel.consumer_fragment))
        if position is not None:
            self.room.passed(position)

    def drop(self, now_ms: int) -> int:
        """Drop messages that are too old or too many; returns how many."""
        numbers = self.room.to_drop(self.reader.planned(), now_ms)
        if not numbers:
            return 0
        before = self.room.unread_rows
        for number in self.reader.drop(numbers):
            self.room.dropped(number)
        return before - self.room.unread_rows

    @property
    def has_ended(self) -> bool:
        """Whether the channel has the final clock: nothing follows."""
        return self.clock_ms is not None and self.clock_ms >= FINAL_CLOCK_MS - 1

    @property
    def blocked_now_s(self) -> float:
        """For how long the batch that waits has waited for it."""
        return 0.0 if self.blocked_s is None else time.monotonic() - self.blocked_s


class OutsideReaders:
    """The channels for other applications that a query writes; at most `keep_bytes` are unread in each.

    `tell` gets notices for the user. Safe to use from any thread.
    """

    def __init__(self, keep_bytes: int, tell: Callable[[str], None]) -> None:
        self._keep_bytes: Final = keep_bytes
        self._tell: Final = tell
        self._lock: Final = threading.RLock()
        self._of: Final[dict[str, _Outside]] = {}

    def adds(self, plan: Plan, channel: PlannedChannel, store: ChannelStore) -> None:
        """The query writes a channel from its next batch on."""
        operation = plan.graph.nodes[channel.consumer_fragment].operation
        assert isinstance(operation, Subscription)
        policy = OutsidePolicy(self._keep_bytes, operation.drop_after_ms)
        with self._lock:
            self._of[channel.id] = _Outside(channel, f"{operation.reader}/{operation.source}", store, policy)

    def drops(self, id: str) -> None:
        """The query does not write a channel any more."""
        with self._lock:
            self._of.pop(id, None)

    def ids(self) -> list[str]:
        """The channels."""
        with self._lock:
            return list(self._of)

    def __contains__(self, id: object) -> bool:
        return id in self._of

    def wait_room(self, given_up: Callable[[], bool], blocked_by: Callable[[str | None], None]) -> None:
        """Wait until a batch may begin, or `given_up()` is true; `blocked_by` gets the reader that it waits
        for."""
        is_reported = False
        while (full := self._full()) is not None and not given_up():
            blocked_by(full)
            if not is_reported:
                self._tell(
                    f"batches wait for {full}: {show_size_bytes(self._keep_bytes)} are kept for it that it "
                    "has not read; run it, or end its subscription with drivetrain unsubscribe"
                )
            is_reported = True
            time.sleep(LOOK_S)
        with self._lock:
            for outside in self._of.values():
                outside.blocked_before_s += outside.blocked_now_s
                outside.blocked_s = None
        blocked_by(None)

    def _full(self) -> str | None:
        found = None
        with self._lock:
            for outside in self._of.values():
                outside.learn()
                self._drop(outside)
                if outside.room.must_wait and not outside.has_ended:
                    outside.blocked_s = outside.blocked_s or time.monotonic()
                    found = found or outside.shown
        return found

    def look(self) -> None:
        """Bring the accounts up to date, and drop what is too old."""
        with self._lock:
            for outside in self._of.values():
                outside.learn()
                self._drop(outside)

    def _drop(self, outside: _Outside) -> None:
        gone = outside.drop(int(time.time() * 1000))
        if gone:
            self._tell(f"{show_counted(gone, 'message')} that {outside.shown} had not read were dropped")

    def blocked_ms(self) -> tuple[dict[str, int], int]:
        """How long batches have waited for each channel, if at all, and the current one for the longest."""
        with self._lock:
            all_s = {id: o.blocked_before_s + o.blocked_now_s for id, o in self._of.items()}
            now_s = max((o.blocked_now_s for o in self._of.values()), default=0.0)
        return {id: int(s * 1000) for id, s in all_s.items() if s}, int(now_s * 1000)

    def progress(self) -> tuple[ChannelProgress, ...]:
        """Each channel, as the producer knows it."""
        with self._lock:
            return tuple(map(_progress, self._of.values()))


def _progress(outside: _Outside) -> ChannelProgress:
    room = outside.room
    return ChannelProgress(
        outside.channel.id,
        outside.channel.producer_fragment,
        outside.shown,
        outside.clock_ms,
        room.unread_rows,
        room.unread_bytes,
        unacknowledged_rows=room.unread_rows,
        unacknowledged_bytes=room.unread_bytes,
        window_bytes=room.policy.keep_bytes,
        blocked_ms=int(outside.blocked_now_s * 1000),
        kept_bytes=room.unread_bytes,
        dropped=outside.reader.dropped().messages,
    )
