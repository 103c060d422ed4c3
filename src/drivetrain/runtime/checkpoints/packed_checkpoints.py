"""The objects of an application's copied checkpoints: how their owner packs files, and deletes old objects.

Design: see `copied_checkpoints`. What is sent is packed (`checkpoint_packs`); what no checkpoint needs any
more is deleted after the next one.

Invariants:

1. Nothing is deleted that the last checkpoint needs, or the one before it.

Called by `copied_checkpoints`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from drivetrain.errors import DrivetrainError
from drivetrain.runtime.checkpoints.checkpoint_copy import CheckpointCopy
from drivetrain.runtime.checkpoints.checkpoint_packs import Hashes, PackBuilder, kept_places
from drivetrain.runtime.checkpoints.checkpoint_series import CheckpointSeries
from drivetrain.runtime.objects.object_store import ObjectStore

_NOTHING: Final[Mapping[str, bytes]] = {}


class PackedCheckpoints(CheckpointSeries):
    """The series below `folder` of a store, to which one owner adds; `place` names it in errors."""

    def __init__(self, store: ObjectStore, folder: str, place: str) -> None:
        super().__init__(store, folder, place)
        self._packs: Final = f"{folder}/packs".lstrip("/")
        self._owner = ""
        self._numbers: list[int] = []
        """The checkpoints of this process that are there, ascending."""
        self._made: set[str] = set()
        """The packs that are there and not deleted yet."""
        self._hashes: Hashes = {}

    def _packing(self, last: CheckpointCopy) -> PackBuilder:
        known = last.changes if last.manifest is None else last.manifest.files | last.changes
        kept = kept_places(known, last.places, last.packs)
        prefix = f"{self._packs}/{self._owner}/{last.number + 1:020d}-{uuid.uuid4().hex[:8]}"
        return PackBuilder(self._store, prefix, kept, self._hashes)

    def _pack(
        self, packing: PackBuilder, files: Iterable[tuple[str, Path]], more: Mapping[str, bytes] = _NOTHING
    ) -> None:
        """Upload files, or their content if `more` has it, as far as no pack has it."""
        try:
            for name, path in files:
                if name not in more:
                    packing.take(name, path)
            for name, content in more.items():
                if content:
                    packing.take_content(name, content)
            packing.finish()
        finally:
            self._made |= packing.sizes.keys()

    # -- deleting --------------------------------------------------------------------------------------

    def _forget_older(self, needed: Collection[str]) -> None:
        """Delete what neither the last checkpoint nor the one before it needs: a process may be reading the
        latter."""
        older, self._numbers = self._numbers[:-2], self._numbers[-2:]
        self._delete([*map(self._name, older), *(self._made - set(needed))])
        self._made &= set(needed)

    def _sweep(self, last: CheckpointCopy, packs: Iterable[str]) -> None:
        """Delete what former processes have left; only for the process that has claimed a number.

        Of the `packs` that were there before, nobody can need those that `last` does not name. Others may be
        a successor's: this process may have been suspended since its claim.
        """
        newest = self._name(last.number)
        self._delete([name for name in self._checkpoint_names() if name < newest])
        self._delete([pack for pack in packs if pack not in last.packs])
        self._made, self._numbers = set(last.packs), [last.number]

    def _delete(self, paths: Iterable[str]) -> None:
        try:
            for path in paths:
                self._store.delete(path)
        except (DrivetrainError, PermissionError):
            return  # the next process that claims a number sweeps it up
