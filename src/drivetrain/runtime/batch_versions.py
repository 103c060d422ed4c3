"""Records the version of the graph with which each batch of a fragment first ran.

Problem: an interrupted batch runs again, perhaps in another process and after the application was changed.
Some outputs already have its results. The others must get results of the same code.

Design: a small file in the fragment's directory lists versions, each with the first batch that ran with it.
It is written before the first batch of a version, so most batches write nothing. A batch that ended with an
error, not with a crash, is recorded as free: any version may run it, so corrected code can.

What if we die here: before the file is written, no output has received anything of the batch, and any version
may run it. A batch that failed and was not recorded as free keeps its version.

Invariants:

1. A batch that may have written to an output, and is not recorded as free, has a version.
2. That version changes only when the batch is recorded again.

Called by `spark.batch.query_versions`, and by repairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.channel.channel_log import NO_BATCH
from drivetrain.runtime.durable_file import DurableFile

FILE: Final = "batch-versions"
_KEPT: Final = 100


class VersionSpan(msgspec.Struct, frozen=True):
    """The batches from `batch_id` on ran with `version`; with `before`, too, if that hands over to it."""

    batch_id: int
    version: int
    before: int = 0


class _Noted(msgspec.Struct, frozen=True):
    since: tuple[VersionSpan, ...] = ()
    free: int = NO_BATCH


class BatchVersions:
    """The record in the directory of a fragment; one process at a time writes it."""

    def __init__(self, directory: Path) -> None:
        self._file: Final = DurableFile(
            directory / FILE,
            "which version of the graph the batches of a fragment ran with",
            if_damaged="delete the file: a batch that runs again then runs the version in force",
            if_full="make room, and run the same command again: it continues where it stopped",
        )
        self._noted: _Noted | None = None

    def version_of(self, batch_id: int) -> int | None:
        """The version that a batch first ran with; None: any may run it. Raises InputError when damaged."""
        since = self.since_of(batch_id)
        return None if since is None else since.version

    def since_of(self, batch_id: int) -> VersionSpan | None:
        """The result of `version_of`, with the version that hands over to it."""
        noted = self._all()
        if batch_id == noted.free:
            return None
        return next((since for since in reversed(noted.since) if since.batch_id <= batch_id), None)

    def newest(self) -> int | None:
        """The version of the newest batch; None when none is noted. Raises InputError when damaged."""
        since = self.newest_since()
        return None if since is None else since.version

    def newest_since(self) -> VersionSpan | None:
        """The result of `newest`, with the version that hands over to it."""
        noted = self._all()
        return noted.since[-1] if noted.since else None

    def has_run_alone(self, number: int) -> bool:
        """Whether a batch ran with a version without the one before it; raises InputError when damaged.

        A later version, which was rolled back, may have run since: that says nothing of this one.
        """
        return any((since.version, since.before) == (number, 0) for since in self._all().since)

    def note(self, batch_id: int, version: int, before: int = 0) -> None:
        """Record that a batch and those after it run with a version; raises what `DurableFile` raises.

        `before` is the version that hands over to it, while both run.
        """
        noted = self._all()
        kept = [since for since in noted.since if since.batch_id < batch_id]
        if not kept or (kept[-1].version, kept[-1].before) != (version, before):
            kept.append(VersionSpan(batch_id, version, before))
        self._write(_Noted(tuple(kept[-_KEPT:])))

    def note_free(self, batch_id: int) -> None:
        """Record that a batch has failed or did not begin, so that any version may run it."""
        self._write(msgspec.structs.replace(self._all(), free=batch_id))

    def _write(self, noted: _Noted) -> None:
        if noted != self._all():
            self._file.write(msgspec.json.encode(noted))
            self._noted = noted

    def _all(self) -> _Noted:
        if self._noted is None:
            self._noted = self._file.read_json(_Noted) or _Noted()
        return self._noted
