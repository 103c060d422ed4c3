"""A worker's copies of the code that its processes run.

Problem: several processes of an application start on one worker at the same moment and need the same files;
downloads break off; and no copy may remain that no process needs.

Design: per archive, the directory holds either the part that has arrived (`<sha256>.part`) or its unpacked
files (`<sha256>/`, renamed to this when complete); the users of each are kept in memory. A new worker empties
the directory: after a power cut it cannot know which files are complete, and fetching them again is cheap.

Invariants:
1. `path` returns only directories whose archive this object verified.
2. An archive in use is not removed.
3. One process at a time owns the directory: an advisory lock.

Called by the worker. Call the blocking methods in a thread, one at a time for each archive.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Final

from drivetrain.code.archive import BadArchiveError, unpack
from drivetrain.errors import UnavailableError
from drivetrain.file_lock import FileLock
from drivetrain.private_files import make_private_directory, private

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class CodeCache:
    """The archives in `directory`, which is created, locked and emptied; raises UnavailableError, OSError."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory, "the code of applications")
        self._directory: Final = directory
        self._lock: Final = FileLock(directory / "lock")
        if not self._lock.take():
            self._lock.release()
            raise UnavailableError(
                "another worker uses this directory",
                where=str(directory),
                remedy="give each worker its own worker.directory",
            )
        for left in directory.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != "lock":
                left.unlink()
        self._unpacked: Final[set[str]] = set()
        self._users: Final[dict[str, set[str]]] = {}
        self._unused_since_s: Final[dict[str, float]] = {}

    def close(self) -> None:
        """Release the lock on the directory."""
        self._lock.release()

    def path(self, sha256: str) -> Path | None:
        """The directory of the unpacked archive, None until it is installed."""
        return self._directory / sha256 if sha256 in self._unpacked else None

    def use(self, sha256: str, user: str) -> None:
        """Keep the archive, whether it has arrived yet or not, until `user` releases it."""
        self._users.setdefault(sha256, set()).add(user)
        self._unused_since_s.pop(sha256, None)

    def release(self, sha256: str, user: str, now_s: float) -> None:
        """Record that `user` no longer needs the archive."""
        users = self._users.get(sha256, set())
        users.discard(user)
        if not users:
            self._users.pop(sha256, None)
            self._unused_since_s[sha256] = now_s

    def arrived_bytes(self, sha256: str) -> int:
        """The number of bytes of the archive that have arrived; blocking."""
        part = self._part(sha256)
        return part.stat().st_size if part.exists() else 0

    def append(self, sha256: str, data: bytes) -> None:
        """Append the next bytes of the archive; blocking. Raises OSError."""
        with open(self._part(sha256), "ab", opener=private) as file:
            file.write(data)

    def install(self, sha256: str) -> Path:
        """Verify and unpack what has arrived; blocking. Raises BadArchiveError, OSError."""
        part = self._part(sha256)
        if sha256 not in self._unpacked:
            try:
                unpack(part.read_bytes(), sha256, self._directory / sha256)
            finally:
                part.unlink(missing_ok=True)
            self._unpacked.add(sha256)
        return self._directory / sha256

    def unused(self, now_s: float, kept_s: float) -> list[str]:
        """Forget the archives unused for `kept_s` or longer; returns their names, for `remove`."""
        over = [sha256 for sha256, since_s in self._unused_since_s.items() if now_s - since_s >= kept_s]
        for sha256 in over:
            del self._unused_since_s[sha256]
            self._unpacked.discard(sha256)
        return over

    def remove(self, sha256: str) -> None:
        """Delete an archive that `unused` returned; blocking."""
        target = self._directory / f"{sha256}.{time.monotonic_ns()}.removed"
        if (self._directory / sha256).exists():
            (self._directory / sha256).rename(target)
            shutil.rmtree(target)
        self._part(sha256).unlink(missing_ok=True)

    def _part(self, sha256: str) -> Path:
        if _SHA256.fullmatch(sha256) is None:
            raise BadArchiveError("not the name of an archive", expected="a SHA-256", got=repr(sha256[:80]))
        return self._directory / f"{sha256}.part"
