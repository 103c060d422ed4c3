"""Snapshots: copies of what a fragment needs to go on from one of its batches.

Problem: a checkpoint of the application must hold when Spark's own checkpoint of a fragment is lost or
damaged. It is taken once a second, from state that may be large.

    <snapshots>/<fragment>/<round>/…     the fragment's directory, as it was between two batches

Design: of Spark's checkpoint the batch's offsets and commit and the state's files up to its version: from
the last full one on. Spark never changes a file of its state, so what the snapshot before has is a link to
that, and only what is new is copied: the cost follows what changed. A copy, not a link to Spark's own file:
damage there must not reach it. All of it is written aside, synced, and renamed.

Invariants:

1. A snapshot that is there is whole.
2. Nothing in a snapshot is changed, and no file of it is Spark's own.
3. The last snapshot that was not forgotten stays until a newer one is kept.

Called by `participation`, `restoring` and savepoints.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from drivetrain.errors import InputError, OutputError
from drivetrain.spark.durable_file import sync_directory
from drivetrain.spark.pictures import DIRECTORY as PICTURES

_VERSIONED: Final = re.compile(r"(\d+)(?:_[\w-]+)?\.(changelog|delta|zip|snapshot)")
_FULL: Final = ("zip", "snapshot")
_HOLD: Final = "held"
"""The file whose lock keeps snapshots; it dies with who holds it."""
RELEASED: Final = "released"
"""The file in a fragment's directory with the round of the last barrier that holds its readers no more."""

_NOT_KEPT: Final = frozenset(("checkpoint", "again", "lock", RELEASED))
"""What lies in a fragment's directory and is no part of its state, or is copied in another way."""


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
        OutputError.
        """
        target = self.place(fragment, round)
        aside = target.with_name(f".{round}.tmp")
        before = max((r for r in self.rounds(fragment) if r < round), default=None)
        known = None if before is None else self.place(fragment, before)
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            size = 0
            folders: set[Path] = set()
            for file, is_fixed in _parts(own, batch_id):
                copy = aside / file
                if copy.parent not in folders:
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    folders.add(copy.parent)
                size += _kept(own / file, copy, known / file if known is not None and is_fixed else None)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(aside, target)
            sync_directory(target.parent)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise OutputError(
                f"the snapshot of fragment {fragment} cannot be written: {error.strerror}",
                where=str(target),
                remedy="make room, or make the state directory writable: the checkpoint is tried again",
            ) from error
        return size

    def restore(self, fragment: str, round: int | None, own: Path) -> None:
        """Make a fragment's directory what a snapshot says (None: empty); raises InputError if there is none.

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
        with open(self.directory / _HOLD, "a") as hold:
            fcntl.flock(hold, fcntl.LOCK_SH)
            yield

    def forget(self, fragment: str, before: int) -> None:
        """Delete the snapshots of tries before this one, and what was never finished.

        What is held stays, and is deleted with the next one.
        """
        parent = self.directory / fragment
        if not parent.is_dir():
            return
        with open(self.directory / _HOLD, "a") as hold:
            try:
                fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            self._forget(parent, before)

    def _forget(self, parent: Path, before: int) -> None:
        for path in parent.iterdir():
            if path.name.startswith(".") or (path.name.isdigit() and int(path.name) < before):
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, fragment: str, round: int) -> None:
        """Delete the snapshot of a try that was given up."""
        shutil.rmtree(self.place(fragment, round), ignore_errors=True)


def _parts(own: Path, batch_id: int) -> Iterator[tuple[Path, bool]]:
    """The files of a fragment's state behind a batch, and whether what has such a name never changes."""
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
    yield Path("checkpoint/metadata"), True
    for number in range(max(0, batch_id - 1), batch_id + 1):  # Spark wants to see the batch before, too
        yield Path(f"checkpoint/offsets/{number}"), True
    yield Path(f"checkpoint/commits/{batch_id}"), True
    for folder in ("state", "sources"):
        for path, _, names in os.walk(checkpoint / folder):
            for name in _needed(names, batch_id + 1):
                yield (Path(path) / name).relative_to(own), True


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


def _kept(file: Path, copy: Path, known: Path | None) -> int:
    """Copy a file, or link to the copy that there is; how large it is. What is gone by now was not needed."""
    if known is not None:
        with suppress(FileNotFoundError):
            size = file.stat().st_size
            if known.stat().st_size == size:
                os.link(known, copy)
                return size
    with suppress(FileNotFoundError), open(file, "rb") as source, open(copy, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
        return target.tell()
    return 0
