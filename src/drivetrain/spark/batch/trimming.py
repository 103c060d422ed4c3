"""Deletes what a fragment's channels need not hold any more, and says what it needs of those that it reads.

Problem: who writes a channel deletes from it, who reads it knows what may go; and what was read may be
needed again, to make again what was made of it while that is retained.

Design: every few seconds, from the thread that polls. A damaged entry stops it: that is its reader's to
find, who has it made again.

Invariants: those of `core.channel.channel_log` on trimming. What if we die here: it is done again, a crash
repeats nothing.

Called by `query`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.dead_letters import DeadLetterStore
from drivetrain.spark.batch.offset_log import needed_input
from drivetrain.spark.prepare.trunk import Trunk

TRIM_S = 5.0
"""How often channels are trimmed: a crash repeats nothing for it, so it need not be often."""


class Trimming:
    """Trims `stores` and `letters`, which `fragment` writes, and its sources' stores.

    `inputs` is what it reads.
    """

    def __init__(
        self,
        fragment: str,
        trunk: Trunk,
        checkpoint: Path,
        stores: Mapping[str, ChannelStore],
        inputs: Mapping[str, ChannelStore],
        letters: DeadLetterStore,
    ) -> None:
        self._fragment = fragment
        self._trunk = trunk
        self._checkpoint = checkpoint
        self._stores = stores
        self._inputs = inputs
        self._letters = letters
        self._trimmed_s = time.monotonic()

    def trim(self, trimmed: Callable[[], None]) -> None:
        """Delete what every reader has passed, if it is time; `trimmed` is called then."""
        now_s = time.monotonic()
        if now_s - self._trimmed_s < TRIM_S:
            return
        self._trimmed_s = now_s
        with suppress(MessageLossError):
            for store in self._stores.values():
                positions = store.held()
                if positions:
                    store.trim(positions)
            trimmed()
            self.note_needed()
        for stored in self._trunk.stored.values():
            stored.kept.trim(stored.store)
        self._letters.tidy()

    def note_needed(self) -> None:
        """Say in every input what this fragment would need to make again what its channels hold."""
        if self._stores:
            needed = needed_input(self._checkpoint, self._trunk.inputs, self._stores.values())
            for id, store in self._inputs.items():
                store.record_need(self._fragment, needed.get(id, 0))
