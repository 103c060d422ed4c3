"""The file log: every file of a source, once, in the order in which it is read.

The problem: a batch must read the same bytes when it is replayed after a crash, although the
directory has more files by then, and a listing has no order to rely on. Spark's own file source keeps
such a log, but takes whole files only and knows no end; a 10 GB file would be one batch.

The design: files are appended to a durable log when they are first seen. Laid end to end they form
one long row of bytes, so an offset is a single number, `bytes`, and a batch is a range of it. A text
record belongs to the range that its first byte lies in, a Parquet row group likewise, so ranges can be
cut anywhere, in proportion, without looking into the files. Files that cannot be cut (compressed ones,
CSV with line breaks inside quotes) are taken whole: their bytes are all or nothing.

The log is a directory of numbered JSON segments, each written under a hidden name, synced and renamed.
Every `COMPACT_EVERY`-th segment holds all files so far, and the older ones are then deleted.

Invariants:

1. A file's place in the log never changes; no path is in the log twice.
2. A range that was once returned by `cut` is covered by durable segments, so it can be read again.
3. `cut` never lands inside a file that must be taken whole, and always advances if anything is left.
4. There is one writer: the driver until the query starts, its source reader afterwards.

Called by `open_source` (driver) and by the streaming reader (Spark's planning process).
Source: Spark's CompactibleFileStreamLog; Hadoop's rule for input splits.
"""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.fs as pafs

from drivetrain.errors import InternalError
from drivetrain.spark.sources.durable import publish_bytes
from drivetrain.spark.sources.location import FoundFile

COMPACT_EVERY = 64
MAX_FILES_PER_BATCH = 10_000


@dataclass(frozen=True)
class FileSplit:
    """The bytes [start, end) of a file of `size_bytes`; `whole` files are read from first to last byte."""

    path: str
    start: int
    end: int
    size_bytes: int
    whole: bool


class FileLog:
    """The files of one source, durable in `directory`; see the module's docstring."""

    def __init__(self, filesystem: pafs.FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory.rstrip("/")
        self._files: list[tuple[FoundFile, bool]] = []
        self._ends: list[int] = []
        self._seen: set[str] = set()
        self._next_segment = 0
        self.exists = False
        self._load()

    @property
    def total_bytes(self) -> int:
        """The length of the log: the offset behind its last byte."""
        return self._ends[-1] if self._ends else 0

    @property
    def files(self) -> list[FoundFile]:
        """All files, in their order."""
        return [file for file, _ in self._files]

    def end_of(self, files: int) -> int:
        """The offset behind the first `files` files."""
        return self._ends[files - 1] if files else 0

    def __len__(self) -> int:
        return len(self._files)

    def append(self, found: Iterable[tuple[FoundFile, bool]]) -> int:
        """Make the files that are new durable, in the order given, and return how many they were.

        Each comes with whether it must be taken whole. Writes a segment, even an empty one, when the
        log did not exist: an existing log says that the input has been listed.
        """
        new = [(file, whole) for file, whole in found if file.path not in self._seen]
        if not new and self.exists:
            return 0
        self._write_segment(new)
        self._remember(new)
        self.exists = True
        return len(new)

    def cut(self, start: int, limit_bytes: int | None) -> int:
        """The end of a batch that starts at `start` and takes at most `limit_bytes` (None: no limit).

        More than the limit is taken only when a whole file is larger than it.
        """
        total = self.total_bytes
        if start >= total:
            return start
        last = min(bisect.bisect_right(self._ends, start) + MAX_FILES_PER_BATCH, len(self._ends)) - 1
        end = min(self._ends[last], total if limit_bytes is None else start + max(1, limit_bytes))
        index = bisect.bisect_left(self._ends, end)
        file, whole = self._files[index]
        if not whole or end == self._ends[index]:
            return end
        file_start = self._ends[index] - file.size_bytes
        return file_start if file_start > start else self._ends[index]

    def splits(self, start: int, end: int, parts: int) -> list[list[FileSplit]]:
        """The range [start, end) as at most `parts` groups of about as many bytes, in order."""
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
        index = bisect.bisect_right(self._ends, start)
        while index < len(self._files):
            file, whole = self._files[index]
            file_start = self._ends[index] - file.size_bytes
            if file_start >= end:
                break
            low, high = max(start - file_start, 0), min(end - file_start, file.size_bytes)
            if not whole:
                splits.append(FileSplit(file.path, low, high, file.size_bytes, whole=False))
            elif low == 0 and high > 0:
                # A whole file belongs to the group that its first byte lies in.
                splits.append(FileSplit(file.path, 0, file.size_bytes, file.size_bytes, whole=True))
            index += 1
        return splits

    def _remember(self, files: Iterable[tuple[FoundFile, bool]]) -> None:
        for file, whole in files:
            self._files.append((file, whole))
            self._ends.append(self.total_bytes + file.size_bytes)
            self._seen.add(file.path)

    def _segment_path(self, number: int) -> str:
        return f"{self._directory}/files-{number:09d}.json"

    def _load(self) -> None:
        selector = pafs.FileSelector(self._directory, allow_not_found=True)
        numbers = sorted(
            int(info.base_name[6:15])
            for info in self._filesystem.get_file_info(selector)
            if info.base_name.startswith("files-") and info.base_name.endswith(".json")
        )
        compacted = [number for number in numbers if _is_compact(number)]
        for number in numbers:
            if compacted and number < compacted[-1]:
                continue
            with self._filesystem.open_input_stream(self._segment_path(number)) as stream:
                segment = json.loads(stream.read())
            self._remember(
                (FoundFile(path, size_bytes, mtime_ms), whole)
                for path, size_bytes, mtime_ms, whole in segment["files"]
            )
        self.exists = bool(numbers)
        self._next_segment = numbers[-1] + 1 if numbers else 0

    def _write_segment(self, new: list[tuple[FoundFile, bool]]) -> None:
        number = self._next_segment
        content = [*self._files, *new] if _is_compact(number) else new
        rows = [[file.path, file.size_bytes, file.mtime_ms, whole] for file, whole in content]
        self._filesystem.create_dir(self._directory, recursive=True)
        publish_bytes(
            self._filesystem, self._segment_path(number), json.dumps({"version": 1, "files": rows}).encode()
        )
        self._next_segment = number + 1
        if _is_compact(number):
            for old in range(number - COMPACT_EVERY, number):
                if self._filesystem.get_file_info(self._segment_path(old)).type == pafs.FileType.File:
                    self._filesystem.delete_file(self._segment_path(old))


def _is_compact(number: int) -> bool:
    return number > 0 and number % COMPACT_EVERY == 0
