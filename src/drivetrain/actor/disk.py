"""A few small files that must survive a crash: what a protocol may do with a disk, and the real one.

Problem: a protocol that promises durability must rely only on what a disk really guarantees, which is less
than most code assumes. To test that, its disk must be exchangeable for one that crashes.

Design: `Disk` is a flat directory of named files with exactly the operations that have clear rules; a
shell receives one. `DirectoryDisk` is the real one; `drivetrain.simulator.SimulatedDisk` loses unsynced
data. Operations are asynchronous because a real sync takes milliseconds.

Invariants that every disk keeps:
1. Reads see every write of the same process at once, synced or not.
2. Once `sync` has returned, the file's whole content survives a crash. Before, a crash may leave any prefix
   of the unsynced writes, the last one incomplete.
3. `replace` and `delete` are atomic, and durable when they return. A file that was not synced before it
   replaced another may be empty after a crash.
4. An operation that raises has changed nothing.

Called by shells that persist.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeVar

from drivetrain.durable import publish, sync, write_whole
from drivetrain.errors import DiskFullError, OutputError
from drivetrain.private_files import private

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class Disk(Protocol):
    """Named files; see the module for what survives a crash. Names are letters, digits, "_", "-" and "."."""

    async def read(self, name: str) -> bytes | None:
        """The file's content, None when there is no such file."""

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file's content; not durable before `sync`. Raises `DiskFullError`, OSError."""

    async def append(self, name: str, data: bytes) -> None:
        """Add `data` at the end, creating the file; not durable before `sync`. Raises like `write`."""

    async def sync(self, name: str) -> None:
        """Make the file's content durable; raises FileNotFoundError, OSError."""

    async def replace(self, source: str, target: str) -> None:
        """Rename `source` to `target`, replacing its content; raises FileNotFoundError, OSError."""

    async def delete(self, name: str) -> None:
        """Remove the file, if there is one."""

    async def names(self) -> list[str]:
        """The names of all files, sorted."""


def require_file_name(name: str) -> str:
    """Return `name` if it is a valid file name, without a separator; raises `OutputError`."""
    if _NAME.fullmatch(name) is None:
        raise OutputError("not the name of a file", expected="letters, digits, '_', '-', '.'", got=repr(name))
    return name


class DirectoryDisk:
    """The files of a directory, created if necessary; one operation at a time, in its own thread."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="drivetrain-disk")
        directory.mkdir(parents=True, exist_ok=True)

    async def read(self, name: str) -> bytes | None:
        """Read a file; None when there is none."""
        path = self._path(name)

        def work() -> bytes | None:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

        return await self._do(work)

    async def write(self, name: str, data: bytes) -> None:
        """Write to a temporary file first, so that a failure leaves the old content."""
        path = self._path(name)
        await self._do(lambda: write_whole(path, data, synced=False))

    async def append(self, name: str, data: bytes) -> None:
        """Append to the file; a failure cuts off what was appended."""
        path = self._path(name)

        def work() -> None:
            with open(path, "ab", buffering=0, opener=private) as file:
                size = file.tell()
                try:
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                except OSError as error:
                    try:
                        file.truncate(size)
                    except OSError as second:
                        error.add_note(f"and what had been appended could not be cut off: {second}")
                    raise

        await self._do(work)

    async def sync(self, name: str) -> None:
        """Sync the file, and the directory that names it."""
        path = self._path(name)

        def work() -> None:
            sync(path)
            sync(self._directory)

        await self._do(work)

    async def replace(self, source: str, target: str) -> None:
        """Rename, and sync the directory."""
        old, new = self._path(source), self._path(target)

        def work() -> None:
            publish(old, new)

        await self._do(work)

    async def delete(self, name: str) -> None:
        """Remove the file, and sync the directory."""
        path = self._path(name)

        def work() -> None:
            path.unlink(missing_ok=True)
            sync(self._directory)

        await self._do(work)

    async def names(self) -> list[str]:
        """List the directory."""
        return await self._do(
            lambda: sorted(p.name for p in self._directory.iterdir() if _NAME.fullmatch(p.name))
        )

    def close(self) -> None:
        """End the thread after the operations it has begun."""
        self._thread.shutdown()

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFullError(
                    "no space is left on the disk", where=str(self._directory), remedy="free some space"
                ) from error
            raise

    def _path(self, name: str) -> Path:
        return self._directory / require_file_name(name)
