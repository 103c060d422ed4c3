"""Snapshots: copies of what a fragment needs to continue after one of its batches.

Problem: an application's checkpoint must remain usable when Spark's own checkpoint of a fragment is lost or
damaged. A snapshot is taken as often as once a second, of state that may be large.

    <snapshots>/<fragment>/<round>/…     the fragment's directory, as it was between two batches

Design: a snapshot has the offsets and the commit of the batch from Spark's checkpoint, and the files of the
state up to its version, from the last full one on. Spark never changes a state file, so files that the
previous snapshot has are linked to it; only new ones are copied, and compared with their checksum if there is
one: the cost follows what changed. Copies, not links to Spark's own files: damage there must not reach them.
For the same reason a file of an earlier snapshot is never copied again, even if Spark's has another size by
now: Spark reads its state when it starts, so damage may be found many snapshots later. A snapshot is written
to a temporary directory, synced, and renamed.

Invariants:

1. A snapshot that exists is complete.
2. Nothing in a snapshot is changed, and no file of it is Spark's own.
3. The last remaining snapshot stays until there is a newer one.
4. All snapshots of a fragment are of one history: going back to one deletes the later ones, and those of a
   former fragment of its name are not its own.

Called by `participation`, `restoring` and savepoints.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from drivetrain.durable import new_file, publish_directory, writing
from drivetrain.errors import DrivetrainError, InputError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.checkpoints.hadoop_checksum import ChecksumVerifier, checksums_of
from drivetrain.runtime.former_snapshots import NO_ROUND, newest_former, saved_rounds
from drivetrain.runtime.fragment_places import FIRST_BATCH
from drivetrain.runtime.state.divided_state import DIRECTORY as DIVIDED
from drivetrain.runtime.state.dropped_state import DIRECTORY as DROPPED
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.runtime.state_pictures import DIRECTORY as PICTURES

_VERSIONED: Final = re.compile(r"(\d+)(?:_[\w-]+)?\.(changelog|delta|zip|snapshot)")
_FULL: Final = ("zip", "snapshot")
_HOLD: Final = "held"
"""The file whose lock keeps snapshots from being deleted; the lock ends with its holder."""
RELEASED: Final = "released"
"""The file in a fragment's directory with the round of the last barrier that no longer holds its readers."""

_IF_FULL: Final = "make room: the checkpoint is tried again"

_NOT_KEPT: Final = frozenset(("checkpoint", "again", DIVIDED, DROPPED, "lock", RELEASED))
"""Names in a fragment's directory that are not part of its state, or are copied in another way."""


_BLOCK: Final = 1 << 20
"""How many bytes are copied at a time."""
_REPLACED_S: Final = 0.2
"""How long Spark may take between renaming a file and renaming its checksum."""


class StateFileDamagedError(InputError):
    """A file of Spark's checkpoint does not match its checksum."""


