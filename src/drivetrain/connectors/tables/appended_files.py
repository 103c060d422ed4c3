"""Batches that wait to be appended: data files in the table's directory, and notes that name them.

The problem: a batch may wait for its checkpoint, through any crash. An attempt that dies leaves files
that no reader sees, and a process that was wrongly considered dead may still commit files of its own.

The design: in the sink's own directory, `prepared/00000007.json` names the files of batch 7. It comes after
the files, so a batch with a note can be committed. Files are only deleted when nobody can commit them any
more: once this process has committed batches, all other files of the same batches are left over, because the
table's marks refuse another commit of them. Until then, even files of an aborted batch stay.

What if we die here: before the note, the batch runs again, and its next commit deletes the files. Between a
commit and the deletion of the note, the marks show that it is published. What a process leaves that never
commits again, the table's own cleaning deletes (VACUUM, remove_orphan_files).

Invariants:

1. A file that a commit names is never deleted here.
2. At most one try of a batch has a note.

Called by the sinks of tables.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs

from drivetrain.connectors.tables.data_files import DataFile, FilePlace, stem_of, write_batch
from drivetrain.connectors.tables.table_columns import Fit, fit
from drivetrain.connectors.tables.table_target import TableTarget
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import sync, write_whole, writing
from drivetrain.errors import DrivetrainError, OutputError
from drivetrain.spark.measure.small_batches import SmallBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("drivetrain.tables")


class DamagedError(OutputError):
    """A file of a waiting batch is missing or changed."""


class PreparedFiles(msgspec.Struct, frozen=True):
    """The files of a batch, the columns that they have, and what the table was when they were written."""

    batch: int
    files: tuple[DataFile, ...]
    columns: bytes
    partition_by: tuple[str, ...]
    required: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(file.rows for file in self.files)


class AppendedFiles:
    """The batches of one sink that wait to be appended to a table."""

    def __init__(self, target: TableTarget, state_dir: str, sink_id: str) -> None:
        self._target = target
        self._notes = Path(state_dir).absolute() / "prepared"
        self._sink_id = sink_id
        self._small = SmallBatches()
        self._has_leftovers = True

    def prepare(self, df: DataFrame, batch_id: int, fit: Fit, table: Any, token: str) -> int:
        """Write a batch, and keep a note of its files in place of an earlier one; returns its rows."""
        layout = self._target.layout(table, fit, stem_of(self._sink_id, token, batch_id))
        self._has_leftovers = self._has_leftovers or self._note(batch_id).exists()
        try:
            files = write_batch(df, layout, self._small)
        except BaseException:
            self._has_leftovers = True
            raise
        if not files:
            self.drop(batch_id)
            return 0
        batch = PreparedFiles(
            batch_id, tuple(files), bytes(fit.columns.serialize()), layout.partition_by, layout.required
        )
        with writing("the note of a batch", self._notes):
            _sync_folders(layout.place, files)
            self._notes.mkdir(parents=True, exist_ok=True)
            write_whole(self._note(batch_id), msgspec.json.encode(batch))
        return batch.rows

    def prepared(self) -> list[int]:
        """The batches that wait, in increasing order."""
        try:
            names = os.listdir(self._notes)
        except FileNotFoundError:
            return []
        return sorted(int(name.removesuffix(".json")) for name in names if not name.startswith("."))

    def drop(self, batch_id: int, *, committed: bool = False) -> None:
        """Forget a batch; unless it was committed, its files are left over."""
        note = self._note(batch_id)
        if note.exists():
            note.unlink()
            self._has_leftovers = self._has_leftovers or not committed

    def commit(self, table: Any, batches: Sequence[int], marks: Mapping[str, int]) -> int:
        """Add the files of the batches to the table in one commit, with marks; returns their rows."""
        waiting = [msgspec.json.decode(self._note(id).read_bytes(), type=PreparedFiles) for id in batches]
        place = self._target.place(table)
        for batch in waiting:
            self._require_fit(batch, table)
            self._require_files(batch, place)
        maybe_crash(CrashPoint.IN_TRANSACTION)
        self._target.commit(table, [file for batch in waiting for file in batch.files], marks)
        maybe_crash(CrashPoint.AFTER_TRANSACTION)
        return sum(batch.rows for batch in waiting)

    def names(self, batches: Iterable[int]) -> set[str]:
        """The names of the files of batches that wait."""
        notes = (msgspec.json.decode(self._note(id).read_bytes(), type=PreparedFiles) for id in batches)
        return {file.name for note in notes for file in note.files}

    def clean(self, table: Any, before: int, last: int, committed: set[str], token: str) -> None:
        """Delete the files that other tries left of the batches after `before`, up to `last`.

        This process has just committed these batches, with these files.
        """
        if not self._has_leftovers:
            return
        waiting = self.names(self.prepared())
        start = stem_of(self._sink_id, token, 0).removesuffix(f"{0:08d}-")
        kept = {os.path.basename(name) for name in committed | waiting}
        later = False
        filesystem, directory = self._target.place(table).open()
        for info in filesystem.get_file_info(
            pafs.FileSelector(directory, recursive=True, allow_not_found=True)
        ):
            name = info.base_name
            number, _, _ = name.removeprefix(start).partition("-")
            if not name.startswith(start) or not number.isdigit() or name in kept:
                continue
            if before < int(number) <= last:
                _delete(filesystem, info.path)
            elif int(number) > last:
                later = True
        self._has_leftovers = later

    def _note(self, batch_id: int) -> Path:
        return self._notes / f"{batch_id:08d}.json"

    def _require_fit(self, batch: PreparedFiles, table: Any) -> None:
        columns = pa.ipc.read_schema(pa.py_buffer(batch.columns))
        there = self._target.columns(table)
        now = fit(columns, there, self._target.where, evolve=False)
        partition_by = self._target.partitions(table)
        if (
            now.columns.equals(columns)
            and partition_by == batch.partition_by
            and set(now.required) <= set(batch.required)
        ):
            return
        raise OutputError(
            f"batch {batch.batch} waits to be committed, and the table's columns have changed since",
            where=self._target.where,
            expected=f"{', '.join(columns.names)}, partitioned by {', '.join(batch.partition_by) or 'none'}",
            got=f"{', '.join(there.names)}, partitioned by {', '.join(partition_by) or 'none'}",
            remedy="give the table its earlier columns; or go back to a savepoint, or start over",
        )

    def _require_files(self, batch: PreparedFiles, place: FilePlace) -> None:
        filesystem, directory = place.open()
        found = filesystem.get_file_info([os.path.join(directory, file.name) for file in batch.files])
        for file, info in zip(batch.files, found, strict=True):
            size = info.size
            if size != file.size_bytes:
                raise DamagedError(
                    f"batch {batch.batch} waits to be committed, and one of its files is damaged",
                    where=info.path,
                    expected=f"{file.size_bytes} bytes",
                    got="no file" if size is None else f"{size} bytes",
                    remedy="put the file back from a copy; or go back to a savepoint, or start over with "
                    "--fresh. Cleaning the table deletes files that wait when it retains too little",
                )


def _sync_folders(place: FilePlace, files: Iterable[DataFile]) -> None:
    """Make the names of files durable; an object has its name when it is written."""
    filesystem, directory = place.open()
    if isinstance(filesystem, pafs.LocalFileSystem):
        for folder in {os.path.dirname(file.name) for file in files} | {""}:
            sync(os.path.join(directory, folder))


def _delete(filesystem: pafs.FileSystem, path: str) -> None:
    try:
        filesystem.delete_file(path)
    except (OSError, DrivetrainError) as error:
        log.warning("a file that no reader sees could not be deleted: %s", error)
