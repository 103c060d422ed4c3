"""The series of an application's numbered checkpoints in an object store, as its readers see it.

See `copied_checkpoints`, which adds to it.

Called by `packed_checkpoints`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from drivetrain.durable import writing
from drivetrain.runtime.checkpoints.checkpoint_copy import (
    CheckpointCopy,
    damaged_copy,
    decoded,
    replaced_too_fast,
)
from drivetrain.runtime.checkpoints.savepoint_manifest import write_manifest
from drivetrain.runtime.objects.object_store import ObjectStore

_TRIES: Final = 3
_NAME: Final = re.compile(r"[0-9]{20}\.json")


class CheckpointSeries:
    """The checkpoints of one application below `folder` of a store; `place` names it in errors."""

    def __init__(self, store: ObjectStore, folder: str, place: str) -> None:
        self._store: Final = store
        self._checkpoints: Final = f"{folder}/checkpoints".lstrip("/")
        self.place: Final = place

    def newest(self) -> CheckpointCopy | None:
        """The newest checkpoint; None if there is none. Raises SavepointError if it is damaged."""
        for _ in range(_TRIES):
            names = self._checkpoint_names()
            if not names:
                return None
            try:
                return decoded(self._store.get(max(names)), f"{self.place}: {max(names)}")
            except FileNotFoundError:  # there is a newer one by now
                continue
        raise replaced_too_fast(self.place)

    def fetch(self, copy: CheckpointCopy, directory: Path) -> None:
        """Write the files of a checkpoint to an empty directory, with its manifest.

        Raises SavepointError if it is damaged, UnavailableError if newer ones have replaced it meanwhile.
        """
        assert copy.manifest is not None
        files = sorted(copy.manifest.files.items(), key=lambda item: copy.places.get(item[1].sha256, ("", 0)))
        pack, content = "", b""
        try:
            for name, file in files:
                place, start = copy.places[file.sha256]
                if place != pack and file.size:
                    pack, content = place, self._store.get(place)
                with writing("the checkpoint that is fetched", directory):
                    (directory / name).parent.mkdir(parents=True, exist_ok=True)
                    (directory / name).write_bytes(content[start : start + file.size])
        except (FileNotFoundError, KeyError) as error:
            if self._has_later(copy.number):
                raise replaced_too_fast(self.place) from error
            raise damaged_copy(f"{self.place}: {self._name(copy.number)}", f"no {error}") from error
        write_manifest(directory, copy.manifest)

    def changes_of(self, copy: CheckpointCopy) -> dict[str, bytes]:
        """The content of the files that say how the application has changed, by name.

        Raises the errors of `fetch`.
        """
        packs: dict[str, bytes] = {}
        found: dict[str, bytes] = {}
        try:
            for name, file in copy.changes.items():
                pack, start = copy.places[file.sha256]
                if file.size and pack not in packs:
                    packs[pack] = self._store.get(pack)
                found[name] = packs.get(pack, b"")[start : start + file.size]
                if hashlib.sha256(found[name]).hexdigest() != file.sha256:
                    raise damaged_copy(f"{self.place}: {self._name(copy.number)}", f"another {name}")
        except (FileNotFoundError, KeyError) as error:
            if self._has_later(copy.number):
                raise replaced_too_fast(self.place) from error
            raise damaged_copy(f"{self.place}: {self._name(copy.number)}", f"no {error}") from error
        return found

    def _name(self, number: int) -> str:
        return f"{self._checkpoints}/{number:020d}.json"

    def _names_in(self, folder: str, after: str = "") -> list[str]:
        return [found.path for page in self._store.pages(folder, after) for found in page]

    def _checkpoint_names(self, after: str = "") -> list[str]:
        """The names of checkpoints, without other files in the folder: backups, notes."""
        start = len(self._checkpoints) + 1
        return [name for name in self._names_in(self._checkpoints, after) if _NAME.fullmatch(name[start:])]

    def _has_later(self, number: int) -> bool:
        return bool(self._checkpoint_names(self._name(number)))
