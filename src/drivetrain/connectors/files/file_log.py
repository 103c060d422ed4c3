"""The file log: every file of a source, once, in the order in which it is read.

The problem: a batch must read the same bytes when it is replayed after a crash, although the
directory has more files by then, and a listing has no reliable order. Spark's own file source keeps
such a log, but takes only whole files and has no end; a 10 GB file would be one batch.

The design: files are appended to a durable log when they are first seen. Laid end to end they form
one long row of bytes, so an offset is a single number, `bytes`, and a batch is a range of it. A text
record belongs to the range that contains its first byte, a Parquet row group likewise, so ranges can be
cut anywhere, in proportion, without reading the files. Files that cannot be cut (compressed ones,
CSV with line breaks inside quotes) are taken whole: a range has all their bytes or none.

The log is a directory of Arrow files with the paths and sizes of some files each, named by the numbers of
these files: `files-<first>-<end>-<level>.arrow`. Each listing appends one. Small ones are merged into larger
ones now and then (see `core.channel.merging`), so a path is written only a few times, however many follow.
Memory holds 16 bytes of each path's hash and 8 for where the file ends (see `seen_paths`); the paths
themselves are read when a batch needs them. No path is ever forgotten: files that are missing from a listing
for a moment, because a server is away, must not be read again when they reappear.

What if we die here: each file is written under a hidden name, synced and renamed. One whose range lies within
that of another was merged: it no longer counts, and the next merge deletes it.

Invariants:

1. A file's place in the log never changes; no path is in the log twice.
2. A range that `cut` returned is covered by durable files of the log, so it can be read again.
3. `cut` never lands inside a file that must be taken whole, and always advances if anything is left.
4. There is one writer: the driver until the query starts, its source reader afterwards.

Called by `opened_files` (driver) and by the streaming reader (Spark's planning process).
Source: Spark's CompactibleFileStreamLog; Hadoop's rule for input splits.
"""

from __future__ import annotations

import bisect
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
from pyarrow import ipc

from drivetrain.connectors.files.seen_paths import SeenPaths
from drivetrain.core.channel.merging import Piece, counting, merged_level, next_merge
from drivetrain.errors import InternalError
from drivetrain.runtime.file_locations import FoundFile
from drivetrain.runtime.whole_files import publish_bytes

FAN = 32
MOST_FILES = 65_536
"""The most files of one piece of the log, which is read when a batch needs one of its paths."""
MAX_FILES_PER_BATCH = 10_000
_KEPT_FILES = 2 * MOST_FILES
_NAME = re.compile(r"files-(\d+)-(\d+)-(\d+)\.arrow")
_SCHEMA = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("whole", pa.bool_())])


@dataclass(frozen=True)
class FileSplit:
    """The bytes [start, end) of a file of `size_bytes`; `whole` files are read from first to last byte."""

    path: str
    start: int
    end: int
    size_bytes: int
    whole: bool


