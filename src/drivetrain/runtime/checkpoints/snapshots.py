"""Snapshots: copies of what a fragment needs to go on from one of its batches.

Problem: a checkpoint of the application must hold when Spark's own checkpoint of a fragment is lost or
damaged. It is taken once a second, from state that may be large.

    <snapshots>/<fragment>/<round>/…     the fragment's directory, as it was between two batches

Design: of Spark's checkpoint the batch's offsets and commit and the state's files up to its version: from
the last full one on. Spark never changes a file of its state, so what the snapshot before has is a link to
that, and only what is new is copied, and compared with its checksum if it has one: the cost follows what
changed. A copy, not a link to Spark's own file: damage there must not reach it. For the same reason a file
that an earlier snapshot has is never copied again, even if Spark's has another size by now: Spark reads its
state when it starts, so damage may be found many snapshots later. All of it is written aside, synced, and
renamed.

Invariants:

1. A snapshot that is there is whole.
2. Nothing in a snapshot is changed, and no file of it is Spark's own.
3. The last snapshot that was not forgotten stays until a newer one is kept.
4. All snapshots of a fragment are of one history: going back to one deletes the later ones.

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

from drivetrain.errors import DrivetrainError, InputError
from drivetrain.runtime.checkpoints.hadoop_checksum import Checking, checksums_of
from drivetrain.runtime.durable import new_file, publish_directory, writing
from drivetrain.runtime.file_lock import FileLock
from drivetrain.runtime.state_pictures import DIRECTORY as PICTURES

_VERSIONED: Final = re.compile(r"(\d+)(?:_[\w-]+)?\.(changelog|delta|zip|snapshot)")
_FULL: Final = ("zip", "snapshot")
_HOLD: Final = "held"
"""The file whose lock keeps snapshots; it dies with who holds it."""
RELEASED: Final = "released"
"""The file in a fragment's directory with the round of the last barrier that holds its readers no more."""

_IF_FULL: Final = "make room: the checkpoint is tried again"

_NOT_KEPT: Final = frozenset(("checkpoint", "again", "lock", RELEASED))
"""What lies in a fragment's directory and is no part of its state, or is copied in another way."""


_BLOCK: Final = 1 << 20
"""How many bytes are copied at a time."""
_REPLACED_S: Final = 0.2
"""How long Spark may take between giving a file its name and giving the checksum its name."""


class StateFileDamagedError(InputError):
    """A file of Spark's checkpoint does not match its checksum."""


class Snapshots:
    """The snapshots below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory

    def place(self, fragment: str, round: int) -> Path:
        """Where the snapshot of a try is, if it is."""
        return self.directory / fragment / str(round)

    def rounds(self, fragment: str) -> list[int]:
        """The tries of which there is a snapshot, growing."""
        parent = self.directory / fragment
        if not parent.is_dir():
            return []
        return sorted(int(path.name) for path in parent.iterdir() if path.name.isdigit())

    def take(self, fragment: str, round: int, own: Path, batch_id: int) -> int:
        """Save a fragment, whose directory is `own`, as it is behind a batch (-1: before its first).

        No batch may run meanwhile. Returns the size in bytes of all that the snapshot has; raises
        StateFileDamagedError, DiskFullError, and OutputError when it may not be written.
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
        """Make a fragment's directory what a snapshot says (None: empty); raises InputError if there is none.

        Later snapshots are deleted: the fragment may process other batches under the same numbers now.
        What if we die here: it is done again, from the same snapshot.
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
                if child.name == "lock":
                    continue
                if child.is_dir():
                    shutil.rmtree(child)
                else:
                    child.unlink()
            if source is not None:
                shutil.copytree(source, own, dirs_exist_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is forgotten meanwhile, by whatever process: somebody copies it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        hold = FileLock(self.directory / _HOLD)
        hold.wait(shared=True)
        try:
            yield
        finally:
            hold.release()

    def forget(self, fragment: str, before: int) -> None:
        """Delete the snapshots of tries before this one, and what was never finished.

        What is held stays, and is deleted with the next one.
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
        """Delete the snapshot of a try that was given up."""
        shutil.rmtree(self.place(fragment, round), ignore_errors=True)


def _parts(own: Path, batch_id: int, known: Path | None) -> Iterator[tuple[Path, bool]]:
    """The files of a fragment's state behind a batch, and whether what has such a name never changes.

    Of the state also what only the snapshot before has. Raises StateFileDamagedError if there is not enough.
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
    for number in range(max(0, batch_id - 1), batch_id + 1):  # Spark wants to see the batch before, too
        yield Path(f"checkpoint/offsets/{number}"), True
    yield Path(f"checkpoint/commits/{batch_id}"), True
    for folder in ("state", "sources"):
        for path, _, names in os.walk(checkpoint / folder):
            if known is not None:
                before = known / Path(path).relative_to(own)
                names = sorted({*names, *(_file_names(before) if before.is_dir() else ())})
            needed = _needed(names, batch_id + 1)
            _require_all(path, needed, batch_id + 1)
            for name in needed:
                is_fixed = folder == "sources" or _VERSIONED.fullmatch(name) is not None
                yield (Path(path) / name).relative_to(own), is_fixed


def _needed(names: list[str], version: int) -> list[str]:
    """Of the files of one part of a state, those from which `version` is made; all that have no version."""
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
    """Spark writes a file of each part of a state in every batch; one that is missing was deleted."""
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
    """Copy a file, or link to the copy that there is; how large it is. What is gone by now was not needed."""
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
    """Copy a file; its size, or None if it does not match its checksum."""
    with open(file, "rb") as source, new_file(copy) as target:
        checksums = checksums_of(file)
        checking = None if checksums is None else Checking(checksums)
        while block := source.read(_BLOCK):
            target.write(block)
            if checking is not None:
                checking.add(block)
        return target.tell() if checking is None or checking.is_whole() else None
