"""The log of a process of a local cluster: its output, in files of limited size.

Design: a thread reads the process's output and appends it to `<name>.log`. A full file is renamed to
`<name>.log.1`, the previous `.1` to `.2`, and so on; the oldest is deleted.

Invariants:

1. There are at most `count` files of at most `size_bytes` each (a single write may exceed it).
2. The process never waits for disk space: output that cannot be written is dropped, and the log states how
   much once it can be written again.

Called by `local_cluster`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import IO, BinaryIO, Final

from drivetrain.private_files import private

_READ_BYTES: Final = 65_536


class RotatedLog:
    """Appends to `path`; raises OSError when the file cannot be opened."""

    def __init__(self, path: Path, size_bytes: int, count: int) -> None:
        self.path: Final = path
        self._size_bytes: Final = size_bytes
        self._count: Final = count
        self._dropped_bytes = 0
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Append output; never raises, see invariant 2."""
        try:
            if self._dropped_bytes:
                self._append(f"[{self._dropped_bytes} bytes could not be written]\n".encode())
                self._dropped_bytes = 0
            self._append(data)
        except OSError:
            self._dropped_bytes += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        if self._file.closed or self._file.tell() >= self._size_bytes:
            self._rotate()
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._count - 1, 0, -1):
            newer = self._rotated(number - 1)
            if newer.exists():
                newer.replace(self._rotated(number))
        self._file = self._open()

    def _rotated(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def _open(self) -> BinaryIO:
        return open(self.path, "ab", buffering=0, opener=private)


def follow_output(output: IO[bytes], log: RotatedLog, name: str) -> threading.Thread:
    """Copy the unbuffered pipe `output` to `log` until its other end is closed, then close both.

    Returns the thread that does this.
    """

    def follow() -> None:
        try:
            while data := output.read(_READ_BYTES):
                log.write(data)
        finally:
            output.close()
            log.close()

    thread = threading.Thread(target=follow, name=f"log-of-{name}", daemon=True)
    thread.start()
    return thread