class Snapshots:
    """The snapshots below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory

    def place(self, fragment: str, round: int) -> Path:
        """The directory of a round's snapshot, whether or not it exists."""
        return self.directory / fragment / str(round)

    def rounds(self, fragment: str) -> list[int]:
        """The rounds that have a snapshot, ascending; without those of a former fragment of that name."""
        saved = saved_rounds(self.directory, fragment)
        former = newest_former(self.directory, fragment) if saved else NO_ROUND
        return [round for round in saved if round > former]

    def take(self, fragment: str, round: int, own: Path, batch_id: int) -> int:
        """Save a fragment, whose directory is `own`, as it is after a batch (-1: before its first).

        No batch may run meanwhile. Returns the total size of the snapshot in bytes; raises
        StateFileDamagedError, DiskFullError, and OutputError when it cannot be written.
        """
        target = self.place(fragment, round)
        aside = target.with_name(f".{round}.tmp")
        before = max((r for r in self.rounds(fragment) if r < round), default=None)
        known = None if before is None else self.place(fragment, before)
        try:
            with writing(f"the snapshot of fragment {fragment}", target, if_full=_IF_FULL):
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
                size = 0
                folders: set[Path] = set()
                for file, is_fixed in _parts(own, batch_id, known):
                    copy = aside / file
                    if copy.parent not in folders:
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        folders.add(copy.parent)
                    size += _kept(own / file, copy, known / file if known is not None and is_fixed else None)
                shutil.rmtree(target, ignore_errors=True)
                publish_directory(aside, target)
        except DrivetrainError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return size

    def restore(self, fragment: str, round: int | None, own: Path) -> None:
        """Restore a fragment's directory from a snapshot (None: empty it); raises InputError if there is
        none.

        Later snapshots are deleted: the fragment may now process other batches with the same numbers. As
        outputs see them, its numbers begin where they did.
        What if we die here: the restore is repeated, from the same snapshot.
        """
        source = None if round is None else self.place(fragment, round)
        if source is not None and not source.is_dir():
            raise InputError(
                f"the snapshot of fragment {fragment} is gone",
                where=str(source),
                expected=f"the one of round {round}",
                got=f"rounds {self.rounds(fragment)}",
                remedy="start from a savepoint, or start over with --fresh",
            )
        for later in self.rounds(fragment):
            if round is None or later > round:
                self.drop(fragment, later)
        with writing(f"the state of fragment {fragment}", own):
            own.mkdir(parents=True, exist_ok=True)
            for child in own.iterdir():
                if child.name in ("lock", FIRST_BATCH):
                    continue
                if child.is_dir():
                    shutil.rmtree(child)
                else:
                    child.unlink()
            if source is not None:
                shutil.copytree(source, own, dirs_exist_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the block copies snapshots, no process deletes any."""
        self.directory.mkdir(parents=True, exist_ok=True)
        hold = FileLock(self.directory / _HOLD)
        hold.wait(shared=True)
        try:
            yield
        finally:
            hold.release()

    def forget(self, fragment: str, before: int) -> None:
        """Delete the snapshots of earlier rounds, and unfinished ones.

        While snapshots are held, nothing is deleted; the next call deletes them.
        """
        parent = self.directory / fragment
        if not parent.is_dir():
            return
        hold = FileLock(self.directory / _HOLD)
        try:
            if hold.take():
                self._forget(parent, before)
        finally:
            hold.release()

    def _forget(self, parent: Path, before: int) -> None:
        for path in parent.iterdir():
            if path.name.startswith(".") or (path.name.isdigit() and int(path.name) < before):
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, fragment: str, round: int) -> None:
        """Delete the snapshot of an abandoned round."""
        shutil.rmtree(self.place(fragment, round), ignore_errors=True)


def _parts(own: Path, batch_id: int, known: Path | None) -> Iterator[tuple[Path, bool]]:
    """The files of a fragment's state after a batch, each with whether a file of such a name never changes.

    Includes state files that only the previous snapshot has. Raises StateFileDamagedError if some are
    missing.
    """
    for path, folders, names in os.walk(own):
        if Path(path) == own:
            folders[:] = [folder for folder in folders if folder not in _NOT_KEPT]
        for name in names:
            if not name.startswith(".") and name not in _NOT_KEPT:
                file = (Path(path) / name).relative_to(own)
                yield file, file.parts[0] == PICTURES
    checkpoint = own / "checkpoint"
    if batch_id < 0 or not checkpoint.is_dir():
        return
    yield Path("checkpoint/metadata"), False
    for number in range(max(0, batch_id - 1), batch_id + 1):  # Spark needs the batch before, too
        yield Path(f"checkpoint/offsets/{number}"), True
    yield Path(f"checkpoint/commits/{batch_id}"), True
    partitions = state_partitions(checkpoint, batch_id)
    for folder in ("state", "sources"):
        for path, _, names in os.walk(checkpoint / folder):
            if folder == "state" and _is_left(Path(path).relative_to(checkpoint / folder), partitions):
                continue
            if known is not None:
                before = known / Path(path).relative_to(own)
                names = sorted({*names, *(_file_names(before) if before.is_dir() else ())})
            needed = _needed(names, batch_id + 1)
            _require_all(path, needed, batch_id + 1)
            for name in needed:
                is_fixed = folder == "sources" or _VERSIONED.fullmatch(name) is not None
                yield (Path(path) / name).relative_to(own), is_fixed


def _is_left(path: Path, partitions: int | None) -> bool:
    """Whether a directory is of a partition from before the state was divided into fewer.

    State directories are `<operator>/<partition>`, and `<operator>/_metadata`.
    """
    parts = path.parts
    return len(parts) > 1 and parts[1].isdigit() and partitions is not None and int(parts[1]) >= partitions


def _needed(names: list[str], version: int) -> list[str]:
    """Of the files of one part of a state, those that `version` consists of, and all without a version."""
    versions = {name: _VERSIONED.fullmatch(name) for name in names if not name.startswith(".")}
    full = [int(m[1]) for m in versions.values() if m is not None and m[2] in _FULL and int(m[1]) <= version]
    first = max(full, default=0)
    return [
        name
        for name, match in versions.items()
        if match is None
        or (int(match[1]) == first and match[2] in _FULL)
        or (first < int(match[1]) <= version and match[2] not in _FULL)
    ]


def _require_all(path: str, needed: list[str], version: int) -> None:
    """Spark writes a file of each part of a state in every batch; a missing one was deleted."""
    found = {int(match[1]) for name in needed if (match := _VERSIONED.fullmatch(name))}
    missing = set(range(min(found), version + 1)) - found if found else set()
    if found and (missing or not any(_is_first(name) for name in needed)):
        raise _damaged(Path(path), "a file of Spark's state is missing")


def _file_names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.is_file()]


def _is_first(name: str) -> bool:
    """Whether a state can begin with this file: it has all of the state, or its first change."""
    match = _VERSIONED.fullmatch(name)
    return match is not None and (match[2] in _FULL or int(match[1]) == 1)


def _damaged(place: Path, what: str) -> StateFileDamagedError:
    return StateFileDamagedError(
        what,
        where=str(place),
        remedy="with checkpoint.mode=on the application goes back to its last checkpoint automatically; "
        "else start from a savepoint, or start over with --fresh",
    )


def _kept(file: Path, copy: Path, known: Path | None) -> int:
    """Copy a file, or link to an existing copy; returns its size, 0 if it is gone and so not needed."""
    if known is not None:
        with suppress(FileNotFoundError):
            os.link(known, copy)
            return copy.stat().st_size
    with suppress(FileNotFoundError):
        size = _copied(file, copy)
        if size is None:
            # Spark renames a file first and then its checksum: it may have replaced both just now.
            time.sleep(_REPLACED_S)
            size = _copied(file, copy)
        if size is None:
            raise _damaged(file, "a file of Spark's checkpoint is not as Spark wrote it")
        return size
    return 0


def _copied(file: Path, copy: Path) -> int | None:
    """Copy a file; returns its size, or None if it does not match its checksum."""
    with open(file, "rb") as source, new_file(copy) as target:
        checksums = checksums_of(file)
        checking = None if checksums is None else ChecksumVerifier(checksums)
        while block := source.read(_BLOCK):
            target.write(block)
            if checking is not None:
                checking.add(block)
        return target.tell() if checking is None or checking.is_whole() else None
