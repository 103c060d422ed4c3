"""The application's clock in an embedded run: a small file in the state directory.

Design: see `durable_file`.

Invariants:

1. `read` returns the value of the last completed `write`, or of a later one; a damaged file raises.

Called by `run_clock`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from drivetrain.runtime.durable_file import DurableFile


class ClockFile:
    """The file at `path`; its directory exists. `require_own` raises if another process has it by now."""

    def __init__(self, path: Path, require_own: Callable[[], None] | None = None) -> None:
        self.path: Final = path
        self._require_own: Final = require_own
        self._file: Final = DurableFile(
            path,
            "the application's clock",
            if_damaged="delete the file: the clock follows from the channels and checkpoints then",
            if_full="make room, or make the state directory writable: the run goes on, its clock stands",
        )

    def read(self) -> int | None:
        """The clock in ms, None when none was written; raises InputError when the file is damaged."""
        persisted = self._file.read()
        return None if persisted is None else int(persisted)

    def write(self, clock_ms: int) -> None:
        """Write a clock; raises OutputError when that fails, and LostLockError."""
        self._file.write(str(clock_ms).encode(), self._require_own)
