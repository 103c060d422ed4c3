"""Retention in the store at the end of a source, and the start of a replay in it.

Problem: a socket delivers everything once. To process it again from T, its store must still hold old
messages, within bounds. It must know which entries may contain messages of T or later. And it must report
when some of them are gone, because otherwise they would be lost from a replay silently.

Design: an entry that was read is deleted when it is too old, or when newer entries exceed the bytes to keep.
The timestamps in its segments are the index: those of the event time column, or, without one, of the arrival.
Before entries are deleted, their largest timestamp is stored.

    index.json      the column of the timestamps (`__ts`: of the arrival; null: not of one column)
    trimmed.json    the largest deleted timestamp; absent while nothing was deleted

What if we die here: `trimmed.json` is written before anything is deleted, so it may claim too much, never too
little.

Invariants:

1. A replay begins at or before the first entry that can hold a message of T or later, or is refused.
2. Deleted entries were read by every subscriber.

Called by: `stored_sources` (index, start), `spark.prepare.fragment` (trim).
"""

from __future__ import annotations

import json
import time
from typing import Any

from drivetrain.api.moments import moment_text
from drivetrain.core.channel.channel_log import SubscriberId
from drivetrain.core.replay.replay import ReplayError, RetainedEntries, RetainedEntry
from drivetrain.runtime.channel.store import ChannelStore

_INDEX = "index.json"
_TRIMMED = "trimmed.json"
KEEP_ENTRIES = 20_000
"""An entry is two files, and the application looks at all of them when it starts."""
_RETENTION = SubscriberId("what is kept for replays")


class Retention:
    """Keeps entries of one store after they were read: at most so many bytes, at most for so long."""

    def __init__(self, keep_bytes: int, keep_ms: int) -> None:
        self._keep_bytes = keep_bytes
        self._keep_ms = keep_ms
        self._tail = RetainedEntries()

    def trim(self, store: ChannelStore) -> None:
        """Delete entries that were read and need not be kept; looks at those read since the last call."""
        positions = store.held(spare=0)  # its entries are never repaired, so none are spared for that
        if not positions:
            return
        # The last entry always stays, so it cannot be deleted.
        floor = min(*positions.values(), store.length() - 1)
        first = store.start() if self._tail.end is None else self._tail.end
        for entry in store.entries(first, floor):
            stamps = [segment.max_ts_ms for segment in entry.segments]
            stored_ms = store.stored_ms(entry.number)
            self._tail.add(RetainedEntry(entry.number, entry.bytes, stored_ms, max(stamps, default=None)))
        gone = self._tail.drop(
            keep_bytes=self._keep_bytes,
            keep_ms=self._keep_ms,
            keep_entries=KEEP_ENTRIES,
            now_ms=time.time_ns() // 1_000_000,
        )
        if gone:
            _note_trimmed(store, gone)
            store.trim({**positions, _RETENTION: gone[-1].number + 1})


def note_index(store: ChannelStore, column: str | None) -> None:
    """Record that the timestamps of later entries are those of `column`."""
    known = _read(store, _INDEX)
    if known is None:
        column = column if store.length() == 0 else None
    elif known["column"] != column:
        column = None
    if known is None or known["column"] != column:
        store.files.replace(_INDEX, json.dumps({"column": column}).encode(), kept=True)


def first_entry(store: ChannelStore, from_ms: int, column: str | None, where: str) -> int:
    """The first entry of a replay from `from_ms`, by the timestamps of `column` (None: not indexed).

    Raises `ReplayError` when messages that may be of that time or later were deleted.
    """
    index, trimmed = _read(store, _INDEX), _read(store, _TRIMMED)
    is_indexed = column is not None and index is not None and index["column"] == column
    gone_ms = None if trimmed is None else trimmed["newest_ms"]
    if gone_ms is not None and (not is_indexed or gone_ms >= from_ms):
        raise ReplayError(
            "messages since that time are no longer stored",
            where=where,
            expected=f"all messages with a timestamp at or after {moment_text(from_ms)}",
            got=f"those up to {moment_text(gone_ms)} were deleted"
            if is_indexed
            else "some were deleted, and their event time is computed, so it is unknown which",
            remedy="replay from a later time; keep more with replay.keep-bytes and replay.keep-age",
        )
    if not is_indexed:
        return store.start()
    # The newest entry is always included, since it has the clock.
    later = [entry.number for entry in store.since(from_ms)]
    return max(store.start(), min([*later, store.length() - 1]))


def _note_trimmed(store: ChannelStore, going: list[RetainedEntry]) -> None:
    known = _read(store, _TRIMMED)
    stamps = [entry.newest_ms for entry in going if entry.newest_ms is not None]
    stamps += [] if known is None else [known["newest_ms"]]
    if stamps and (known is None or max(stamps) > known["newest_ms"]):
        store.files.replace(_TRIMMED, json.dumps({"newest_ms": max(stamps)}).encode(), kept=True)


def _read(store: ChannelStore, name: str) -> dict[str, Any] | None:
    return dict(json.loads(store.files.read(name).to_pybytes())) if store.files.exists(name) else None
