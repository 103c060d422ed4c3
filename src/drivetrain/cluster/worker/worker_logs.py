"""The logs of the processes of a worker.

Problem: a process may write without end; its log must exist after a failure, must not fill the disk, and must
be readable from any position while it grows and is rotated.

Design: `logs/<application>/<process>.<offset>.log`: a process's output is one stream of bytes, cut into files
that are named by the position of their first byte. A full file is followed by the next, and the oldest is
deleted. So a position stays valid through rotations and restarts of the worker, and nothing is renamed.

Invariants:
1. A process has at most `count` files of at most `size_bytes` (a single write may exceed it).
2. Reading at a position returns the bytes written there, or later ones if those were deleted.
3. No name in a request reaches another directory.
4. Writing never raises: when the disk is full, output is dropped and counted.

Called by the launcher: `LogWriter` in the thread that reads a process's output, the rest in threads.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from drivetrain.private_files import make_private_directory, private

log: Final = logging.getLogger("drivetrain.worker")

_FILE: Final = re.compile(r"(?P<process>[A-Za-z0-9][A-Za-z0-9_.-]*)\.(?P<offset>[0-9]{12,})\.log")
_KEPT_BYTES: Final = 16 * 1024
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def is_plain_name(name: str) -> bool:
    """Whether a name from a message may be used as a file name."""
    return _PLAIN.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A piece of a log that begins at `offset`."""

    data: bytes
    offset: int

    @property
    def next_offset(self) -> int:
        """The offset after this piece."""
        return self.offset + len(self.data)


class LogWriter:
    """Writes one process's output, appending to its existing log."""

    def __init__(self, directory: Path, process: str, size_bytes: int, count: int) -> None:
        make_private_directory(directory, "the logs")
        self._directory: Final = directory
        self._process: Final = process
        self._size_bytes: Final = size_bytes
        self._count: Final = count
        self._offset = _end(directory, process)
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self.dropped_bytes = 0

    def write(self, data: bytes) -> None:
        """Append output; never raises, see invariant 4."""
        try:
            if self._file is None or self._file_bytes >= self._size_bytes:
                self._begin()
            assert self._file is not None
            rest = memoryview(data)
            while rest:
                written = self._file.write(rest)
                rest = rest[written:]
                self._file_bytes += written
                self._offset += written
        except OSError as error:
            if not self.dropped_bytes:
                log.warning("the output of %s is dropped: %s", self._process, error)
            self.dropped_bytes += len(data)
            self.close()

    def close(self) -> None:
        """Close the file; a later write opens the next."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._offset = _end(self._directory, self._process)

    def _begin(self) -> None:
        if self._file is not None:
            self._file.close()
        path = self._directory / f"{self._process}.{self._offset:012d}.log"
        self._file = open(path, "ab", buffering=0, opener=private)  # noqa: SIM115 - until `close`
        self._file_bytes = path.stat().st_size
        for _, old in _files(self._directory, self._process)[: -self._count]:
            old.unlink()


class SpareOutput:
    """What a process has written: its end is kept until it has a launch, then all goes to that one's log."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._kept = bytearray()
        self._log: LogWriter | None = None

    def write(self, data: bytes) -> None:
        """Append output; never raises."""
        with self._lock:
            if self._log is not None:
                self._log.write(data)
            else:
                self._kept += data
                del self._kept[:-_KEPT_BYTES]

    def close(self) -> None:
        """Close the log."""
        with self._lock:
            if self._log is not None:
                self._log.close()

    def go_on_in(self, log: LogWriter) -> None:
        """Write to a log from now on, beginning with what was kept."""
        with self._lock:
            self._log = log
            log.write(bytes(self._kept))

    @property
    def end(self) -> str:
        """The end of what was kept, for an error."""
        with self._lock:
            return self._kept.decode("utf-8", "replace").strip()


class WorkerLogs:
    """All logs below `directory`."""

    def __init__(self, directory: Path, size_bytes: int, count: int) -> None:
        self._directory: Final = directory
        self._size_bytes: Final = size_bytes
        self._count: Final = count

    def writer(self, app_id: str, process: str) -> LogWriter:
        """A writer for a process of an application; raises OSError."""
        return LogWriter(self._directory / app_id, process, self._size_bytes, self._count)

    def processes(self, app_id: str) -> list[str]:
        """The application's processes that have a log, the latest writer last."""
        folder = self._directory / app_id
        if not is_plain_name(app_id) or not folder.is_dir():
            return []
        newest: dict[str, int] = {}
        for path in folder.iterdir():
            match = _FILE.fullmatch(path.name)
            if match is not None:
                changed = _changed_ns(path)
                newest[match["process"]] = max(newest.get(match["process"], 0), changed)
        return sorted(newest, key=lambda process: (newest[process], process))

    def read(self, app_id: str, process: str, offset: int | None, max_bytes: int) -> LogPiece:
        """Read at most `max_bytes` at `offset`, None meaning the end; raises OSError."""
        files = _files(self._directory / app_id, process)
        begin, end = files[0][0] if files else 0, _end_of(files)
        position = max(end - max_bytes, 0) if offset is None else offset
        if not files or files[-1][1].exists():  # otherwise the end is further than is known here
            position = min(position, end)
        position = max(position, begin)
        data = b""
        for start, path in files:
            if len(data) >= max_bytes or (data and position + len(data) < start):
                break
            position = max(position, start - len(data))  # what was before it may have been deleted meanwhile
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(position + len(data) - start)
                data += file.read(max_bytes - len(data))
        return LogPiece(data, position)

    def remove_old(self, older_than_s: float, kept: frozenset[tuple[str, str]]) -> None:
        """Delete logs not written for `older_than_s`, except `kept`: (application, process) pairs."""
        if not self._directory.is_dir():
            return
        limit_s = time.time() - older_than_s
        alive = {app_id for app_id, _ in kept}
        for folder in sorted(self._directory.iterdir()):
            for process in self.processes(folder.name):
                paths = [path for _, path in _files(folder, process)]
                is_old = all(_changed_ns(path) < limit_s * 1e9 for path in paths)
                if is_old and (folder.name, process) not in kept:
                    for path in paths:
                        path.unlink(missing_ok=True)
            if folder.name not in alive and not any(folder.iterdir()):
                folder.rmdir()


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0  # it was deleted meanwhile


def _files(folder: Path, process: str) -> list[tuple[int, Path]]:
    """The files of one process with their first positions, in order."""
    found = []
    if folder.is_dir():
        for path in folder.iterdir():
            match = _FILE.fullmatch(path.name)
            if match is not None and match["process"] == process:
                found.append((int(match["offset"]), path))
    return sorted(found)


def _end(folder: Path, process: str) -> int:
    return _end_of(_files(folder, process))


def _end_of(files: list[tuple[int, Path]]) -> int:
    """The position after the last of these files; its beginning if it was deleted meanwhile."""
    if not files:
        return 0
    start, path = files[-1]
    try:
        return start + path.stat().st_size
    except FileNotFoundError:
        return start
