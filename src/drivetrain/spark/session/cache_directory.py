"""The user's cache: where files are kept that make Spark start and run faster on this machine.

Called by `class_archive`, `local_files` and `jars`.
"""

from __future__ import annotations

import os
from pathlib import Path

from drivetrain.errors import OutputError


def cache_directory() -> Path:
    """Drivetrain's directory in the user's cache, whether it exists or not."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cache, "drivetrain")


def make_cache_directory() -> Path:
    """Make it if need be, and return it. Raises `OutputError`."""
    path = cache_directory()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the cache cannot be written: {error.strerror}",
            where=str(path),
            remedy="name another directory by XDG_CACHE_HOME, for every command that is to use it",
        ) from error
    return path
