"""Joins batches into larger files before readers see them.

The problem: a stream with a batch a second makes 86,400 files a day. Small files cannot be joined once
readers see them: a reader that lists the directory in between would find messages twice, or miss them.

The design: batches that count as published, but are not visible yet, wait in a hidden folder, each as the
file that it would be if it were alone. Due batches become one file: when it has the size or the age that the
sink declares, when its columns change, and when the run ends. Without such limits everything is due at once.
A file has its age by the clock of the machine, which also runs while no process does, or by the time that
this process has known it, which cannot be set back.

    <dir>/_drivetrain/rolling/<rows>.<header>.<schema>.<name>.waiting   a waiting file: its number of
                                   rows, the bytes of its header, a checksum of its columns, and its name
                                   once visible
    <dir>/_drivetrain/joining/…      a joined file while it is written
    <dir>/part-<sink>-<first>-to<last>.<extension>     a joined file; one that is alone keeps its name

With partitions, a due file is not renamed but divided (see `partitioned_files`), batches alone as well.

The joined file is written separately and takes its place in the folder; then its parts are deleted, and it is
renamed into the directory. What if we die here: a waiting file whose range lies within that of another was
joined, and the next process deletes it; so a message waits, or is visible, once.

Invariants:

1. Every batch is in exactly one complete file: one that waits and counts, or one that is visible to readers.
2. A visible file never changes.
3. A batch that Spark may still run again waits (`released`): its file proves that it was written.

Called by the file sink, which ensures that only one thread at a time uses it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from drivetrain.connectors.files.output_ownership import WAITING, OutputDirectory, refusals_named
from drivetrain.connectors.files.partitioned_files import PartitionedFiles
from drivetrain.connectors.files.publication_manifest import NONE, batch_of
from drivetrain.connectors.files.staging import Target, join_files
from drivetrain.runtime.objects.object_files import objects_of
from drivetrain.runtime.whole_files import staging_files, staging_folder

FILE_BYTES = 128 * 2**20
"""The size of a joined file by default."""


@dataclass(frozen=True)
class Waiting:
    """A waiting file: the batches from `first` to `last` of one `life` of the application."""

    path: str
    name: str
    rows: int
    header_bytes: int
    schema: str
    life: str
    first: int
    last: int
    extension: str
    size_bytes: int
    since_ms: int

    def holds(self, other: Waiting) -> bool:
        """Whether `other` was joined into this file."""
        return (
            self.name != other.name
            and self.life == other.life
            and self.first <= other.first
            and other.last <= self.last
        )

    def fits(self, other: Waiting) -> bool:
        """Whether `other` can follow in one file."""
        return (self.life, self.schema, self.header_bytes, self.extension) == (
            other.life,
            other.schema,
            other.header_bytes,
            other.extension,
        )


class Rolling:
    """The waiting files of one sink; `age_ms` is None if everything is due at once."""

    def __init__(
        self,
        directory: OutputDirectory,
        sink_id: str,
        target: Target,
        partitions: PartitionedFiles | None = None,
        *,
        size_bytes: int,
        age_ms: int | None,
    ) -> None:
        self._directory = directory
        self._partitions = partitions
        self._target = target
        self._size_bytes = size_bytes
        self._age_ms = age_ms
        self._stem = f"part-{sink_id}-"
        self._joining = f"{directory.joining}/{sink_id}-{directory.writer}"
        self._shown: dict[str, int] = {}
        """The last batch that this process has shown, by life. What is not later, and waits, was put there by
        a former process that was suspended meanwhile."""
        self._known_s: dict[str, float] = {}
        """When this process first knew the waiting files, by path: its monotonic time, in seconds."""
        self._name = re.compile(
            rf"(\d+)\.(\d+)\.([0-9a-f]+)\.({re.escape(self._stem)}"
            rf"(life\d+-)?(\d{{8,}})(?:-to(\d{{8,}}))?(\.[^/]+)){re.escape(WAITING)}"
        )

    # -- prepared batches --------------------------------------------------------------------------------

    def prepared(self) -> dict[int, str]:
        """The paths of the prepared batches, which do not count yet."""
        selector = pafs.FileSelector(self._directory.prepared, allow_not_found=True)
        found = self._directory.filesystem.get_file_info(selector)
        return {batch_of(info.base_name): info.path for info in found}

    def prepare(self, aside: str, waiting: str, staged: pafs.FileSystem) -> None:
        """Keep the finished file `aside`, of the file system `staged`, as a prepared batch."""
        folder = self._directory.prepared
        self._directory.publish(aside, f"{folder}/{waiting}", staged)

    def count(self, published: int, last: int) -> dict[int, int]:
        """Have the prepared batches after `published` count up to `last`; returns their numbers of rows."""
        rows: dict[int, int] = {}
        for batch, aside in sorted(self.prepared().items()):
            if batch > last:
                break
            if batch <= published:
                self._directory.filesystem.delete_file(aside)
                continue
            waiting = aside.rpartition("/")[2]
            self.take(aside, waiting)
            rows[batch] = int(waiting.partition(".")[0])
        return rows

    # -- batches that count ------------------------------------------------------------------------------

    def take(self, aside: str, waiting: str, staged: pafs.FileSystem | None = None) -> None:
        """Move the finished file `aside` to the waiting ones, under that name; durable when this returns.

        `staged` is the file system of `aside`, if it is not the directory's.
        """
        filesystem, folder = self._directory.filesystem, self._directory.rolling
        with refusals_named(folder):
            filesystem.create_dir(folder, recursive=True)
            self._directory.publish(aside, f"{folder}/{waiting}", staged)

    def waiting(self) -> list[Waiting]:
        """The files that wait and count, in the order of batches."""
        found = [one for one in self._all() if one.last > self._shown.get(one.life, NONE)]
        found.sort(key=lambda one: (one.last, -one.first))
        kept: list[Waiting] = []
        for one in reversed(found):  # a joined file comes before its parts
            if not (kept and kept[-1].holds(one)):
                kept.append(one)
        return kept[::-1]

    def show(self, released: int | None = None, *, ends: bool = False) -> None:
        """Join the due batches among those up to `released` (None: all), and show them to readers.

        With `ends` everything is due.
        """
        self.finish()
        waiting = self.waiting()
        self._known_s = {one.path: self._known_s.get(one.path, time.monotonic()) for one in waiting}
        waiting = [one for one in waiting if released is None or one.last <= released]
        for group in self._due(waiting, ends=ends):
            one = group[0] if len(group) == 1 else self._joined(group)
            if self._partitions is not None:
                self._partitions.show(one.path, one.name)
            else:
                path = f"{self._directory.path}/{one.name}"
                with refusals_named(path):
                    self._directory.publish(one.path, path)
            self._shown[one.life] = one.last

    def finish(self) -> None:
        """Finish what a process that died had begun."""
        self._delete_parts()
        self._delete_shown()
        if self._partitions is not None:
            self._partitions.finish()

    def _due(self, waiting: list[Waiting], *, ends: bool) -> list[list[Waiting]]:
        groups: list[list[Waiting]] = []
        for one in waiting:
            if groups and groups[-1][-1].fits(one) and _size(groups[-1]) < self._size_bytes:
                groups[-1].append(one)
            else:
                groups.append([one])
        if not groups or ends or self._age_ms is None or _size(groups[-1]) >= self._size_bytes:
            return groups
        if self._age(groups[-1][0]) >= self._age_ms:
            return groups
        return groups[:-1]  # nothing can be appended to the earlier groups

    def _age(self, one: Waiting) -> float:
        """How long a file has waited at least, in ms."""
        known_ms = (time.monotonic() - self._known_s[one.path]) * 1_000
        return max(time.time_ns() // 1_000_000 - one.since_ms, known_ms)

    def _joined(self, group: Sequence[Waiting]) -> Waiting:
        """Replace several waiting files with one."""
        first, last = group[0], group[-1]
        staging = staging_files(self._directory.filesystem)
        folder = staging_folder(self._directory.filesystem, self._joining)
        whole = f"{folder}/whole"
        with refusals_named(whole):
            staging.create_dir(folder, recursive=True)
            try:
                join_files([one.path for one in group], first.header_bytes, self._target, whole)
                name = f"{self._stem}{first.life}{first.first:08d}-to{last.last:08d}{first.extension}"
                rows = sum(one.rows for one in group)
                self.take(whole, f"{rows}.{first.header_bytes}.{first.schema}.{name}{WAITING}", staging)
            finally:
                staging.delete_dir(folder)
        self._delete_parts()
        return next(one for one in self.waiting() if one.name == name)

    def _delete_parts(self) -> None:
        """Delete the files that were joined into others."""
        counting = {one.path for one in self.waiting()}
        for one in self._all():
            if one.path not in counting:
                self._directory.filesystem.delete_file(one.path)

    def _delete_shown(self) -> None:
        """Delete waiting files that are visible: where moving is two steps, a process may die between them.

        Joined with later ones, their messages would be seen twice.
        """
        filesystem = self._directory.filesystem
        if objects_of(filesystem) is not None and (waiting := self.waiting()):
            shown = set(self._partitions.names()) if self._partitions is not None else set()
            shown |= {path.rpartition("/")[2] for path in self._directory.published()}
            for one in waiting:
                if one.name in shown:
                    filesystem.delete_file(one.path)

    def _all(self) -> list[Waiting]:
        selector = pafs.FileSelector(self._directory.rolling, allow_not_found=True)
        infos = self._directory.filesystem.get_file_info(selector)
        return [found for info in infos if (found := self._waiting(info)) is not None]

    def last_of(self, life: str) -> int:
        """The last waiting batch of a life; `NONE` if there is none."""
        return max((one.last for one in self.waiting() if one.life == life), default=NONE)

    def _waiting(self, info: pafs.FileInfo) -> Waiting | None:
        found = self._name.fullmatch(info.base_name)
        if found is None:
            return None
        rows, header, schema, name, life, first, last, extension = found.groups()
        return Waiting(
            info.path,
            name,
            int(rows),
            int(header),
            schema,
            life or "",
            int(first),
            int(last or first),
            extension,
            int(info.size),
            0 if info.mtime_ns is None else info.mtime_ns // 1_000_000,
        )


def _size(group: Sequence[Waiting]) -> int:
    return sum(one.size_bytes for one in group)
