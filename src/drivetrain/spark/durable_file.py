"""A small file whose content survives any crash whole, and that is not believed when it was damaged.

Problem: what was said to be kept must be there after any crash, a power cut included; half a file, or one
that somebody has touched, must not be taken for it.

Design: the content and a checksum of it; written beside, synced, renamed, and the directory synced. What if
we die here: before the rename the old content is there, after it the new one; what lies beside counts for
nothing and is overwritten by the next write.

Invariants:

1. `read` gives what the last `write` that returned was given, or a later one; a damaged file raises.

Called by `clock_file` and `checkpoints`.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

from drivetrain.errors import InputError, OutputError


class DurableFile:
    """The file at `path`, which holds `what` (for people); its directory exists.

    `if_damaged` and `if_full` are remedies.
    """

    def __init__(self, path: Path, what: str, *, if_damaged: str, if_full: str) -> None:
        self.path: Final = path
        self._what: Final = what
        self._if_damaged: Final = if_damaged
        self._if_full: Final = if_full

    def read(self) -> bytes | None:
        """The content, None when none was written; raises InputError when the file is damaged."""
        try:
            told = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.damaged(str(error)) from error
        content, _, checksum = told.strip().rpartition(b" ")
        if checksum != _checksum(content):
            raise self.damaged(repr(told[:80].decode("utf-8", "replace")))
        return content

    def write(self, content: bytes) -> None:
        """Keep a content without line ends; raises OutputError when that cannot be."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(content + b" " + _checksum(content) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            raise OutputError(
                f"{self._what} cannot be written: {error.strerror}",
                where=str(self.path),
                remedy=self._if_full,
            ) from error

    def damaged(self, got: str) -> InputError:
        """The error of a file that cannot be believed."""
        return InputError(
            f"{self._what} cannot be read",
            where=str(self.path),
            expected="what was written, and its checksum",
            got=got,
            remedy=self._if_damaged,
        )


def sync_directory(path: Path) -> None:
    """Make durable which files a directory has."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()
