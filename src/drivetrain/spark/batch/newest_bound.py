"""An upper bound of the timestamps that a fragment has seen, which survives the process.

Problem: a change that takes effect at a time T is exact only if no message of T or later was processed
before. After a crash, a query knows only the timestamps of the batches since the crash.

Design: a small file in the fragment's directory holds a bound. When a batch has a timestamp beyond the bound,
it writes a new bound, a minute later than the timestamp, before Spark commits the batch. So a stream of
current messages writes once a minute, and after a crash the bound is at most a minute too large. Snapshots
and savepoints include the file.

What if we die here: the batch that was to raise the bound is not committed, and runs again.

Invariants:

1. No message of a committed batch has a timestamp beyond the bound.

Called by `fragment_clock`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drivetrain.runtime.durable_file import DurableFile

FILE: Final = "newest-bound"
AHEAD_MS: Final = 60_000
"""How much later than the newest message a newly written bound is."""


class NewestBound:
    """The bound in the directory of a fragment, in ms; one process at a time writes it."""

    def __init__(self, directory: Path) -> None:
        self._file: Final = DurableFile(
            directory / FILE,
            "how far in time the messages of a fragment have come",
            if_damaged="delete the file: a change may then take effect at a time before messages that are "
            "processed already, so give it one after them",
            if_full="make room, and run the same command again: it continues where it stopped",
        )
        self._stored_ms: int | None = None
        self._is_read = False
        self._seen_ms: int | None = None  # in this process
        self._found_ms: int | None = None  # what an earlier process has left

    @property
    def bound_ms(self) -> int | None:
        """No message had a later timestamp; None: there was no message. Raises InputError for a damaged
        file."""
        self._read()
        known = [ms for ms in (self._found_ms, self._seen_ms) if ms is not None]
        return max(known, default=None)

    def observe(self, newest_ms: int) -> None:
        """A batch that is not committed yet has a message of this time; raises what `DurableFile` raises."""
        self._read()
        if self._stored_ms is None or newest_ms > self._stored_ms:
            self._file.write(str(newest_ms + AHEAD_MS).encode())
            self._stored_ms = newest_ms + AHEAD_MS
        if self._seen_ms is None or newest_ms > self._seen_ms:
            self._seen_ms = newest_ms

    def _read(self) -> None:
        if self._is_read:
            return
        content = self._file.read()
        try:
            self._stored_ms = self._found_ms = None if content is None else int(content)
        except ValueError as error:
            raise self._file.damaged(str(error)) from error
        self._is_read = True
