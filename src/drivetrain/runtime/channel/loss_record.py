"""The record of a channel's losses and repairs, stored with the channel.

Problem: a loss must stay visible: after restarts, and in every process that shows it. A repair may be killed,
and the loss that it found must not be counted again as a new one.

Design: one small file in the channel's directory, `losses.json`, replaced atomically, written only by the
channel's subscriber, which is also the one that repairs. An entry is `open` from when its loss was found
until it is readable again. A starting subscriber handles the open entries first.

What if we die here: between putting an entry back and closing it, the next start finds it open and undamaged,
and closes it.

Invariants:

1. A loss is counted once, before anything is done about it; a repaired entry is counted once.
2. An entry that was repaired `MOST` times and is lost again is not repaired again.

Called by `repair` and `restoring` (write), by `micro_batch_query` before it starts, and by code that reports
a channel's progress.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore

FILE = "losses.json"
MOST = 2
"""How often an entry is repaired: a disk that damages it once more will keep doing so."""
_REMEMBERED = 256


class LossRecord(msgspec.Struct, frozen=True):
    """Losses found, entries repaired (`replays`), and messages and batches that were left out instead.

    `open` are the entries whose loss was found and not repaired yet; `times` is how often each of the last
    entries was lost, by its number.
    """

    losses: int = 0
    replays: int = 0
    skipped_entries: int = 0
    skipped_messages: int = 0
    open: tuple[int, ...] = ()
    times: dict[int, int] = {}

    def found(self, number: int, pieces: int) -> LossRecord:
        """Add the loss of `pieces` segments or entries of entry `number`, unless it is open already."""
        if number in self.open:
            return self
        times = {**self.times, number: self.times.get(number, 0) + 1}
        for oldest in sorted(times)[:-_REMEMBERED]:
            del times[oldest]
        open_ = (*self.open, number)
        return msgspec.structs.replace(self, losses=self.losses + pieces, open=open_, times=times)

    def mended(self, number: int) -> LossRecord:
        """Record that entry `number` is repaired and readable."""
        return msgspec.structs.replace(self._closed(number), replays=self.replays + 1)

    def skipped(self, number: int, messages: int) -> LossRecord:
        """Record that the lost part of entry `number` is left out: `messages`, as far as known."""
        return msgspec.structs.replace(
            self._closed(number),
            skipped_entries=self.skipped_entries + 1,
            skipped_messages=self.skipped_messages + messages,
        )

    def cut(self, end: int) -> LossRecord:
        """Forget the entries from `end` on: the channel is cut there, and others will have their numbers."""
        open_ = tuple(number for number in self.open if number < end)
        times = {number: count for number, count in self.times.items() if number < end}
        return msgspec.structs.replace(self, open=open_, times=times)

    def too_often(self, number: int) -> bool:
        """Whether entry `number` was lost more often than it may be repaired."""
        return self.times.get(number, 0) > MOST

    def _closed(self, number: int) -> LossRecord:
        return msgspec.structs.replace(self, open=_without(self.open, number))


def loss_record(store: ChannelStore) -> LossRecord:
    """The losses recorded for a channel. An unreadable file counts as empty: it is only shown to users."""
    try:
        return msgspec.json.decode(store.files.read(FILE), type=LossRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return LossRecord()


def with_losses(progress: ChannelProgress, store: ChannelStore) -> ChannelProgress:
    """A channel's progress with its losses added."""
    known = loss_record(store)
    return msgspec.structs.replace(progress, losses=known.losses, replays=known.replays)


def record(store: ChannelStore, losses: LossRecord) -> None:
    """Write a channel's losses to its file, durably."""
    store.files.replace(FILE, msgspec.json.encode(losses), kept=True)


def cut_channel(store: ChannelStore, end: int) -> None:
    """Delete the entries from `end` on, and the record of repairs that were begun there.

    Only while no process writes or reads the channel. After a crash in between, call it again.
    """
    store.cut(end)
    known = loss_record(store)
    if known.cut(end) != known:
        record(store, known.cut(end))


def require_whole(store: ChannelStore, first: int) -> None:
    """Raise MessageLossError unless the log is dense from entry `first` on, the next one to be read.

    A repair that was killed is a loss, too: it must be completed.
    """
    numbers = store.numbers()
    unread = [number for number in numbers if number >= first]
    at_end = numbers[-1] + 1 if numbers else 0
    if unread != list(range(first, max(at_end, first))) or first > at_end:
        raise _lost(store, f"entries from {first} on", f"{len(unread)} entries, the log ends at {at_end}")
    if loss_record(store).open:
        raise _lost(store, "no entry that waits for repair", str(loss_record(store).open))


def require_batch(store: ChannelStore, batch_id: int) -> None:
    """Raise MessageLossError unless a producer's log reaches the last batch that it committed, or has ended.

    A fragment that is started again after it has finished may run batches, which have no messages.
    """
    last, newest = store.last_batch(), store.last()
    if last < batch_id and (newest is None or newest.clock_ms < FINAL_CLOCK_MS):
        raise _lost(store, f"an entry of batch {batch_id}", f"batch {last} is the last")


def _lost(store: ChannelStore, expected: str, got: str) -> MessageLossError:
    return MessageLossError("entries of the channel are missing", where=store.uri, expected=expected, got=got)


def _without(numbers: Iterable[int], number: int) -> tuple[int, ...]:
    return tuple(n for n in numbers if n != number)
