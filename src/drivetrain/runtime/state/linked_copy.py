"""Copies of Spark's checkpoints made of links, because Spark never changes a file.

A copy is worked on under one name; `publish_copy` gives it another in one step, when all that is new in it is
durable.

Called by `divided_state`, `dropped_state`, and by `rerun_batch`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from drivetrain.durable import publish_directory, sync


def link_file(file: Path, link: Path) -> None:
    """Link a file, or copy it where a file system has no links; does nothing if Spark has just deleted it."""
    with suppress(FileNotFoundError):
        try:
            os.link(file, link)
        except OSError:
            shutil.copy2(file, link)


def link_directory(directory: Path, copy: Path) -> None:
    """Copy a directory as links, without the files that a crash kept Spark from finishing."""
    shutil.copytree(directory, copy, copy_function=_linked, ignore=_unfinished)


def publish_copy(made: Path, name: Path) -> None:
    """Give a copy the name that decides, after its new files and all its directories are synced."""
    for path, _, names in os.walk(made):
        for each in names:
            file = Path(path) / each
            if file.stat().st_nlink == 1:  # other files belong to a checkpoint, too
                sync(file)
        sync(path)
    publish_directory(made, name)


def _linked(file: str, link: str) -> None:
    link_file(Path(file), Path(link))


def _unfinished(_directory: str, names: list[str]) -> list[str]:
    """Unfinished files; checksums, which also begin with a dot, are kept."""
    return [name for name in names if name.startswith(".") and ".tmp" in name]
