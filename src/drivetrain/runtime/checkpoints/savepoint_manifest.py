"""A savepoint's manifest: its contents, and the hashes that show that it is complete.

    <place>/manifest.json           the manifest, written last: {"manifest": …, "sha256": …}
    <place>/fragments/<id>/…        the snapshot of each fragment, `entries.json` in it (see `entries`)
    <place>/stores/<id>/…           the messages of one-pass sources
    <place>/sources/<id>/…          what sources record about their messages
    <place>/sinks/<id>/…            the sinks' notes about their targets, without prepared batches
    <place>/tables/…                the contents of tables

Problem: a savepoint is copied, kept for months, and perhaps damaged. An application that begins with half of
its state gives wrong results without an error.

Design: the manifest has the size and the SHA-256 of every file, and its own hash next to its contents. It is
accepted as a whole or not at all; an unknown file is refused like a missing one.

Invariants:

1. When `verified` returns, the manifest and every file of the savepoint are unchanged since they were
   written.

Called by `savepoint` (writes) and `from_savepoint` (reads). Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.core.replay.replay import Life
from drivetrain.durable import new_file, sync
from drivetrain.errors import InputError

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_BLOCK: Final = 1 << 20


class SavepointError(InputError):
    """A savepoint cannot be used: it is damaged, incomplete, unknown, or of another application."""

    code = "savepoint"


class SavedFile(msgspec.Struct, frozen=True):
    """A file of a savepoint."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a savepoint.

    `state` is the shape of the application's stateful parts, `life` the saved one, `clock_ms` a time before
    which all messages had been processed (None: none yet), `shuffle_partitions` the number of parts into
    which Spark divided the state of each fragment. `versions` are those of the programs that wrote it, by
    name.
    """

    format: int
    application: str
    app_id: str
    settings: dict[str, str]
    versions: dict[str, str]
    made_at_ms: int
    state: dict[str, list[str]]
    life: Life
    record: CheckpointRecord
    clock_ms: int | None
    shuffle_partitions: dict[str, int]
    files: dict[str, SavedFile]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files.values())


class _Envelope(msgspec.Struct):
    manifest: msgspec.Raw
    sha256: str


class _Version(msgspec.Struct):
    format: int


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a directory, durably."""
    encoded = msgspec.json.encode(manifest)
    envelope = _Envelope(msgspec.Raw(encoded), hashlib.sha256(encoded).hexdigest())
    with new_file(directory / MANIFEST) as file:
        file.write(msgspec.json.encode(envelope))
    sync(directory)


def read_manifest(place: Path) -> Manifest:
    """Read a savepoint's manifest, not its other files; raises SavepointError unless it is intact."""
    try:
        raw = (place / MANIFEST).read_bytes()
    except OSError as error:
        raise SavepointError(
            "there is no savepoint here",
            where=str(place),
            expected=f"a directory with a file {MANIFEST}",
            got=error.strerror or str(error),
            remedy="use the directory that `drivetrain savepoint` printed; an unfinished one cannot be used",
        ) from error
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
        content = bytes(envelope.manifest)
        if hashlib.sha256(content).hexdigest() != envelope.sha256:
            raise _damaged(place, MANIFEST, "its own SHA-256", "another one")
        version = msgspec.json.decode(content, type=_Version).format
        if version != FORMAT:
            raise SavepointError(
                "the savepoint was written by another version of Drivetrain",
                where=str(place),
                expected=f"format {FORMAT}",
                got=f"format {version}",
                remedy="start from it with the version that wrote it",
            )
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise _damaged(place, MANIFEST, "what was written", str(error)) from error


def verified(place: Path) -> Manifest:
    """A savepoint's manifest; raises SavepointError unless each of its files is unchanged."""
    manifest = read_manifest(place)
    there = set(files_below(place)) - {MANIFEST}
    for name, file in sorted(manifest.files.items()):
        if name not in there:
            raise _damaged(place, name, f"{file.size} bytes", "no such file")
        found = digest(place / name)
        if found != file:
            raise _damaged(place, name, _shown(file), _shown(found))
    for name in sorted(there - manifest.files.keys()):
        raise _damaged(place, name, "only files that the manifest names", "one that it does not")
    return manifest


def files_below(directory: Path) -> Iterator[str]:
    """The files below a directory, relative to it."""
    for path, _, names in os.walk(directory):
        for name in names:
            yield (Path(path) / name).relative_to(directory).as_posix()


def digest(file: Path) -> SavedFile:
    """The size and the hash of a file."""
    size, hashed = 0, hashlib.sha256()
    with open(file, "rb") as source:
        while block := source.read(_BLOCK):
            size += len(block)
            hashed.update(block)
    return SavedFile(size, hashed.hexdigest())


def copied(file: Path, copy: Path) -> SavedFile:
    """Copy a file durably; returns its size and hash. The directory is not synced."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    size, hashed = 0, hashlib.sha256()
    with open(file, "rb") as source, new_file(copy) as target:
        while block := source.read(_BLOCK):
            size += len(block)
            hashed.update(block)
            target.write(block)
    return SavedFile(size, hashed.hexdigest())


def _damaged(place: Path, name: str, expected: str, got: str) -> SavepointError:
    return SavepointError(
        "the savepoint is damaged or incomplete",
        where=str(place / name),
        expected=expected,
        got=got,
        remedy="copy it again from where it was made, or use another one: nothing was started",
    )


def _shown(file: SavedFile) -> str:
    return f"{file.size} bytes with SHA-256 {file.sha256[:16]}…"
