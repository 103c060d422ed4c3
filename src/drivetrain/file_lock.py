"""An advisory lock on a local file, which the system releases when its holder dies.

Problem: several processes may want one directory, and the one that has it may be killed at any moment.

Design: `flock` on a file that is never deleted. It belongs to the open file: two `FileLock`s of one process
exclude each other like those of two processes, and child processes do not inherit it.

Invariants:

1. While a lock is held exclusively there is no other holder; while it is shared there is no exclusive one.
2. It ends with `release`, or with the process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from drivetrain.private_files import private


class FileLock:
    """The lock on the file `path`, which is created if necessary; its directory exists.

    `mode` None means that of `private_files.private`. A held lock may be taken again, also of the other
    kind: for a moment it may then have no holder.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        self.path: Final = path
        self._mode: Final = mode
        self._descriptor: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether `take` or `wait` was called since the last `release`."""
        return self._descriptor is not None

    def take(self, *, shared: bool = False) -> bool:
        """Take it if it is free now; returns whether it was free. Raises OSError."""
        try:
            fcntl.flock(self._opened(), _kind(shared=shared) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, *, shared: bool = False) -> None:
        """Take it when it is free; blocks. Raises OSError."""
        fcntl.flock(self._opened(), _kind(shared=shared))

    def note(self, text: str) -> None:
        """Make `text` the file's content, for others to read; only a holder may call it."""
        descriptor = self._opened()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)

    def release(self) -> None:
        """Release the lock; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            if self._mode is None:
                self._descriptor = private(os.fspath(self.path), flags)
            else:
                self._descriptor = os.open(self.path, flags, self._mode)
        return self._descriptor


def _kind(*, shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX
