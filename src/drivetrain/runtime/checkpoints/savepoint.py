"""Savepoints: a checkpoint of an application, copied to a place from which it can continue anywhere.

Problem: a checkpoint is among the files of a running application, which deletes it as soon as there is a
newer one. To move an application, or to keep a state for months, all its files must be in one place,
complete, and independent of where they came from.

Design: `write_savepoint` requests a checkpoint and copies it while it is held (`Snapshots.held`). Files that
do not belong to the checkpoint (stores of sources, notes of sinks) are copied afterwards: a store must still
have the entries from the checkpoint's position on, otherwise everything is copied again. All files are
written to a temporary directory, synced, and renamed; the manifest, with a hash of every file, is written
last.

For an application that does not run, the newest checkpoint is copied (`newest_record`). It is complete if the
application takes periodic checkpoints, because nothing after the last one was published; otherwise only if
nothing was processed after it.

What if we die here: the temporary directory is not a savepoint, and is ignored.

Invariants:

1. If a directory with the final name has `manifest.json`, the savepoint is complete.
2. A savepoint shares no file with the application.

Called by `savepoint_requests` and by the cluster's application master. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase
from drivetrain.durable import publish_directory, sync, writing
from drivetrain.errors import OutputError, UnavailableError, UserError
from drivetrain.runtime.checkpoints.checkpoint_parts import (
    FRAGMENTS,
    folders_in,
    is_whole,
    manifest_of,
    parts_of_checkpoint,
)
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    Manifest,
    SavedFile,
    copied,
    write_manifest,
)
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

STORES: Final = "stores"
_TRIES: Final = 3


class _ReadPastError(Exception):
    """The application deleted files of the checkpoint while they were copied."""


def write_savepoint(
    rundir: RunDirectory,
    place: Path,
    make: Callable[[], CheckpointRecord],
    clock_ms: Callable[[], int | None],
) -> Manifest:
    """Copy the checkpoint that `make` returns, which is committed everywhere, to the directory `place`.

    `clock_ms` returns the application's clock, and is called before `make`. Raises OutputError when the place
    is taken or cannot be written, DiskFullError, the errors of `make`, and UnavailableError when the
    application deletes files faster than they are copied.
    """
    refuse_taken(place)
    aside = place.with_name(f".{place.name}.{uuid.uuid4().hex}.tmp")
    try:
        for _ in range(_TRIES):
            try:
                return _written(rundir, place, aside, make, clock_ms)
            except _ReadPastError:
                shutil.rmtree(aside, ignore_errors=True)
        raise UnavailableError(
            "stored messages of a source were deleted during the copy",
            where=str(place),
            remedy="try again; keep more of it with replay.keep-bytes and replay.keep-age",
        )
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            refuse_taken(place)
        with writing("the savepoint", place, if_full="make room, or name another place"):
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_taken(place: Path) -> None:
    """Raise OutputError when the place for a savepoint is taken."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise OutputError(
            "the place of the savepoint is not empty",
            where=str(place),
            expected="a directory that does not exist yet, or is empty",
            remedy="name another place",
        )


def newest_record(rundir: RunDirectory) -> CheckpointRecord:
    """The checkpoint that holds all of a stopped application; raises UserError if there is none."""
    files = CheckpointFiles(rundir.home)
    transaction = files.transaction()
    if transaction is None or transaction.record is None:
        raise _only_running(rundir, "it has made no checkpoint")
    if transaction.phase is Phase.COMMITTING:
        raise UserError(
            "no savepoint of the application can be taken now: it was ended while it published a checkpoint",
            where=rundir.app_id,
            expected="one that has published what it decided to publish",
            remedy="run it once more, which publishes the rest; then take the savepoint",
        )
    record, version = transaction.record, rundir.versions.last_readable()
    new = [] if version is None else [id for id in version.fragments if id not in record.fragments]
    if new:
        raise _only_running(rundir, f"{', '.join(new)} started after its newest checkpoint")
    if not files.are_periodic:
        behind = [id for id, s in record.fragments.items() if _committed(rundir, id) > s.batch_id]
        if behind:
            raise _only_running(
                rundir, f"checkpoints are on demand, and {', '.join(behind)} continued after the last"
            )
    return record


def _only_running(rundir: RunDirectory, why: str) -> UserError:
    return UserError(
        f"no savepoint of the application can be taken now: {why}",
        where=rundir.app_id,
        expected="an application that runs, or one whose newest checkpoint has all of it",
        remedy="run it, and take the savepoint while it runs; with checkpoint.mode=on one always exists",
    )


def _written(
    rundir: RunDirectory,
    place: Path,
    aside: Path,
    make: Callable[[], CheckpointRecord],
    clock_ms: Callable[[], int | None],
) -> Manifest:
    snapshots = Snapshots(CheckpointFiles(rundir.home).snapshots)
    aside.parent.mkdir(parents=True, exist_ok=True)
    aside.mkdir(mode=0o700)
    files: dict[str, SavedFile] = {}
    with snapshots.held():
        clock = clock_ms()
        record = make()
        for name, source in parts_of_checkpoint(rundir, snapshots, record):
            files[name] = copied(source, aside / name)
    for store in sorted(folders_in(rundir.path / "stores")):
        _copy_store(store, _position(record, store.name), aside, files)
    manifest = manifest_of(rundir, record, clock, files, lambda id: aside / FRAGMENTS / id)
    write_manifest(aside, manifest)
    for path, _, _ in os.walk(aside):
        sync(path)
    publish_directory(aside, place)
    return manifest


def _copy_store(store: Path, position: int, aside: Path, files: dict[str, SavedFile]) -> None:
    """Copy the existing entries of a store, with their segments, and the record of what it kept.

    Raises `_ReadPastError` when entries from `position` on are missing.
    """
    under = f"{STORES}/{store.name}"
    numbers = sorted(int(p.stem) for p in (store / "log").glob("*.json") if is_whole(p.name))
    try:
        for number in numbers:
            name = f"log/{number:020d}.json"
            files[f"{under}/{name}"] = copied(store / name, aside / under / name)
            for segment in json.loads((aside / under / name).read_bytes())["segments"]:
                path = segment["path"]
                files[f"{under}/{path}"] = copied(store / path, aside / under / path)
    except FileNotFoundError as error:
        raise _ReadPastError(store.name) from error
    wanted = range(position, numbers[-1] + 1) if numbers else range(position)
    if not set(numbers).issuperset(wanted):
        raise _ReadPastError(store.name)
    for note in sorted(path for path in store.iterdir() if path.is_file() and is_whole(path.name)):
        files[f"{under}/{note.name}"] = copied(note, aside / under / note.name)


def _position(record: CheckpointRecord, store: str) -> int:
    """The first entry of a source's store after the checkpoint."""
    return max((positions_in(s.sources).get(store, 0) for s in record.fragments.values()), default=0)


def positions_in(sources: Mapping[str, str]) -> dict[str, int]:
    """For each source with a store, the entry that is read next, from the sources' offsets."""
    parsed = {id: json.loads(offset) for id, offset in sources.items()}
    return {id: int(it["entry"]) for id, it in parsed.items() if isinstance(it, dict) and "entry" in it}


def _committed(rundir: RunDirectory, fragment: str) -> int:
    commits = rundir.fragment(fragment) / "checkpoint" / "commits"
    return max((int(p.name) for p in commits.glob("*") if p.name.isdigit()), default=-1)
