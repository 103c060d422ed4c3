"""The files that a checkpoint consists of, wherever it is copied to.

Snapshots are complete and have their own files. Beside them: what tables were read as, what sources record
about their messages, and the notes by which sinks know their targets.

Called by `savepoint`, `checkpoint_copying` and `checkpoint_packs`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    FORMAT,
    Manifest,
    SavedFile,
    SavepointError,
    files_below,
)
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.state.state_partitions import state_partitions

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory

FRAGMENTS: Final = "fragments"
SOURCES: Final = "sources"
SINKS: Final = "sinks"
TABLES: Final = "tables"


def parts_of_checkpoint(
    rundir: RunDirectory, snapshots: Snapshots, record: CheckpointRecord, *, with_prepared: bool = False
) -> Iterator[tuple[str, Path]]:
    """The files of a checkpoint, each with its name in a copy; raises SavepointError if a snapshot is gone.

    `with_prepared` also yields the batches that sinks have prepared and not published. A file of a sink may
    be gone when it is opened.
    """
    for id in record.fragments:
        source = snapshots.place(id, record.round)
        if not source.is_dir():
            raise _gone(source)
        yield from _all_of(source, f"{FRAGMENTS}/{id}")
    yield from _all_of(rundir.home / "tables", TABLES)
    yield from _all_of(rundir.path / "sources", SOURCES)
    for sink in sorted(folders_in(rundir.path / "sinks")):
        if with_prepared:
            yield from _all_of(sink, f"{SINKS}/{sink.name}")
            continue
        for note in sorted(path for path in sink.iterdir() if path.is_file() and is_whole(path.name)):
            yield f"{SINKS}/{sink.name}/{note.name}", note


def _all_of(source: Path, under: str) -> Iterator[tuple[str, Path]]:
    """The files of a directory, if it exists, without those that are being written, and without links to
    input, which is not part of the state."""
    for name in sorted(files_below(source)):
        if is_whole(Path(name).name) and not (source / name).is_symlink():
            yield f"{under}/{name}", source / name


def is_whole(name: str) -> bool:
    """Whether a file of this name is not being written."""
    return not name.startswith(".") and not name.endswith(".tmp")


def folders_in(parent: Path) -> list[Path]:
    """The directories in a directory; none if it does not exist."""
    return [path for path in parent.iterdir() if path.is_dir()] if parent.is_dir() else []


def manifest_of(
    rundir: RunDirectory,
    record: CheckpointRecord,
    clock_ms: int | None,
    files: Mapping[str, SavedFile],
    snapshot: Callable[[str], Path],
) -> Manifest:
    """The manifest of a copy; `snapshot` returns the directory of a fragment's snapshot."""
    return Manifest(
        format=FORMAT,
        application=rundir.application,
        app_id=rundir.app_id,
        settings={name: str(value) for name, value in rundir.settings.items()},
        versions=_versions(),
        made_at_ms=time.time_ns() // 1_000_000,
        state=rundir.state_shape,
        life=rundir.life,
        record=record,
        clock_ms=clock_ms,
        shuffle_partitions=_partitions(record, snapshot),
        files=dict(files),
    )


def _partitions(record: CheckpointRecord, snapshot: Callable[[str], Path]) -> dict[str, int]:
    """The number of parts of each fragment's state."""
    found = {
        id: state_partitions(snapshot(id) / "checkpoint", of_it.batch_id)
        for id, of_it in record.fragments.items()
    }
    return {id: number for id, number in found.items() if number is not None}


def _versions() -> dict[str, str]:
    found = {}
    for package in ("drivetrain", "pyspark"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def _gone(snapshot: Path) -> SavepointError:
    return SavepointError(
        "a snapshot of the checkpoint is gone",
        where=str(snapshot),
        remedy="run the application until it has made another checkpoint, and try again",
    )
