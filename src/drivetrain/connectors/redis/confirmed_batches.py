"""The batches that Redis has confirmed, kept for a while in case it loses them.

The problem: Redis confirms a batch before its own disk has it. So a batch that was confirmed must not be
dropped at once, and the sink must know whether it still has all the batches that Redis lost.

The design: batches stay in the outbox until `keep` after they were confirmed. Beside the outbox,

    publication.json   the last batch that was confirmed
    settled.json       the last batch that was dropped after it was confirmed

Everything that was confirmed after `settled` is in the outbox. After a restart, `keep` begins again for what
is there. A savepoint has no confirmed batches, so where the last one is missing, all count as dropped.

What if we die here: `settled` is written before a batch is dropped, so what it does not cover is complete.

Invariants:

1. A batch that was confirmed leaves the outbox only after `keep`.
2. `settled` covers every batch that was dropped after it was confirmed.

Called by `redis_writer`.
"""

from __future__ import annotations

import json
import time

import pyarrow.fs as pafs

from drivetrain.connectors.outbox import Outbox
from drivetrain.core.checkpoint.publication import NONE, Publication
from drivetrain.runtime.whole_files import publish_bytes

_TIDY_S = 10.0
"""How often batches are dropped, each time all that are due: it costs a synced file."""


class ConfirmedBatches:
    """The batches of an outbox that were confirmed."""

    def __init__(self, outbox: Outbox, keep_ms: int) -> None:
        self._outbox = outbox
        self._keep_s = keep_ms / 1000
        self._file = outbox.note.parent / "settled.json"
        self._since_s: dict[int, float] = {}
        self._tidied_s = 0.0

    def recall(self, published: int) -> None:
        """Begin to keep those up to `published`, which earlier processes have confirmed."""
        now_s = time.monotonic()
        self._since_s = {id: now_s for id in self._outbox.batches() if id <= published}
        if published not in self._since_s and published > self.settled():
            self._settle(published)

    def confirm(self, known: Publication) -> Publication:
        """Store durably that everything up to a batch is confirmed; returns it."""
        self._outbox.keep(known)
        self._since_s[known.published] = time.monotonic()
        return known

    def settled(self) -> int:
        """The last batch that was dropped."""
        try:
            return int(json.loads(self._file.read_text())["batch"])
        except FileNotFoundError:
            return NONE

    def tidy(self) -> None:
        """Drop batches that were confirmed long enough ago."""
        now_s = time.monotonic()
        if now_s - self._tidied_s < min(_TIDY_S, self._keep_s):
            return
        self._tidied_s = now_s
        due = sorted(id for id, since_s in self._since_s.items() if now_s - since_s >= self._keep_s)
        if not due:
            return
        self._settle(max(due[-1], self.settled()))
        for id in due:
            self._outbox.drop(id)
            del self._since_s[id]

    def forget(self) -> None:
        """Forget what was dropped."""
        self._file.unlink(missing_ok=True)
        self._since_s.clear()

    def _settle(self, batch: int) -> None:
        content = json.dumps({"batch": batch}).encode()
        publish_bytes(pafs.LocalFileSystem(), str(self._file), content)
