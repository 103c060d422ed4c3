"""The newest timestamps of a fragment's inputs, stored for its next query.

Problem: the clock of a fragment with several inputs is the smallest of theirs. A new query knows the clock,
but not how far each input was: an input that stays silent after a restart would hold the clock where it was,
although the input had already been further. Spark does not keep the watermarks of single inputs, either.

Design: a small file in the fragment's directory, written in a batch before its entries are appended, if the
batch has changed anything. It holds the newest timestamps after that batch, and those before it: Spark may
run the batch again, which then begins with the same timestamps as the first time. Snapshots and savepoints
include the file, so a fragment that is restored has the timestamps of that time.

What if we die here: the record of a batch that Spark has not committed is not read.

Invariants:

1. The timestamps read for a batch were written in that batch or an earlier one.

Called by `fragment_clock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.runtime.durable_file import DurableFile

FILE: Final = "newest-timestamps"
_REMEDY: Final = "delete the file: the clock waits for the next message of every input, and nothing is lost"


class NewestTimestamps(msgspec.Struct, frozen=True):
    """The largest timestamp (ms) of an event time so far, and of each partition if its source has several."""

    newest_ms: int | None = None
    by_partition: dict[int, int] = {}


class _AfterBatch(msgspec.Struct, frozen=True):
    batch_id: int
    newest: dict[str, NewestTimestamps]


class NewestRecord:
    """The record in the directory of a fragment."""

    def __init__(self, directory: Path) -> None:
        self._file = DurableFile(
            directory / FILE,
            "the newest timestamps of a fragment's inputs",
            if_damaged=_REMEDY,
            if_full="make room, and run the same command again: it continues where it stopped",
        )
        self._noted: list[_AfterBatch] | None = None

    def read(self, batch_id: int) -> Mapping[str, NewestTimestamps]:
        """The newest timestamps after batch `batch_id`, by the processor that assigned them.

        Raises InputError when the file is damaged.
        """
        return next((n.newest for n in reversed(self._all()) if n.batch_id <= batch_id), {})

    def note(self, batch_id: int, newest: Mapping[str, NewestTimestamps]) -> None:
        """Store the timestamps after batch `batch_id`; the last batch before it is kept.

        Raises DiskFullError, and OutputError when the file may not be written.
        """
        before = [n for n in self._all() if n.batch_id < batch_id][-1:]
        if before and before[0].newest == newest and self._all()[-1:] == before:
            return
        noted = [*before, _AfterBatch(batch_id, dict(newest))]
        self._file.write(msgspec.json.encode(noted))
        self._noted = noted

    def _all(self) -> list[_AfterBatch]:
        if self._noted is None:
            self._noted = self._file.read_json(list[_AfterBatch]) or []
        return self._noted
