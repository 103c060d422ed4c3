"""The working directories of applications that have moved away from a worker, or ended, are emptied.

Problem: an application whose state is in an object store works in a directory of its worker. When it
continues elsewhere, that is as large as its state, and nobody needs it.

Design: the worker looks now and then. A directory whose lock is free, and in which nothing has changed for
long enough, is emptied while the worker holds the lock; the locks stay. What if we die here: the mark
`clearing` stays, and whoever runs the application there next completes that.

Invariants:

1. Nothing of an application that runs, or ended less than that time ago, is deleted.

Called by `launcher`. Blocks.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drivetrain.file_lock import FileLock
from drivetrain.runtime.preparation import LOCK

_LOCK: Final = "lock"
_CLEARING: Final = "clearing"
_LEVELS: Final = 3
"""How deep changes are looked for: each checkpoint changes a directory that is not deeper."""


def empty_left_states(states: Path, retention_s: float) -> list[Path]:
    """Empty the directories below `states` that nobody has used for so long; returns them."""
    before_s = time.time() - retention_s
    found = [directory for directory in sorted(states.glob("*/*")) if (directory / _LOCK).exists()]
    return [directory for directory in found if _emptied(directory, before_s)]


def _emptied(directory: Path, before_s: float) -> bool:
    content = [child for child in directory.iterdir() if child.name not in (_LOCK, LOCK, _CLEARING)]
    if not content:
        return False
    lock = FileLock(directory / _LOCK)
    try:
        if not lock.take() or max(_changes_s(directory, _LEVELS)) > before_s:
            return False
        (directory / _CLEARING).touch()
        for child in content:
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child)
            else:
                child.unlink(missing_ok=True)
        (directory / _CLEARING).unlink()
    finally:
        lock.release()
    return True


def _changes_s(directory: Path, levels: int) -> Iterator[float]:
    """When something changed in a directory, or in those in it."""
    yield directory.stat().st_mtime
    if levels > 0:
        for child in directory.iterdir():
            if child.is_dir() and not child.is_symlink():
                yield from _changes_s(child, levels - 1)
