"""The files by which the producer of a channel and a reader in another application communicate.

Problem: the two applications start, die and restart independently. Each must know how far the other one is,
even when the other does not run, and dropped messages must be counted exactly once.

    <channel>/positions/<subscription>   the entry that the reader reads next: see `positions`
    <channel>/planned                    the end of the batch that the reader has planned last
    <channel>/planning.lock              held by the reader while it plans, by the producer while it drops
    <channel>/dropped                    how many messages were dropped, up to which entry

Design: a dropped entry stays in the log without its messages, but with their number: so the log stays dense
and keeps its clock. The producer reads `planned` under the lock, so it never drops messages of a planned
batch, because the reader may have shown a part of it. The tally is written after the entries.

What if we die here: an entry that was dropped and is not in the tally is counted by the next process, because
entries from the tally's end on are kept until it has been written. Segments of a dropped entry that are still
there are orphans, which the producer's next start deletes.

Invariants:

1. An entry below `planned` is never dropped.
2. A dropped message is in the tally once.

Called by `spark.flow.outside_readers` (producer), `spark.channel.source` and `spark.prepare.outside_stream`
(reader).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.file_lock import FileLock
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.durable_file import DurableFile

_PLANNED: Final = "planned"
_DROPPED: Final = "dropped"
_LOCK: Final = "planning.lock"


class DroppedMessages(msgspec.Struct, frozen=True):
    """How many messages were dropped from entries below `end`."""

    messages: int = 0
    end: int = 0


class OutsideReader:
    """The reader of the channel of `store`, seen from either side; the channel is in a local directory."""

    def __init__(self, store: ChannelStore) -> None:
        self._store: Final = store
        self._path: Final = Path(store.uri)
        self._lock: Final = FileLock(self._path / _LOCK)
        self._tally: Final = DurableFile(
            self._path / _DROPPED,
            "the number of dropped messages",
            if_damaged="delete it: the count begins anew",
            if_full="make room, and run the same command again: it continues where it stopped",
        )

    # -- the reader ------------------------------------------------------------------------------------

    def plan(self, end: int) -> None:
        """Announce that the next batch takes the entries below `end`; returns when none of them can go."""
        self._lock.wait()
        try:
            if end > self.planned():
                self._store.files.replace(_PLANNED, str(end).encode(), kept=True)
        finally:
            self._lock.release()

    # -- the producer ----------------------------------------------------------------------------------

    def planned(self) -> int:
        """The end of the batch that the reader has planned last; 0: none."""
        with suppress(FileNotFoundError, ValueError):  # a power cut may leave an empty file
            return int(self._store.files.read(_PLANNED).to_pybytes())
        return 0

    def drop(self, numbers: Iterable[int]) -> list[int]:
        """Drop the messages of these entries, in order, if no batch is planned that takes them.

        Returns those that were dropped. Does not wait: none are dropped while the reader is planning.
        """
        wanted = list(numbers)
        if not wanted or not self._lock.take():
            return []
        done: list[int] = []
        try:
            planned = self.planned()
            for number in wanted:
                if number >= planned:
                    self._drop(number)
                    done.append(number)
        finally:
            self._lock.release()
        if done:
            self.count()
        return done

    def _drop(self, number: int) -> None:
        entry = self._store.read_entry(number)
        if not entry.segments:
            return
        gone = msgspec.structs.replace(entry, segments=(), dropped=entry.rows)
        self._store.put_back(gone)
        maybe_crash(CrashPoint.ENTRY_DROPPED)
        for segment in entry.segments:
            self._store.files.delete(segment.path)

    def count(self) -> DroppedMessages:
        """Add to the tally what was dropped and is not in it; before entries are trimmed."""
        known = self.dropped()
        end, messages = known.end, known.messages
        for number in range(max(known.end, self._store.oldest()), self._store.length()):
            with suppress(MessageLossError, TrimmedError):
                entry = self._store.read_entry(number)
                if entry.dropped:
                    messages, end = messages + entry.dropped, number + 1
        if end == known.end:
            return known
        counted = DroppedMessages(messages, end)
        self._tally.write(msgspec.json.encode(counted))
        return counted

    def dropped(self) -> DroppedMessages:
        """The messages that were dropped since the subscription began; raises InputError when damaged."""
        return self._tally.read_json(DroppedMessages) or DroppedMessages()
