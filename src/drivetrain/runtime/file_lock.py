"""An advisory lock on a local file, which the system takes back when its holder dies.

Problem: several processes may want one directory, and the one that has it may be killed at any moment.

Design: `flock` on a file that stays. It belongs to the open file: two `FileLock`s of one process exclude each
other like those of two processes, and what a process starts does not inherit it.

Invariants:

1. While a lock is held exclusively nobody else has it; while it is shared nobody has it exclusively.
2. It ends with `release`, or with the process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from drivetrain.private_files import private


class FileLock:
    """The lock on the file `path`, which is made if need be; its directory exists.

    `mode` None means that of `private_files.private`. A lock that is held may be taken again, of the other
    kind too: for a moment nobody may have it then.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        self.path: Final = path
        self._mode: Final = mode
        self._descriptor: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has been taken, or tried, since it was released last."""
        return self._descriptor is not None

    def take(self, *, shared: bool = False) -> bool:
        """Take it if it is free now; returns whether it was. Raises OSError."""
        try:
            fcntl.flock(self._opened(), _kind(shared=shared) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, *, shared: bool = False) -> None:
        """Take it when it is free; blocks. Raises OSError."""
        fcntl.flock(self._opened(), _kind(shared=shared))

    def note(self, text: str) -> None:
        """Make `text` the file's content, for others to read; whoever holds it may."""
        descriptor = self._opened()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)

    def release(self) -> None:
        """Let others have it; may be called again."""
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
