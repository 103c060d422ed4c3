"""The scalings of an application that are done, kept in its state directory.

Problem: users want to see when a state was divided into another number of partitions, by whom, and how long
that took. The state itself shows only how many there are.

Design: a file of the last ones. Nothing depends on it.

What if we die here: a scaling was done and is not in the file.

Called by `spark.run.scaling` and `stored_scalings` of application masters, which add to it, and by
`drivetrain versions`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.change.scaling_state import CompletedScaling, ScalingState
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.graph_versions import user_name

FILE: Final = "scalings"
_KEPT: Final = 50


class Scalings:
    """The scalings of the application whose state directory is `path`."""

    def __init__(self, path: Path) -> None:
        self._file: Final = DurableFile(
            path / FILE,
            "the list of scalings",
            if_damaged="delete the file: it only shows what was done",
            if_full="make room: the scaling itself is done",
        )

    def all(self) -> list[CompletedScaling]:
        """Those that are kept, the newest last; raises InputError when the file is damaged."""
        return self._file.read_json(list[CompletedScaling]) or []

    def note(self, state: ScalingState) -> None:
        """Add one that is done; raises InputError, DiskFullError and OutputError."""
        made = CompletedScaling(time.time_ns() // 1_000_000, user_name(), state)
        self._file.write(msgspec.json.encode([*self.all(), made][-_KEPT:]))
