"""An advisory lock on a local file, which the system releases when its holder dies.

Problem: several processes may want one directory, and the one that has it may be killed at any moment.

Design: `flock` on a file that Drivetrain never deletes. It belongs to the open file: two `FileLock`s of one
process exclude each other like those of two processes, and child processes do not inherit it.

A lock may be lost without notice: someone deletes the file, and the next process locks a new one; or the
server of a network file system gives it to others while its holder's machine is suspended. So a holder can
check that the file of that name is still the one that it has locked, with the content that it knows
(`is_kept`); who takes a lock that others must not have any more, notes something new in it.

Invariants:

1. While a lock is held exclusively there is no other holder; while it is shared there is no exclusive one,
   as long as the file system keeps the lock, and nobody deletes the file.
2. It ends with `release`, or with the process.
3. A lock is only taken on the file that has the name then.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path
from typing import Final

from drivetrain.private_files import private

log = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
"""How long a process waits for a lock before it logs who holds it."""


class FileLock:
    """The lock on the file `path`, which is created if necessary; its directory exists.

    `mode` None means that of `private_files.private`. A held lock may be taken again, also of the other
    kind: for a moment it may then have no holder.
    """

    def __init__(self, path: Path, *, mode: int | None = None) -> None:
        self.path: Final = path
        self._mode: Final = mode
        self._descriptor: int | None = None
        self._known: bytes | None = None
        """The content of the file while the lock is held; None while it is not."""

    @property
    def is_open(self) -> bool:
        """Whether `take` or `wait` was called since the last `release`."""
        return self._descriptor is not None

    def take(self, *, shared: bool = False) -> bool:
        """Take it if it is free now; returns whether it was free. Raises OSError."""
        while True:
            try:
                self._lock(_kind(shared=shared) | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._content_if_same() is None:
                    self.release()  # its holder has the file that was deleted
                    continue
                self._known = None  # a failed change to the other kind has lost the lock
                return False
            return True

    def wait(self, *, shared: bool = False) -> None:
        """Take it when it is free; blocks, and after ten seconds logs who holds it. Raises OSError."""
        if self.take(shared=shared):
            return
        warning = threading.Timer(PATIENCE_S, self._warn)
        warning.daemon = True
        warning.start()
        try:
            self._lock(_kind(shared=shared))
        finally:
            warning.cancel()

    def _warn(self) -> None:
        log.warning("this process waits for the lock %s, held by %s", self.path, self.holder())

    def holder(self) -> str:
        """The holder of the lock, in words, as far as the system shows it."""
        try:
            inode = os.stat(self.path).st_ino
            rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
            pid = next(int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].endswith(f":{inode}"))
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, StopIteration, ValueError, IndexError):
            return "a process that cannot be seen from here; it may be on another machine"
        return f"process {pid}" + (", which is suspended: continue or end it" if state == "T" else "")

    def is_kept(self) -> bool:
        """Whether the lock is held, and the file of this name is still the one that is locked, with the
        content that it had when the lock was taken, or that `note` has given it."""
        return self._known is not None and self._content_if_same() == self._known

    def note(self, text: str) -> None:
        """Make `text` the file's content, for others to read; only a holder may call it."""
        descriptor = self._opened()
        self._known = text.encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, self._known, 0)

    def release(self) -> None:
        """Release the lock; may be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._known = None

    def _lock(self, how: int) -> None:
        while True:
            fcntl.flock(self._opened(), how)
            content = self._content_if_same()
            if content is not None:
                break
            self.release()  # it was deleted after it was opened: others lock the next file of this name
        if self._known is None:
            self._known = content

    def _content_if_same(self) -> bytes | None:
        """The content of the file of this name if it is the locked one; None if it is another, or gone."""
        try:
            with open(self.path, "rb") as file:  # opened again: on NFS that asks the server
                if os.path.sameopenfile(file.fileno(), self._opened()):
                    return file.read()
        except FileNotFoundError:
            return None
        return None

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
