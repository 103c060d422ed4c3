"""Where an embedded run keeps its application's clock: a small file in the state directory.

Problem: the clock that was told must be known after any crash, a power cut included, and a file that was
damaged must not be believed.

Design: one line, the clock and a checksum of it; written beside, synced, renamed, and the directory synced.
What if we die here: before the rename the old clock is there, after it the new one; what lies beside counts
for nothing and is overwritten by the next write.

Invariants:

1. `read` gives what the last `write` that returned was given, or a later one; a damaged file raises.

Called by `run_clock`.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final

from drivetrain.errors import InputError, OutputError


class ClockFile:
    """The file at `path`; its directory exists."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def read(self) -> int | None:
        """The clock in ms, None when none was written; raises InputError when the file is damaged."""
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from error
        number, _, checksum = text.strip().partition(" ")
        if checksum != _checksum(number):
            raise self._damaged(repr(text[:80]))
        return int(number)

    def write(self, clock_ms: int) -> None:
        """Keep a clock; raises OutputError when that cannot be."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with open(temporary, "w") as file:
                file.write(f"{clock_ms} {_checksum(str(clock_ms))}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise OutputError(
                f"the application's clock cannot be written: {error.strerror}",
                where=str(self.path),
                remedy="make room, or make the state directory writable: the run goes on, its clock stands",
            ) from error

    def _damaged(self, got: str) -> InputError:
        return InputError(
            "the application's clock cannot be read",
            where=str(self.path),
            expected="a number and its checksum",
            got=got,
            remedy="delete the file: the clock follows from the channels and checkpoints then",
        )


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
