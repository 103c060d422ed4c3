"""Trims a fragment's channels, and records which entries of its inputs it needs.

Problem: the writer of a channel deletes from it, but its reader knows what may be deleted. And an entry that
was read may be needed again, to repair results of it for as long as those are retained, or to look at the
late messages among them, which begins a moment after the batch.

Design: the polling thread trims every few seconds. A damaged entry stops trimming: its reader detects it, and
has it repaired.

Invariants: those of `core.channel.channel_log` on trimming. What if we die here: trimming runs again; it
changes nothing that a crash would repeat.

Called by `micro_batch_query`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.dead_letter_store import DeadLetterStore
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.offset_log import committed, entries_after, needed_input

TRIM_S = 5.0
"""How often channels are trimmed: nothing depends on it after a crash, so it need not be often."""


class Trimming:
    """Trims `stores` and `letters`, which `fragment` writes, and its sources' stores.

    `inputs` are the logs that it reads. `oldest_sampled` returns the oldest batch whose late messages may be
    looked at, given the newest that is committed; None if the fragment can have none.
    """

    def __init__(
        self,
        fragment: str,
        trunk: Trunk,
        checkpoint: Path,
        stores: Mapping[str, ChannelStore],
        inputs: Mapping[str, ChannelStore],
        letters: DeadLetterStore,
        oldest_sampled: Callable[[int], int | None],
    ) -> None:
        self._fragment = fragment
        self._trunk = trunk
        self._checkpoint = checkpoint
        self._stores = stores
        self._inputs = inputs
        self._letters = letters
        self._oldest_sampled = oldest_sampled
        self._trimmed_s = time.monotonic()

    def trim(self, trimmed: Callable[[], None]) -> None:
        """Delete entries that every reader has passed, if it is time; then call `trimmed`."""
        now_s = time.monotonic()
        if now_s - self._trimmed_s < TRIM_S:
            return
        self._trimmed_s = now_s
        with suppress(MessageLossError):
            for store in list(self._stores.values()):  # a change of the application adds and drops some
                positions = store.held()
                if positions:
                    store.trim(positions)
            trimmed()
            self.note_needed()
        for stored in self._trunk.stored.values():
            stored.kept.trim(stored.store)
        self._letters.tidy()

    def note_needed(self) -> None:
        """Record in every input which entries this fragment may read again."""
        needs = []
        if self._stores:
            needs.append(needed_input(self._checkpoint, self._trunk.inputs, list(self._stores.values())))
        oldest = self._oldest_sampled(committed(self._checkpoint))
        if oldest is not None:
            with suppress(FileNotFoundError):  # Spark has forgotten the batch: it cannot be read again
                needs.append(entries_after(self._checkpoint, oldest - 1, self._trunk.inputs))
        for id, store in self._inputs.items():
            # None as well: an earlier version of the fragment may have recorded a need.
            first = min((needed.get(id, 0) for needed in needs), default=None)
            store.record_need(self._fragment, first)
