"""The folders in which a sink's prepared batches wait in an object store: each claim has one of its own.

The problem: a process that was taken for lost may be suspended, and wake while another one continues its
application. Both prepare batches of the same numbers, with other rows.

The design: a process prepares batches in the folder of its claim (see `runtime.checkpoints.claim_file`),
which no other process writes to. The sink's own directory, which is copied with each checkpoint, has a note
with the folder, and with the folders of former processes and the last batch that counts of each: it is in
the checkpoint that the successor continues. No process reads what a former one prepares later.

    <dir>/_drivetrain/prepared/<claim>/…      its prepared batches; without a claim they are in `prepared`

What if we die here: the note is written before the first batch of a folder, and a folder without a batch is
empty.

Invariants:

1. A process writes to the folder of its own claim only.
2. A process deletes what counts for nobody: in folders of earlier claims. Those of later claims it leaves.

Called by `stored_rolling`.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.fs as pafs

from drivetrain.connectors.files.output_ownership import OutputDirectory
from drivetrain.connectors.files.publication_manifest import NONE, batch_of
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.whole_files import delete_if_there

ANEW: Final = "0-"
"""How names of claims begin that are not for copied checkpoints; they sort before those that are."""
_ALL: Final = sys.maxsize


class Folders(msgspec.Struct, frozen=True):
    """The folder of a process, and the last batch that counts of each former one, by name."""

    own: str = ""
    before: dict[str, int] = {}

    def continued(self, claim: str, last: int) -> Folders:
        """The folders of the process of another claim, to which batches up to `last` of these count."""
        if claim == self.own:
            return self
        before = {name: min(limit, last) for name, limit in self.before.items()}
        return Folders(claim, {**before, self.own: last})


class PreparedFolders:
    """The folders of one sink, whose own directory on this machine is `state_dir`."""

    def __init__(self, directory: OutputDirectory, state_dir: str, claim: str) -> None:
        self._directory: Final = directory
        self._note: Final = DurableFile(
            Path(state_dir).absolute() / "prepared-in",
            "the note of where a sink prepares batches",
            if_damaged="start from a savepoint, or start over with --fresh",
            if_full="make room, and try again",
        )
        self._folders: Folders | None = None
        self._claim = claim

    @property
    def claim(self) -> str:
        """The claim of this process; "" if it has none."""
        return self._known().own

    @property
    def claims(self) -> set[str]:
        """The claims whose records this process continues."""
        return {self._known().own, *self._known().before}

    @property
    def own(self) -> str:
        """The folder of this process."""
        return self._path(self._known().own)

    def files(self) -> dict[int, pafs.FileInfo]:
        """The batches that were prepared and may count, by number."""
        found: dict[int, pafs.FileInfo] = {}
        for name, limit in (*self._known().before.items(), (self._known().own, _ALL)):
            infos = {batch_of(info.base_name): info for info in self._files_in(self._path(name))}
            found |= {batch: info for batch, info in infos.items() if batch <= limit}
        return found

    def begin_anew(self) -> None:
        """Begin with a claim of its own, if there is none: nothing that a former process prepared counts."""
        if not self.claim:
            self._claim = f"{ANEW}{uuid.uuid4().hex[:8]}"
            self._folders = Folders(self._claim)
            self.keep()

    def claimed(self, claim: str) -> None:
        """Continue the own state directory under another claim."""
        self._claim, self._folders = claim, self._read().continued(claim, _ALL)

    def succeed(self, claim: str, last: int) -> None:
        """Continue a former process, of which batches up to `last` count."""
        self._claim, self._folders = claim, self._read().continued(claim, last)
        self.keep()
        self._sweep(last)

    def keep(self) -> None:
        """Note the folder, durably; to be called before the first batch is prepared there."""
        if self._folders is None or self._folders != self._read():
            self._note.path.parent.mkdir(parents=True, exist_ok=True)
            self._note.write(msgspec.json.encode(self._known()))

    def forget_empty(self) -> None:
        """Forget the folders of former processes in which nothing waits any more."""
        known = self._known()
        left = {
            name: limit
            for name, limit in known.before.items()
            if any(batch_of(info.base_name) <= limit for info in self._files_in(self._path(name)))
        }
        if left != known.before:
            self._folders = Folders(known.own, left)
            self.keep()

    def _sweep(self, last: int) -> None:
        """Delete batches that count for nobody: of former processes that made no checkpoint, and after the
        last one's."""
        known, files = self._known(), self._directory.filesystem
        selector = pafs.FileSelector(self._directory.prepared, allow_not_found=True)
        names = {i.base_name for i in files.get_file_info(selector) if i.type == pafs.FileType.Directory}
        for name in names | {""}:
            if name < known.own or name in known.before:
                limit = known.before.get(name, NONE)
            elif name == known.own:
                limit = last
            else:
                continue
            for info in self._files_in(self._path(name)):
                if batch_of(info.base_name) > limit:
                    delete_if_there(files, info.path)
            if name not in ("", known.own) and not self._files_in(self._path(name)):
                with contextlib.suppress(FileNotFoundError):  # another process has deleted it
                    files.delete_dir(self._path(name))

    def _known(self) -> Folders:
        if self._folders is None:
            found = self._read()
            self._folders = found if self._claim in ("", found.own) else found.continued(self._claim, _ALL)
        return self._folders

    def _read(self) -> Folders:
        return self._note.read_json(Folders) or Folders()

    def _files_in(self, folder: str) -> list[pafs.FileInfo]:
        infos = self._directory.filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return [info for info in infos if info.type == pafs.FileType.File]

    def _path(self, name: str) -> str:
        return f"{self._directory.prepared}/{name}".rstrip("/")
