"""Collects the files of a copied checkpoint in packs, and sends only what is not in the store yet.

Problem: a checkpoint has hundreds of files, most of them small and unchanged since the last one, and a store
charges for each request.

Design: files are known by the SHA-256 of their content. Contents that no pack has are concatenated, and
uploaded as one object, or several when there is much. A file that was not changed since its hash was
computed is not read again. If little of a pack is still needed, that part is sent again, and the pack can
be deleted.

Called by `copied_checkpoints`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from drivetrain.runtime.checkpoints.checkpoint_parts import SINKS
from drivetrain.runtime.checkpoints.savepoint_manifest import SavedFile
from drivetrain.runtime.objects.object_store import ObjectStore

PACK_BYTES: Final = 64 * 2**20
_SPARSE: Final = 0.3
"""A pack is given up when less than this share of it, and less than `_SMALL_BYTES`, is needed."""
_SMALL_BYTES: Final = 8 * 2**20

Hashes: TypeAlias = "dict[tuple[int, int, int, int], SavedFile]"
"""By device, inode, size and time of modification: a file with the same values was not changed."""


class PackBuilder:
    """Collects the files of one checkpoint, and uploads those that no pack has yet.

    `places` are those of the files that are there; `hashes` are known from the checkpoint before.
    """

    def __init__(
        self, store: ObjectStore, prefix: str, places: Mapping[str, tuple[str, int]], hashes: Hashes
    ) -> None:
        self.places: Final = dict(places)
        self.sizes: Final[dict[str, int]] = {}
        self.files: Final[dict[str, SavedFile]] = {}
        self.hashes: Final[Hashes] = {}
        self._before: Final = hashes
        self._store: Final = store
        self._prefix: Final = prefix
        self._pack = bytearray()

    def take(self, name: str, path: Path) -> None:
        """Add a file; one of a sink may be gone, because it was published meanwhile."""
        try:
            found = os.stat(path)
            key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            file = self._before.get(key)
            if file is None or file.sha256 not in self.places:
                content = path.read_bytes()
                file = SavedFile(len(content), hashlib.sha256(content).hexdigest())
                self._place(file, content)
        except FileNotFoundError:
            if name.startswith(f"{SINKS}/"):
                return
            raise
        self.files[name] = self.hashes[key] = file

    def take_content(self, name: str, content: bytes) -> None:
        """Add a file that is on no disk yet."""
        file = SavedFile(len(content), hashlib.sha256(content).hexdigest())
        self._place(file, content)
        self.files[name] = file

    def _place(self, file: SavedFile, content: bytes) -> None:
        if file.sha256 in self.places:
            return
        if self._pack and len(self._pack) + len(content) > PACK_BYTES:
            self.finish()
        self.places[file.sha256] = (self._name if content else "", len(self._pack))
        self._pack += content

    @property
    def _name(self) -> str:
        return f"{self._prefix}-{len(self.sizes)}"

    def finish(self) -> None:
        """Upload the pack that is being collected."""
        if self._pack:
            name = self._name
            self._store.put(name, bytes(self._pack))
            self.sizes[name] = len(self._pack)
            self._pack = bytearray()


def kept_places(
    files: Mapping[str, SavedFile], places: Mapping[str, tuple[str, int]], packs: Mapping[str, int]
) -> dict[str, tuple[str, int]]:
    """The places of files that stay where they are: not those of packs of which little is needed.

    `places` has, by the SHA-256 of a file, its pack and where it begins there; `packs` the sizes of packs.
    """
    sizes = {file.sha256: file.size for file in files.values()}
    needed: dict[str, int] = {}
    for sha, (pack, _) in places.items():
        needed[pack] = needed.get(pack, 0) + sizes.get(sha, 0)
    sparse = {pack for pack, size in packs.items() if needed.get(pack, 0) < min(_SPARSE * size, _SMALL_BYTES)}
    return {sha: place for sha, place in places.items() if place[0] not in sparse}
