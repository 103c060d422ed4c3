"""The beginning of a channel that was added to a running application.

Problem: a channel that an application has from its start has an entry for every batch of its producer. One
that is added later has entries from some batch on. A search for losses must know from which; and a
window of its reader is whole only if no message of it came before that.

Design: a durable file `begins` beside the log. It is written, without a batch, before the version with the
channel can come into force; and again, with the producer's last batch before the channel, when the producer
switches to that version. Then an entry without messages is appended for that batch, which carries the
producer's clock: so the log has an entry for every batch from there on, and its reader the right clock.

What if we die here: a channel without a batch in its file has not begun, and its producer begins it when it
starts, or at a later batch. If the file names a batch and the log is empty, only the entry is missing.

Invariants:

1. A channel that has begun has every message of its producer's batches after the one in the file.
2. The place where a channel begins does not change once an entry of it exists.

A channel whose reader also gets messages from before it has entries for those first, of another producer
(`former_producer`): they belong to no batch of the fragment that writes the channel. Such a channel is made
elsewhere, whole, and put in its place in one step.

Called by `version_changes` (begins channels), `whole_windows`, `spark.run.fragment_changes` and
`spark.run.message_histories`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.durable_file import DurableFile

if TYPE_CHECKING:
    from drivetrain.runtime.channel.store import ChannelStore

FILE: Final = "begins"


def former_producer(fragment: str) -> str:
    """The producer, by name, of the entries with earlier messages in a channel that a fragment writes."""
    return f"{fragment}, before"


class BeginningRecord(msgspec.Struct, frozen=True):
    """Where a channel begins: after batch `after` of its producer (None: not yet), -1 for its first batch.

    `newest_ms` is the largest timestamp of messages that the channel may lack; None: it lacks none. The first
    `former` entries have messages of batches before that, which were read again for this channel.
    """

    after: int | None = None
    newest_ms: int | None = None
    former: int = 0


class ChannelBeginning:
    """The beginning of the channel whose directory is `uri`."""

    def __init__(self, uri: str) -> None:
        self._file: Final = DurableFile(
            Path(uri) / FILE,
            "where a channel begins",
            if_damaged="start the application over with --fresh",
            if_full="make room, and run the same command again: it continues where it stopped",
        )

    @property
    def is_late(self) -> bool:
        """Whether the channel was added while the application ran."""
        return self._file.path.exists()

    def read(self) -> BeginningRecord | None:
        """Where it begins; None for a channel that the application has from its start. Raises InputError."""
        return self._file.read_json(BeginningRecord) if self.is_late else None

    def prepare(self) -> None:
        """The channel is added with the next version: it has not begun; what was there stays."""
        self._file.path.parent.mkdir(parents=True, exist_ok=True)
        self._file.write(msgspec.json.encode(BeginningRecord()))

    def is_open(self, store: ChannelStore, newest: int) -> bool:
        """Whether batches up to `newest`, the last committed one, need no entry: it begins after them."""
        if not self.is_late or store.length():
            return False
        begins = self.read()
        return begins is not None and begins.after in (None, newest)

    def begin_with_former(self, last: int, former: int, newest_ms: int) -> None:
        """Record that the channel has `former` entries with earlier messages, then begins after batch `last`.

        The entries are there already, and the channel is not in its place yet.
        """
        self._file.write(msgspec.json.encode(BeginningRecord(last, newest_ms, former)))

    @property
    def former(self) -> int:
        """How many entries have messages that were read again. Raises InputError."""
        begins = self.read()
        return 0 if begins is None else begins.former

    def begin(self, store: ChannelStore, last: int, clock_ms: int | None, newest_ms: int | None) -> None:
        """Begin the channel after the producer's batch `last` (-1: none), at its clock; once only."""
        if not self.is_open(store, last):
            return
        self._file.write(msgspec.json.encode(BeginningRecord(last, newest_ms)))
        maybe_crash(CrashPoint.CHANNEL_BEGINS)
        if last >= 0:
            store.append(last, [], NO_CLOCK_MS if clock_ms is None else clock_ms)
