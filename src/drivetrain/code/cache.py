"""A worker's copies of the code that its processes run.

Problem: several processes of an application start on one worker at the same moment and need the same files;
downloads break off; and nothing may be left when no process needs it.

Design: a directory with, per archive, the part that has arrived (`<sha256>.part`) or its unpacked files
(`<sha256>/`, renamed there when whole), and who uses it, in memory. What is there when a worker starts is
removed: after a power cut nobody knows whether it is whole, and fetching it again is cheap.

Invariants:
1. `path` returns only directories whose archive was verified by this object.
2. What somebody uses is not removed.
3. One process at a time has the directory: an advisory lock.

Called by the worker; what is said to block belongs in a thread, one at a time for each archive.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from pathlib import Path
from typing import Final

from drivetrain.code.archive import BadArchiveError, unpack
from drivetrain.errors import UnavailableError
from drivetrain.private_files import make_private_directory, private

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class CodeCache:
    """The archives in `directory`, which is created, locked and emptied; raises UnavailableError, OSError."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory, "the code of applications")
        self._directory: Final = directory
        self._lock: Final = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise UnavailableError(
                "another worker uses this directory",
                where=str(directory),
                remedy="give each worker its own worker.directory",
            ) from error
        for left in directory.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != "lock":
                left.unlink()
        self._unpacked: Final[set[str]] = set()
        self._users: Final[dict[str, set[str]]] = {}
        self._unused_since_s: Final[dict[str, float]] = {}

    def close(self) -> None:
        """Give the directory free."""
        os.close(self._lock)

    def path(self, sha256: str) -> Path | None:
        """Where the unpacked archive is, None while it is not there."""
        return self._directory / sha256 if sha256 in self._unpacked else None

    def use(self, sha256: str, user: str) -> None:
        """Keep the archive, there or to come, until `user` releases it."""
        self._users.setdefault(sha256, set()).add(user)
        self._unused_since_s.pop(sha256, None)

    def release(self, sha256: str, user: str, now_s: float) -> None:
        """`user` does not need it any more."""
        users = self._users.get(sha256, set())
        users.discard(user)
        if not users:
            self._users.pop(sha256, None)
            self._unused_since_s[sha256] = now_s

    def arrived_bytes(self, sha256: str) -> int:
        """How much of the archive has arrived; blocking."""
        part = self._part(sha256)
        return part.stat().st_size if part.exists() else 0

    def append(self, sha256: str, data: bytes) -> None:
        """Add what arrived next; blocking. Raises OSError."""
        with open(self._part(sha256), "ab", opener=private) as file:
            file.write(data)

    def install(self, sha256: str) -> Path:
        """Verify and unpack what has arrived; blocking. Raises BadArchiveError and forgets it, or OSError."""
        part = self._part(sha256)
        if sha256 not in self._unpacked:
            try:
                unpack(part.read_bytes(), sha256, self._directory / sha256)
            finally:
                part.unlink(missing_ok=True)
            self._unpacked.add(sha256)
        return self._directory / sha256

    def unused(self, now_s: float, kept_s: float) -> list[str]:
        """Which archives nobody has used for `kept_s` or longer; they are not to be had any more."""
        over = [sha256 for sha256, since_s in self._unused_since_s.items() if now_s - since_s >= kept_s]
        for sha256 in over:
            del self._unused_since_s[sha256]
            self._unpacked.discard(sha256)
        return over

    def remove(self, sha256: str) -> None:
        """Delete an archive that `unused` has named; blocking."""
        target = self._directory / f"{sha256}.{time.monotonic_ns()}.removed"
        if (self._directory / sha256).exists():
            (self._directory / sha256).rename(target)
            shutil.rmtree(target)
        self._part(sha256).unlink(missing_ok=True)

    def _part(self, sha256: str) -> Path:
        if _SHA256.fullmatch(sha256) is None:
            raise BadArchiveError("not the name of an archive", expected="a SHA-256", got=repr(sha256[:80]))
        return self._directory / f"{sha256}.part"
