"""Looks at a fragment's input channel: how large is the fragment's lag, and how much does the channel keep?

Design: `core.channel.channel_lag` keeps the account; this module feeds it the changes on disk since the last
look: one probe for a newer entry, one for the oldest, and each new entry, read once.

Called by `query_progress`, from the thread that polls.
"""

from __future__ import annotations

from drivetrain.core.channel.channel_lag import ChannelLag, EntrySize
from drivetrain.core.channel.channel_log import Entry, TrimmedError
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, known_clock
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore


class ChannelWatch:
    """The channel `id` between two fragments, from the subscriber's side; `store` is the subscriber's."""

    def __init__(self, id: str, producer: str, subscriber: str, store: ChannelStore) -> None:
        self._id = id
        self._producer = producer
        self._subscriber = subscriber
        self._store = store
        self._lag: ChannelLag | None = None
        self._clock_ms: int | None = None

    @property
    def newest_taken_ms(self) -> int | None:
        """The largest timestamp that the subscriber has taken, as of the last look."""
        return None if self._lag is None else self._lag.newest_taken_ms

    def look(self, position: int | None, clock_ms: int | None) -> ChannelProgress:
        """The channel now, for a subscriber with that clock, at `position` (None: it has taken nothing)."""
        lag = self._learn(0 if position is None else position)
        if position is not None:
            lag.take(min(position, lag.end))  # its reader reports a log that was cut short
        lag.trim(min(self._store.oldest(), lag.position))
        return ChannelProgress(
            self._id,
            self._producer,
            self._subscriber,
            self._clock_ms,
            lag.lag_rows,
            lag.lag_bytes,
            self._behind_ms(lag, clock_ms),
            kept_bytes=lag.kept_bytes,
        )

    def _learn(self, position: int) -> ChannelLag:
        lag = self._lag
        if lag is None:
            lag = self._lag = ChannelLag(self._store.start())
        for number in range(lag.end, self._store.length()):
            try:
                entry = self._store.entry(number)
            except TrimmedError:  # the producer trimmed it between the listing and the reading
                lag.trim(number + 1)
                continue
            except MessageLossError:
                if number >= position:
                    raise
                lag.trim(number + 1)  # the subscriber has taken it, so it is neither needed nor repaired
                continue
            lag.add(_size(entry))
            self._clock_ms = known_clock(entry.clock_ms)
        return lag

    def _behind_ms(self, lag: ChannelLag, clock_ms: int | None) -> int | None:
        if self._clock_ms is None or clock_ms is None:
            return None
        ahead = lag.newest_ms if self._clock_ms >= FINAL_CLOCK_MS - 1 else self._clock_ms
        return None if ahead is None else max(0, ahead - clock_ms)


def _size(entry: Entry) -> EntrySize:
    newest = max((segment.max_ts_ms for segment in entry.segments), default=None)
    return EntrySize(entry.rows, entry.bytes, newest)
