"""Deletes what an application's state directory has, except the locks that processes may hold or wait for.

What if we die here: the mark `clearing` is durable before anything is deleted, and the next process that
locks the directory completes that.

Called by `run_directory`, and by `left_states` in a worker.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from drivetrain.durable import sync
from drivetrain.runtime.preparation import CLEARING, LOCK

OWN_LOCK: Final = "lock"
"""The lock of the process that runs the application, or of executors that share it."""
_STAYS: Final = (OWN_LOCK, LOCK, CLEARING)


def content_of(directory: Path) -> list[Path]:
    """What `empty` deletes."""
    return [child for child in directory.iterdir() if child.name not in _STAYS]


def empty(directory: Path) -> None:
    """Delete it; for the holder of the directory's lock. Raises OSError."""
    mark = directory / CLEARING
    mark.touch()  # half a state is worse than none: a crash from now on must not leave one
    sync(directory)
    for child in content_of(directory):
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        else:
            child.unlink(missing_ok=True)
    mark.unlink()
    sync(directory)
