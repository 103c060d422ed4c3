"""The user's cache: Java libraries, and files that make Spark start and run faster on this machine.

All of it is code, or Java classes that are mapped into memory: anyone who can write there runs code as
this user. So the directory is created for this user alone, and files that others could have written are not
used. Nothing there is secret: a directory that others may read stays so, since root may keep a cache for all
users of a machine.

Called by `class_archive`, `local_files` and `jars`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from drivetrain.errors import OutputError, UserError
from drivetrain.private_files import make_private_directory, require_trusted, require_trusted_tree
from drivetrain.runtime.user_cache import cache_directory

_WHAT: Final = "the cache of Drivetrain"


def make_cache_directory() -> Path:
    """Make it if need be, and return it. Raises `OutputError`, or `UserError` if others can write to it."""
    path = cache_directory()
    try:
        if path.exists():
            require_trusted(path, _WHAT)
        else:
            make_private_directory(path, _WHAT)
    except OSError as error:
        raise OutputError(
            f"the cache cannot be written: {error.strerror}",
            where=str(path),
            remedy="name another directory by XDG_CACHE_HOME, for every command that is to use it",
        ) from error
    return path


def require_usable(path: Path) -> None:
    """Raise `UserError` when others could have written a file or folder of the cache, or anything in it."""
    require_trusted(cache_directory(), _WHAT)
    require_trusted_tree(path, _WHAT)


def is_usable(path: Path) -> bool:
    """Whether a file or folder of the cache is there, and only this user and root could have written it."""
    if not os.path.exists(path):  # unlike `Path.exists`, False when another user's cache is closed
        return False
    try:
        require_usable(path)
    except UserError:
        return False
    return True
