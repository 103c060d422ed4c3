"""The working directories of applications that have moved away from a worker, or ended, are emptied.

Problem: an application whose state is in an object store works in a directory of its worker. When it
continues elsewhere, that is as large as its state, and nobody needs it.

Design: the worker looks now and then. A directory whose lock is free, and in which nothing has changed for
long enough, is emptied while the worker holds the lock (`emptied_directory`).

Invariants:

1. Nothing of an application that runs, or ended less than that time ago, is deleted.

Called by `launcher`. Blocks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drivetrain.file_lock import FileLock
from drivetrain.runtime.emptied_directory import OWN_LOCK, content_of, empty

_LEVELS: Final = 3
"""How deep changes are looked for: each checkpoint changes a directory that is not deeper."""


def empty_left_states(states: Path, retention_s: float) -> list[Path]:
    """Empty the directories below `states` that nobody has used for so long; returns them."""
    before_s = time.time() - retention_s
    found = [directory for directory in sorted(states.glob("*/*")) if (directory / OWN_LOCK).exists()]
    return [directory for directory in found if _emptied(directory, before_s)]


def _emptied(directory: Path, before_s: float) -> bool:
    if not content_of(directory):
        return False
    lock = FileLock(directory / OWN_LOCK)
    try:
        if not lock.take() or max(_changes_s(directory, _LEVELS)) > before_s:
            return False
        empty(directory)
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