class FileLog:
    """The files of one source, durable in `directory`; see the module docstring."""

    def __init__(self, filesystem: pafs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory.rstrip("/")
        self._pieces: list[Piece] = []
        self._tables: dict[Piece, pa.Table] = {}
        self._ends = array("q")
        self._whole = bytearray()
        self._seen = SeenPaths()
        self.exists = False
        self._load()

    @property
    def total_bytes(self) -> int:
        """The length of the log: the offset after its last byte."""
        return self._ends[-1] if self._ends else 0

    def files(self, first: int = 0, end: int | None = None) -> Iterator[FoundFile]:
        """The files with the numbers [first, end), in their order."""
        end = len(self) if end is None else end
        for piece in self._pieces:
            if piece.first < end and piece.end > first:
                low = max(first - piece.first, 0)
                rows = self._table(piece).slice(low, min(end, piece.end) - piece.first - low)
                for row in rows.to_pylist():
                    yield FoundFile(row["path"], row["size_bytes"])

    def end_of(self, files: int) -> int:
        """The offset after the first `files` files."""
        return self._ends[files - 1] if files else 0

    def __len__(self) -> int:
        return len(self._ends)

    def append(self, found: Iterable[tuple[FoundFile, bool]]) -> int:
        """Make the new files among these durable, in the given order, and return their number.

        Each comes with whether it must be taken whole. Writes to the disk, even for no files, if the
        log did not exist: an existing log means that the input has been listed.
        """
        given = list({file.path: (file, whole) for file, whole in found}.values())
        are_new = self._seen.are_new([file.path for file, _ in given])
        new = [one for one, is_new in zip(given, are_new, strict=True) if is_new]
        if not new and self.exists:
            return 0
        rows = pa.table(
            [
                [file.path for file, _ in new],
                [file.size_bytes for file, _ in new],
                [whole for _, whole in new],
            ],
            schema=_SCHEMA,
        )
        piece = Piece(len(self), len(self) + len(new), 0, len(new))
        self._write(piece, rows)
        self._note(rows)
        self._seen.add(rows.column("path").to_pylist())
        self._pieces.append(piece)
        self._keep(piece, rows)
        self.exists = True
        while run := next_merge(self._pieces, fan=FAN, most=MOST_FILES):
            self._merge(run)
        return len(new)

    def cut(self, start: int, limit_bytes: int | None) -> int:
        """The end of a batch that starts at `start` and takes at most `limit_bytes` (None: no limit).

        Exceeds the limit only when a single whole file is larger than it.
        """
        total = self.total_bytes
        if start >= total:
            return start
        last = min(bisect.bisect_right(self._ends, start) + MAX_FILES_PER_BATCH, len(self._ends)) - 1
        end = min(self._ends[last], total if limit_bytes is None else start + max(1, limit_bytes))
        index = bisect.bisect_left(self._ends, end)
        if not self._whole[index] or end == self._ends[index]:
            return end
        file_start = self._start_of(index)
        return file_start if file_start > start else self._ends[index]

    def splits(self, start: int, end: int, parts: int) -> list[list[FileSplit]]:
        """The range [start, end) as at most `parts` groups of similar size, in order."""
        if end > self.total_bytes:
            raise InternalError(
                f"the file log ends at byte {self.total_bytes}, but byte {end} was asked for",
                where=self._directory,
            )
        length = end - start
        borders = [start + length * part // parts for part in range(parts + 1)]
        groups = [self._splits_between(low, high) for low, high in itertools.pairwise(borders) if low < high]
        return [group for group in groups if group]

    def _splits_between(self, start: int, end: int) -> list[FileSplit]:
        splits = []
        first = bisect.bisect_right(self._ends, start)
        behind = min(len(self), bisect.bisect_left(self._ends, end) + 1)
        for index, file in enumerate(self.files(first, behind), start=first):
            file_start = self._start_of(index)
            low, high = max(start - file_start, 0), min(end - file_start, file.size_bytes)
            if not self._whole[index]:
                splits.append(FileSplit(file.path, low, high, file.size_bytes, whole=False))
            elif low == 0 and high > 0:
                # A whole file belongs to the group that contains its first byte.
                splits.append(FileSplit(file.path, 0, file.size_bytes, file.size_bytes, whole=True))
        return splits

    def _start_of(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    # -- on disk -------------------------------------------------------------------------------------

    def _load(self) -> None:
        self._pieces = counting(self._on_disk())
        self.exists = bool(self._pieces)
        for piece in self._pieces:
            self._note(self._table(piece))
        self._seen.add_many(self._table(piece).column("path").to_pylist() for piece in self._pieces)

    def _on_disk(self) -> list[Piece]:
        selector = pafs.FileSelector(self._directory, allow_not_found=True)
        names = (info.base_name for info in self._filesystem.get_file_info(selector))
        ranges = [
            [int(group) for group in found.groups()] for name in names if (found := _NAME.fullmatch(name))
        ]
        return [Piece(first, end, level, end - first) for first, end, level in ranges]

    def _note(self, rows: pa.Table) -> None:
        """Note where files end, and which are taken whole."""
        sizes = rows.column("size_bytes").to_numpy()
        self._ends.frombytes((np.cumsum(sizes, dtype=np.int64) + self.total_bytes).tobytes())
        self._whole.extend(rows.column("whole").to_numpy().astype(np.uint8).tobytes())

    def _merge(self, run: Sequence[Piece]) -> None:
        """Replace several pieces with one, and delete those that no longer count."""
        whole = Piece(run[0].first, run[-1].end, merged_level(run), sum(piece.size for piece in run))
        rows = pa.concat_tables([self._table(piece) for piece in run]).combine_chunks()
        self._write(whole, rows)
        self._pieces = counting([*self._pieces, whole])
        self._keep(whole, rows)
        for old in set(self._on_disk()) - set(self._pieces):
            self._tables.pop(old, None)
            self._filesystem.delete_file(self._path_of(old))

    def _table(self, piece: Piece) -> pa.Table:
        known = self._tables.get(piece)
        if known is None:
            with self._filesystem.open_input_file(self._path_of(piece)) as file:
                known = ipc.open_file(file).read_all()
            self._keep(piece, known)
        return known

    def _keep(self, piece: Piece, rows: pa.Table) -> None:
        self._tables.pop(piece, None)
        self._tables[piece] = rows
        while sum(table.num_rows for table in self._tables.values()) > max(_KEPT_FILES, rows.num_rows):
            del self._tables[next(iter(self._tables))]

    def _write(self, piece: Piece, rows: pa.Table) -> None:
        self._filesystem.create_dir(self._directory, recursive=True)
        content = pa.BufferOutputStream()
        with ipc.new_file(content, _SCHEMA, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(rows)
        publish_bytes(self._filesystem, self._path_of(piece), content.getvalue())

    def _path_of(self, piece: Piece) -> str:
        return f"{self._directory}/files-{piece.first:012d}-{piece.end:012d}-{piece.level}.arrow"
