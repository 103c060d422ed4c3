"""Divides finished files among the directories of partitions: `country=FR/day=2024-05-01/part-….parquet`.

The problem: readers know a partition by its directory, so the rows of a batch belong in several files, and a
file system shows one file at a time. A process may die between two of them.

The design: batches are staged, wait and are joined as whole files, as without partitions (see `rolling`), in
Parquet: with the columns of the partitions, and, for formats of text, with one column of finished lines,
whose name has the header. A file that is due is moved to a hidden folder, which decides what will be
visible. Then it is divided, each part gets the file's name in the directory of its partition, and it is
deleted. Directories are named as Spark names them, so Spark, DuckDB, Polars and pyarrow find the columns.

    <dir>/_drivetrain/dividing/<name>.waiting   a file that is being divided; all its rows count as published
    <dir>/<column>=<value>/…/<name>         the rows of one partition

What if we die here: while a file is in `dividing`, the next process divides it again. The same rows come into
the same partitions; a part that is there already stays.

Invariants:

1. A part is visible completely or not at all, and never changes.
2. Nothing is joined with a file that is being divided, so no row is visible in two files.
3. A value that cannot name a directory is refused before its batch counts as published.

Called by `rolling` and by the file sink. Source: the layout of Hive, as Spark writes and reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from drivetrain.connectors.files.file_formats import LINES, lines_of
from drivetrain.connectors.files.output_ownership import (
    WAITING,
    OutputDirectory,
    divided_names,
    refusals_named,
)
from drivetrain.connectors.files.staging import Target
from drivetrain.connectors.partition_values import NULL_FOLDER, runs, sorted_table
from drivetrain.durable import sync
from drivetrain.errors import OutputError
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.whole_files import is_local, staging_files, staging_folder

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_NAME_BYTES = 255
_OPEN_FILES = 200
"""How many files are written at the same time; with more partitions, the file is read several times."""
_HELD_BYTES = 64 * 2**20


class PartitionedFiles:
    """Divides the files of one sink by the columns `partition_by`; `target` is the format of the parts."""

    def __init__(
        self, directory: OutputDirectory, sink_id: str, target: Target, partition_by: Sequence[str]
    ) -> None:
        self._directory = directory
        self._target = target
        self._columns = tuple(partition_by)
        self._hidden = directory.dividing
        self._filesystem = directory.filesystem
        self._staging = staging_files(self._filesystem)
        parts = f"{directory.joining}/{sink_id}-{directory.writer}-parts"
        self._parts = staging_folder(self._filesystem, parts)

    def check(self, path: str) -> None:
        """Raise `OutputError` if a value in the staged file `path` cannot name a directory."""
        for folder in self._folders(self._staging, path):
            longest = max(folder.split("/"), key=lambda name: len(name.encode()))
            if len(longest.encode()) > _NAME_BYTES:
                raise OutputError(
                    "a value is too long for the name of its partition's directory",
                    where=self._directory.path,
                    expected=f"{_NAME_BYTES} bytes at most, with the column's name",
                    got=f"{longest[:60]}…, {len(longest.encode())} bytes",
                    remedy="partition by a column with short values, for example by a prefix of this one",
                )

    def show(self, aside: str, name: str, staged: pafs.FileSystem | None = None) -> None:
        """Publish the finished file `aside`, divided, under `name`; from the first step on, it counts.

        `staged` is the file system of `aside`, if it is not the directory's: its content is then read there.
        """
        whole = self.whole(name)
        with refusals_named(self._hidden):
            self._filesystem.create_dir(self._hidden, recursive=True)
            self._directory.publish(aside, whole, staged)
        if staged is None or objects_of(self._filesystem) is None:
            staged, aside = self._filesystem, whole
        self._divide(staged, aside, self._folders(staged, aside), name)
        self._filesystem.delete_file(whole)

    def names(self) -> list[str]:
        """The names of the files that are being divided."""
        return divided_names(self._filesystem, self._hidden)

    def finish(self) -> None:
        """Divide every file that a process has left that died while it did so."""
        for name in self.names():
            whole = self.whole(name)
            folders = self._folders(self._filesystem, whole)
            missing = [folder for folder in folders if not self._is_there(folder, name)]
            self._divide(self._filesystem, whole, missing, name)
            self._filesystem.delete_file(whole)

    def whole(self, name: str) -> str:
        """The path of a file that is being divided."""
        return f"{self._hidden}/{name}{WAITING}"

    def _is_there(self, folder: str, name: str) -> bool:
        path = f"{self._directory.path}/{folder}/{name}"
        return bool(self._filesystem.get_file_info(path).type == pafs.FileType.File)

    def _folders(self, filesystem: pafs.FileSystem, path: str) -> list[str]:
        """The directories of the partitions in a file, in order."""
        found: set[str] = set()
        for batch in self._sorted_batches(filesystem, path, columns=list(self._columns)):
            found |= {_folder(values) for values, _ in runs(batch, self._columns)}
        return sorted(found)

    def _sorted_batches(
        self, filesystem: pafs.FileSystem, path: str, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            for group in range(file.num_row_groups):
                table = sorted_table(file.read_row_group(group, columns=columns), self._columns)
                yield from table.combine_chunks().to_batches()

    def _divide(self, filesystem: pafs.FileSystem, whole: str, folders: Sequence[str], name: str) -> None:
        """Write the parts of these partitions, as many at a time as files may be open, and publish them."""
        for start in range(0, len(folders), _OPEN_FILES):
            some = folders[start : start + _OPEN_FILES]
            paths = {folder: f"{self._parts}/{number}" for number, folder in enumerate(some)}
            with refusals_named(self._parts):
                self._staging.create_dir(self._parts, recursive=True)
                self._staging.delete_dir_contents(self._parts)
                self._write(filesystem, whole, paths)
                for folder, aside in paths.items():
                    _create_directory(self._filesystem, self._directory.path, folder)
                    path = f"{self._directory.path}/{folder}/{name}"
                    self._directory.publish(aside, path, self._staging)
                self._staging.delete_dir(self._parts)

    def _write(self, filesystem: pafs.FileSystem, whole: str, paths: dict[str, str]) -> None:
        with pq.ParquetFile(filesystem.open_input_file(whole)) as file:
            schema = file.schema_arrow
        kept = [name for name in schema.names if name not in self._columns]
        parts = pa.schema([schema.field(name) for name in kept])
        with _Writers(self._staging, self._target, parts, paths) as writers:
            for batch in self._sorted_batches(filesystem, whole):
                for values, rows in runs(batch, self._columns):
                    folder = _folder(values)
                    if folder in paths:
                        writers.add(folder, rows.select(kept))


class _Writers:
    """Open files by partition. Rows are held until there are many, so that row groups are not small."""

    def __init__(
        self, filesystem: pafs.FileSystem, target: Target, schema: pa.Schema, paths: dict[str, str]
    ) -> None:
        self._filesystem = filesystem
        self._target = target
        self._schema = schema
        self._paths = paths
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._held_bytes = 0
        self._outs: dict[str, pa.NativeFile] = {}
        self._parquet: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        for writer in self._parquet.values():
            writer.close()
        for out in self._outs.values():
            out.close()

    def add(self, folder: str, rows: pa.RecordBatch) -> None:
        self._held.setdefault(folder, []).append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        for folder, held in self._held.items():
            if self._target.format == "parquet":
                self._rows(folder).write_table(pa.Table.from_batches(held, self._schema))
                continue
            for rows in held:
                for piece in lines_of(rows):
                    self._lines(folder).write(piece)
        self._held, self._held_bytes = {}, 0

    def _rows(self, folder: str) -> pq.ParquetWriter:
        if folder not in self._parquet:
            out = self._outs[folder] = self._filesystem.open_output_stream(self._paths[folder])
            codec = self._target.compression or "none"
            self._parquet[folder] = pq.ParquetWriter(out, self._schema, compression=codec)
        return self._parquet[folder]

    def _lines(self, folder: str) -> pa.NativeFile:
        if folder not in self._outs:
            out = self._filesystem.open_output_stream(
                self._paths[folder], compression=self._target.compression
            )
            self._outs[folder] = out
            out.write(self._schema.names[0].removeprefix(LINES).encode())
        return self._outs[folder]


def _folder(values: dict[str, str | None]) -> str:
    """The directory of a partition, relative to the sink's; an empty text is null there, as in Spark."""
    return "/".join(
        f"{_escaped(column)}={_escaped(text) if text else NULL_FOLDER}" for column, text in values.items()
    )


def _escaped(text: str) -> str:
    # Spark reads `%C3%A9` as two characters, so only what it escapes itself is escaped.
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _create_directory(filesystem: pafs.FileSystem, root: str, folder: str) -> None:
    """Create a partition's directory, durably."""
    if not is_local(filesystem):
        filesystem.create_dir(f"{root}/{folder}", recursive=True)
        return
    above = Path(root)
    for name in folder.split("/"):
        below = above / name
        if not below.is_dir():
            below.mkdir(exist_ok=True)
            sync(above)
        above = below
